#include "data.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "random.h"

namespace gpt2 {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr int32_t kMagic = 20240520, kVersion = 1;          // uint16
constexpr int32_t kWideMagic = 20240801, kWideVersion = 7;  // uint32

std::vector<std::string> files_at(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".bin") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  if (found.empty()) throw error(path + ": there is no .bin file");
  return found;
}

}  // namespace

token_file::token_file(const std::string& path) : file_(path) {
  if (file_.bytes() < kHeaderBytes) {
    file_.refuse("must have a header of 1024 bytes, got " + std::to_string(file_.bytes()));
  }
  int32_t header[3];
  std::memcpy(header, file_.data(), sizeof(header));
  is_wide_ = header[0] == kWideMagic;
  const int32_t version = is_wide_ ? kWideVersion : kVersion;
  if ((!is_wide_ && header[0] != kMagic) || header[1] != version) {
    file_.refuse("must begin with magic 20240520 and version 1, or 20240801 and 7, got " +
                 std::to_string(header[0]) + " and " + std::to_string(header[1]));
  }
  tokens_ = header[2];
  const int64_t expected = kHeaderBytes + tokens_ * (is_wide_ ? 4 : 2);
  if (tokens_ < 0 || file_.bytes() != expected) {
    file_.refuse("its header says " + std::to_string(tokens_) + " tokens, which are " +
                 std::to_string(expected) + " bytes with it, got " + std::to_string(file_.bytes()));
  }
}

int token_file::token(int64_t position, int64_t vocabulary) const {
  uint32_t token = 0;
  const std::byte* const tokens = file_.data() + kHeaderBytes;
  if (is_wide_) {
    std::memcpy(&token, tokens + 4 * position, 4);
  } else {
    std::memcpy(&token, tokens + 2 * position, 2);
  }
  if (token >= vocabulary) {
    file_.refuse("token " + std::to_string(position) + " must be below the vocabulary of " +
                 std::to_string(vocabulary) + ", got " + std::to_string(token));
  }
  return static_cast<int>(token);
}

dataset::dataset(const std::string& path, int64_t length, int64_t vocabulary)
    : length_(length), vocabulary_(vocabulary), first_{0} {
  for (const std::string& file : files_at(path)) {
    files_.emplace_back(file);
    first_.push_back(first_.back() + std::max<int64_t>(0, files_.back().tokens() - 1) / length);
  }
  if (sequences() == 0) {
    throw error(path + ": must have a sequence of " + std::to_string(length + 1) + " tokens, got " +
                std::to_string(tokens()));
  }
}

int64_t dataset::tokens() const {
  return std::accumulate(files_.begin(), files_.end(), int64_t{0},
                         [](int64_t sum, const token_file& f) { return sum + f.tokens(); });
}

int dataset::first_token() const {
  const auto has_some = [](const token_file& f) { return f.tokens() > 0; };
  return std::find_if(files_.begin(), files_.end(), has_some)->token(0, vocabulary_);
}

void dataset::read(int64_t sequence, int* inputs, int* targets) const {
  const auto behind = std::upper_bound(first_.begin(), first_.end(), sequence);
  const size_t number = behind - first_.begin() - 1;
  const int64_t start = (sequence - first_[number]) * length_;
  int token = files_[number].token(start, vocabulary_);
  for (int64_t i = 0; i < length_; ++i) {
    inputs[i] = token;
    targets[i] = token = files_[number].token(start + i + 1, vocabulary_);
  }
}

int64_t shuffled::at(int64_t position) {
  const auto size = static_cast<int64_t>(order_.size());
  if (position / size != epoch_) {
    epoch_ = position / size;
    std::iota(order_.begin(), order_.end(), int64_t{0});
    random_numbers random(random_numbers(seed_).bits() + static_cast<uint64_t>(epoch_));
    for (int64_t i = size - 1; i > 0; --i) std::swap(order_[i], order_[random.below(i + 1)]);
  }
  return order_[position % size];
}

void batch_sorter::sort(int* batch, int64_t rows) {
  const int* const inputs = batch;
  int* const distinct = batch + 2 * rows;
  int* const tokens = distinct + 1;
  int* const starts = tokens + rows;
  int* const rows_of = starts + rows + 1;
  int count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    int& number = number_of_[inputs[r]];
    if (number < 0) {
      number = count++;
      tokens[number] = inputs[r];
      starts[number + 1] = 0;
    }
    ++starts[number + 1];
  }
  starts[0] = 0;
  for (int i = 0; i < count; ++i) starts[i + 1] += starts[i];
  // starts[i] goes to where token i's rows end, which is where those of token i + 1 began.
  for (int64_t r = 0; r < rows; ++r) rows_of[starts[number_of_[inputs[r]]]++] = int(r);
  for (int i = count; i > 0; --i) starts[i] = starts[i - 1];
  starts[0] = 0;
  for (int i = 0; i < count; ++i) number_of_[tokens[i]] = -1;
  *distinct = count;
}

}  // namespace gpt2
