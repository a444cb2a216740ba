// Reading a safetensors file.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "files.h"

namespace gpt2 {
namespace {

constexpr int64_t kMostHeaderBytes = int64_t{100} << 20;  // as the format's own library

int64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> sizes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4}, {"I32", 4}, {"U32", 4}, {"F16", 2},
      {"I16", 2}, {"U16", 2}, {"BF16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

// Whether `value` is a whole number of 0 … 2⁵³, which a double holds exactly.
bool is_size(const json& value) {
  return value.is == json::kind::number && value.number >= 0 && value.number <= 0x1p53 &&
         value.number == std::floor(value.number);
}

float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 0    ? std::ldexp(float(fraction), -24)
                     : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                      : std::ldexp(float(1024 + fraction), exponent - 25);
  return bits >> 15 ? -size : size;
}

float value_at(const stored_tensor& t, int64_t i) {
  if (t.dtype == "F32") {
    float value;
    std::memcpy(&value, t.data + 4 * i, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, t.data + 2 * i, sizeof(bits));
  return t.dtype == "F16" ? from_half(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace

safetensors::safetensors(const std::string& path) : file_(path) {
  uint64_t length = 0;
  if (file_.bytes() >= 8) std::memcpy(&length, file_.data(), sizeof(length));
  if (length == 0 || length > uint64_t(std::min(file_.bytes() - 8, kMostHeaderBytes))) {
    file_.refuse("not a safetensors file: its header would have " + std::to_string(length) +
                 " bytes");
  }
  try {
    read_header(file_.text().substr(8, length), file_.bytes() - 8 - int64_t(length));
  } catch (const error& why) {
    file_.refuse(std::string("not a safetensors file: ") + why.what());
  }
}

void safetensors::read_header(std::string_view text, int64_t data_bytes) {
  const json header = json::parse(text);
  if (header.is != json::kind::object) throw error("its header is no object");
  int64_t covered = 0;
  for (size_t i = 0; i < header.names.size(); ++i) {
    const std::string& name = header.names[i];
    const json& entry = header.items[i];
    if (name == "__metadata__") {
      for (size_t m = 0; m < entry.names.size(); ++m) {
        metadata_[entry.names[m]] = entry.items[m].text;
      }
      continue;
    }
    const stored_tensor tensor = checked(name, entry, data_bytes);
    covered += tensor.bytes;
    if (!tensors_.emplace(name, tensor).second) throw error(name + " is there twice");
  }
  if (covered != data_bytes) {
    throw error("its tensors have " + std::to_string(covered) + " bytes, the file has " +
                std::to_string(data_bytes));
  }
}

stored_tensor safetensors::checked(const std::string& name, const json& entry,
                                   int64_t data_bytes) const {
  const json *dtype = entry.find("dtype"), *shape = entry.find("shape");
  const json* offsets = entry.find("data_offsets");
  const auto sizes_in = [](const json* list) {
    return list != nullptr && list->is == json::kind::list &&
           std::all_of(list->items.begin(), list->items.end(), is_size);
  };
  if (dtype == nullptr || !sizes_in(shape) || !sizes_in(offsets) || offsets->items.size() != 2) {
    throw error(name + " lacks a dtype, shape or data_offsets");
  }
  stored_tensor tensor{dtype->text, {}, nullptr, element_bytes(dtype->text)};
  if (tensor.bytes == 0) throw error(name + " has an unknown dtype");
  for (const json& size : shape->items) {
    tensor.shape.push_back(int64_t(size.number));
    if (__builtin_mul_overflow(tensor.bytes, tensor.shape.back(), &tensor.bytes)) {
      throw error(name + " is too large");
    }
  }
  const auto begin = int64_t(offsets->items[0].number), end = int64_t(offsets->items[1].number);
  if (begin > end || end > data_bytes || end - begin != tensor.bytes) {
    throw error(name + " needs " + std::to_string(tensor.bytes) + " bytes, got " +
                std::to_string(begin) + " to " + std::to_string(end) + " of " +
                std::to_string(data_bytes));
  }
  tensor.data = file_.data() + file_.bytes() - data_bytes + begin;
  return tensor;
}

void safetensors::read(const std::string& name, const std::vector<int64_t>& shape,
                       float* to) const {
  auto found = tensors_.find(name);
  if (found == tensors_.end()) found = tensors_.find("transformer." + name);
  if (found == tensors_.end()) file_.refuse("has no tensor " + name);
  const stored_tensor& t = found->second;
  const bool is_float = t.dtype == "F32" || t.dtype == "F16" || t.dtype == "BF16";
  if (!is_float || t.shape != shape) {
    file_.refuse(name + " must be " + text_of(shape) + " of F32, F16 or BF16, got " +
                 text_of(t.shape) + " of " + t.dtype);
  }
  const int64_t count = t.bytes / element_bytes(t.dtype);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = value_at(t, i);
    if (!std::isfinite(to[i])) file_.refuse(name + " holds values that are not finite");
  }
}

}  // namespace gpt2
