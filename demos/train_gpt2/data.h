// Tokens to train on: files of the format of llm.c, cut into sequences, in a random order.
#pragma once

#include <string>
#include <vector>

#include "files.h"
#include "kernels.h"

namespace gpt2 {

// A .bin file: a header of 256 int32, of which the first three are a magic number, a version and
// the number of tokens; then the tokens, uint16 (magic 20240520, version 1) or uint32 (magic
// 20240801, version 7).
class token_file {
 public:
  explicit token_file(const std::string& path);

  int64_t tokens() const { return tokens_; }
  // Throws error where it is not below `vocabulary`.
  int token(int64_t position, int64_t vocabulary) const;

 private:
  mapped_file file_;
  bool is_wide_ = false;  // uint32
  int64_t tokens_ = 0;
};

// A file, or all .bin files of a folder in the order of their names. Sequence i of a file has the
// tokens from i · length to (i + 1) · length, and the same one further as targets.
class dataset {
 public:
  dataset(const std::string& path, int64_t length, int64_t vocabulary);

  int64_t sequences() const { return first_.back(); }
  int64_t tokens() const;
  int64_t length() const { return length_; }
  int first_token() const;
  void read(int64_t sequence, int* inputs, int* targets) const;

 private:
  int64_t length_, vocabulary_;
  std::vector<token_file> files_;
  std::vector<int64_t> first_;  // of each file's sequences, and the number of all
};

// Which sequence comes at a position of a run that goes over the data any number of times: each
// time in another order, a function of seed and position alone.
class shuffled {
 public:
  shuffled(int64_t sequences, uint64_t seed) : order_(sequences), seed_(seed) {}

  int64_t at(int64_t position);

 private:
  std::vector<int64_t> order_;
  uint64_t seed_;
  int64_t epoch_ = -1;
};

// Fills in what the device needs of a micro-batch, a token_batch, whose inputs and targets are
// there.
class batch_sorter {
 public:
  explicit batch_sorter(int64_t vocabulary) : number_of_(vocabulary, -1) {}

  void sort(int* batch, int64_t rows);
  // Puts inputs and targets there, too: sequences number_of(0) … number_of(count − 1) of a dataset.
  template <class F>
  void fill(int* batch, int64_t count, const dataset& from, const F& number_of) {
    const int64_t length = from.length(), rows = count * length;
    for (int64_t b = 0; b < count; ++b) {
      from.read(number_of(b), batch + b * length, batch + rows + b * length);
    }
    sort(batch, rows);
  }

 private:
  std::vector<int> number_of_;  // of a token among the distinct ones; −1: it is not there
};

}  // namespace gpt2
