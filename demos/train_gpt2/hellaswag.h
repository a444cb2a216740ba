// Questions of multiple choice, as HellaSwag's: which of some endings goes on with a context? The
// model's answer is the ending whose tokens have the lowest mean loss.
#pragma once

#include <string>
#include <vector>

#include "files.h"

namespace gpt2 {

// A context and one of its endings.
struct choice {
  std::vector<int> tokens;
  int64_t ending;  // where it begins
};

struct question {
  size_t first, count;  // of its choices
  int64_t answer;       // which of them is right
};

// llm.c's evaluation file: 256 int32, of which the first three are 20240522, 1 and the number of
// questions; then uint16, for each question 65535, its bytes, its number, its answer, how many
// endings it has; how many tokens its context has, and these; the same of each ending.
class hellaswag_file {
 public:
  // Throws error where it is damaged, a token is not below `vocabulary`, or a context with an
  // ending has more tokens than `length` and one.
  hellaswag_file(const std::string& path, int64_t length, int64_t vocabulary);

  const std::vector<question>& questions() const { return questions_; }
  const std::vector<choice>& choices() const { return choices_; }

 private:
  std::vector<question> questions_;
  std::vector<choice> choices_;
};

}  // namespace gpt2
