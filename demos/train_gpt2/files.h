// Files: mapped to be read, JSON, and safetensors. What is read is not trusted: every size is
// checked before it is used, and a damaged file ends in one error that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::error;

// A file in memory, read-only.
class mapped_file {
 public:
  explicit mapped_file(const std::string& path);
  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_) {}
  mapped_file& operator=(mapped_file&&) = delete;
  ~mapped_file();

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_t(bytes_)}; }
  [[noreturn]] void refuse(const std::string& why) const { throw error(path_ + ": " + why); }

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A value of JSON. Strings are UTF-8.
struct json {
  enum class kind { null, boolean, number, text, list, object };

  kind is = kind::null;
  bool flag = false;
  double number = 0;
  std::string text;
  std::vector<json> items;         // of a list, or the values of an object
  std::vector<std::string> names;  // of an object

  const json* find(std::string_view name) const;  // null: it has no such member

  // Throws error: where it is wrong, in characters from the start.
  static json parse(std::string_view text);
};

// What a program writes into JSON between quotes.
std::string quoted(std::string_view text);

// A tensor of a safetensors file.
struct stored_tensor {
  std::string dtype;  // F32, F16, BF16, …
  std::vector<int64_t> shape;
  const std::byte* data;
  int64_t bytes;
};

// A safetensors file: 8 bytes with the length of a header of JSON, the header, the tensors.
class safetensors {
 public:
  explicit safetensors(const std::string& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The values, in float32, of a tensor of F32, F16 or BF16 of this shape, whose name may begin
  // with `transformer.`. Throws error where there is none, or a value is not finite.
  void read(const std::string& name, const std::vector<int64_t>& shape, float* to) const;

 private:
  void read_header(std::string_view header, int64_t data_bytes);
  stored_tensor checked(const std::string& name, const json& entry, int64_t data_bytes) const;

  mapped_file file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, stored_tensor> tensors_;
};

struct float_tensor {
  std::string name;
  std::vector<int64_t> shape;
  const float* data;
};
void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       const std::vector<float_tensor>& tensors);
void write_text(const std::string& path, std::string_view text);

}  // namespace gpt2
