// What tokens say, by a tokenizer.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "files.h"

namespace gpt2 {

// Of a tokenizer of bytes, as GPT-2's and `prepare`'s: each character of a token's name stands for
// a byte, but in tokens that are added, such as <|endoftext|>.
class token_text {
 public:
  // Throws error where it is damaged.
  explicit token_text(const std::string& path);

  // Whether it is one of bytes.
  bool speaks() const { return speaks_; }
  std::string of(const std::vector<int>& tokens) const;

 private:
  bool speaks_ = false;
  std::vector<std::string> bytes_;  // of each token; "": there is none of that number
};

// UTF-8 that a terminal shows as it is: what is no character, or one that controls it, is replaced
// by U+FFFD. Ends of lines and tabs stay.
std::string printable(std::string_view text);

}  // namespace gpt2
