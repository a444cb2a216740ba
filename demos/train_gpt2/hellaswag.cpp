#include "hellaswag.h"

#include <cstring>

namespace gpt2 {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr int32_t kMagic = 20240522, kVersion = 1;
constexpr int kStart = 65535;

// Reads the uint16 one after another.
class reader {
 public:
  reader(const mapped_file& file, int64_t vocabulary) : file_(file), vocabulary_(vocabulary) {}

  int next() {
    uint16_t word = 0;
    if (at_ + 2 > file_.bytes()) refuse("goes on behind the end of the file");
    std::memcpy(&word, file_.data() + at_, sizeof(word));
    at_ += 2;
    return word;
  }
  void tokens(std::vector<int>& to) {
    const int count = next();
    if (count == 0) refuse("has a context or an ending without tokens");
    for (int i = 0; i < count; ++i) {
      to.push_back(next());
      if (to.back() < vocabulary_) continue;
      refuse("has a token that must be below the vocabulary of " + std::to_string(vocabulary_) +
             ", got " + std::to_string(to.back()));
    }
  }
  void begin(int64_t question) { question_ = question; }
  int64_t at() const { return at_; }
  [[noreturn]] void refuse(const std::string& why) const {
    file_.refuse("question " + std::to_string(question_) + " " + why);
  }

 private:
  const mapped_file& file_;
  int64_t vocabulary_, question_ = 0, at_ = kHeaderBytes;
};

}  // namespace

hellaswag_file::hellaswag_file(const std::string& path, int64_t length, int64_t vocabulary) {
  const mapped_file file(path);
  int32_t header[3] = {};
  if (file.bytes() >= kHeaderBytes) std::memcpy(header, file.data(), sizeof(header));
  if (header[0] != kMagic || header[1] != kVersion || header[2] < 1) {
    file.refuse(
        "must begin with 1024 bytes, of which the first are 20240522, 1 and the number of "
        "questions, got " +
        std::to_string(header[0]) + ", " + std::to_string(header[1]) + " and " +
        std::to_string(header[2]));
  }
  reader from(file, vocabulary);
  for (int64_t i = 0; i < header[2]; ++i) {
    from.begin(i);
    const int64_t start = from.at();
    if (from.next() != kStart) from.refuse("must begin with 65535");
    const int bytes = from.next();
    from.next();  // its number in the data set
    const int answer = from.next(), endings = from.next();
    if (answer >= endings) {
      from.refuse("has the answer " + std::to_string(answer) + " of " + std::to_string(endings));
    }
    std::vector<int> context;
    from.tokens(context);
    questions_.push_back({choices_.size(), size_t(endings), answer});
    for (int e = 0; e < endings; ++e) {
      choices_.push_back({context, int64_t(context.size())});
      from.tokens(choices_.back().tokens);
      const auto tokens = int64_t(choices_.back().tokens.size());
      if (tokens > length + 1) {
        from.refuse("has " + std::to_string(tokens) + " tokens, more than --length, " +
                    std::to_string(length) + ", and one");
      }
    }
    if (from.at() - start != bytes) {
      from.refuse("says that it has " + std::to_string(bytes) + " bytes, got " +
                  std::to_string(from.at() - start));
    }
  }
  if (from.at() != file.bytes()) {
    file.refuse("its questions have " + std::to_string(from.at()) + " bytes with the header, got " +
                std::to_string(file.bytes()));
  }
}

}  // namespace gpt2
