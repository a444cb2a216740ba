#include "files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace gpt2 {
namespace {

class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_(text) {}

  json whole() {
    json value = any(0);
    skip_blanks();
    if (at_ != text_.size()) refuse();
    return value;
  }

 private:
  static constexpr int kMostNested = 32;

  [[noreturn]] void refuse() const { throw error("not JSON at character " + std::to_string(at_)); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (std::strchr(" \t\r\n", peek()) != nullptr && peek() != '\0') ++at_;
  }
  void expect(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) refuse();
    at_ += word.size();
  }
  // Whether a list or object goes on, after an element of it.
  bool goes_on(char end) {
    skip_blanks();
    const bool more = peek() == ',';
    if (!more && peek() != end) refuse();
    ++at_;
    return more;
  }

  json any(int depth) {
    if (depth > kMostNested) refuse();
    skip_blanks();
    json value;
    switch (peek()) {
      case '{': value.is = json::kind::object; return object(std::move(value), depth);
      case '[': value.is = json::kind::list; return list(std::move(value), depth);
      case '"':
        value.is = json::kind::text;
        value.text = string();
        return value;
      case 't':
        expect("true");
        value.is = json::kind::boolean;
        value.flag = true;
        return value;
      case 'f':
        expect("false");
        value.is = json::kind::boolean;
        return value;
      case 'n': expect("null"); return value;
      default:
        value.is = json::kind::number;
        value.number = number();
        return value;
    }
  }

  json object(json value, int depth) {
    expect("{");
    skip_blanks();
    if (peek() == '}') return ++at_, value;
    do {
      skip_blanks();
      value.names.push_back(string());
      skip_blanks();
      expect(":");
      value.items.push_back(any(depth + 1));
    } while (goes_on('}'));
    return value;
  }

  json list(json value, int depth) {
    expect("[");
    skip_blanks();
    if (peek() == ']') return ++at_, value;
    do value.items.push_back(any(depth + 1));
    while (goes_on(']'));
    return value;
  }

  std::string string() {
    expect("\"");
    std::string value;
    while (peek() != '"') {
      if (at_ >= text_.size()) refuse();
      if (peek() == '\\') {
        escape(value);
      } else {
        value += text_[at_++];
      }
    }
    ++at_;
    return value;
  }

  void escape(std::string& value) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kCharacters = "\"\\/\b\f\n\r\t";
    ++at_;
    if (peek() != 'u') {
      const size_t which = kNames.find(peek());
      if (peek() == '\0' || which == std::string_view::npos) refuse();
      value += kCharacters[which];
      ++at_;
      return;
    }
    uint32_t code = hexadecimal();
    if (code >> 10 == 0xd800 >> 10 && text_.substr(at_, 2) == "\\u") {  // the first half of a pair
      ++at_;
      code = 0x10000 + ((code & 0x3ff) << 10) + (hexadecimal() & 0x3ff);
    }
    append(value, code);
  }

  // The four digits behind the u that is next.
  uint32_t hexadecimal() {
    uint32_t code = 0;
    ++at_;
    for (int i = 0; i < 4; ++i, ++at_) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const size_t digit = kDigits.find(static_cast<char>(std::tolower(peek())));
      if (peek() == '\0' || digit == std::string_view::npos) refuse();
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  static void append(std::string& value, uint32_t code) {
    const auto put = [&](uint32_t bits) { value += static_cast<char>(bits); };
    if (code < 0x80) return put(code);
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes
    put((0xff00u >> (more + 1) & 0xffu) | code >> 6 * more);
    for (int i = more - 1; i >= 0; --i) put(0x80u | (code >> 6 * i & 63u));
  }

  double number() {
    const std::string digits(
        text_.substr(at_, text_.substr(at_).find_first_not_of("+-.eE0123456789")));
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (digits.empty() || end != digits.c_str() + digits.size()) refuse();
    at_ += digits.size();
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

void write_all(std::ofstream& file, const std::string& path, const void* data, int64_t bytes) {
  file.write(static_cast<const char*>(data), bytes);
  if (!file) throw error(path + ": cannot be written: " + std::strerror(errno));
}

std::ofstream open_to_write(const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) throw error(path + ": cannot be written: " + std::strerror(errno));
  return file;
}

void finish(std::ofstream& file, const std::string& path) {
  file.close();
  if (!file) throw error(path + ": cannot be written: " + std::strerror(errno));
}

}  // namespace

mapped_file::mapped_file(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts{};
  if (descriptor < 0 || ::fstat(descriptor, &facts) != 0) {
    refuse(std::string("cannot be read: ") + std::strerror(errno));
  }
  bytes_ = S_ISREG(facts.st_mode) ? facts.st_size : 0;
  if (bytes_ > 0) {
    void* const data = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
  }
  ::close(descriptor);
  if (data_ == nullptr) refuse("is empty, or not a file");
}

mapped_file::~mapped_file() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

const json* json::find(std::string_view name) const {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &items[i];
  }
  return nullptr;
}

json json::parse(std::string_view text) { return json_reader(text).whole(); }

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       const std::vector<float_tensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"";
  for (const auto& [key, value] : metadata) header += "," + quoted(key) + ":" + quoted(value);
  header += "}";
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  for (const float_tensor& t : tensors) {
    int64_t bytes = sizeof(float);
    std::string shape;
    for (const int64_t size : t.shape) {
      bytes *= size;
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    }
    header += "," + quoted(t.name) + ":{\"dtype\":\"F32\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + bytes) +
              "]}";
    begin += bytes;
    sizes.push_back(bytes);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file = open_to_write(path);
  const uint64_t length = header.size();
  write_all(file, path, &length, sizeof(length));
  write_all(file, path, header.data(), header.size());
  for (size_t i = 0; i < tensors.size(); ++i) write_all(file, path, tensors[i].data, sizes[i]);
  finish(file, path);
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file = open_to_write(path);
  write_all(file, path, text.data(), text.size());
  finish(file, path);
}

}  // namespace gpt2
