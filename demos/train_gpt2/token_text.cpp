#include "token_text.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace gpt2 {
namespace {

constexpr const char* kNoCharacter = "\xef\xbf\xbd";  // U+FFFD
constexpr int kMostTokens = 1 << 20;

// The character at the start of UTF-8; its bytes, 0 where there is none.
struct character {
  uint32_t code = 0;
  size_t bytes = 0;
};
character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 2) return {};
    code = code << 6 | (byte(i) & 63u);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes};
}

// Which byte a character of a token's name stands for: those that can be seen, for themselves; the
// others, in their order, are 256, 257 …
std::map<uint32_t, char> byte_of_character() {
  std::map<uint32_t, char> bytes;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool is_seen = (b > 32 && b < 127) || (b > 160 && b != 173);
    bytes[is_seen ? b : next++] = static_cast<char>(b);
  }
  return bytes;
}

// The bytes of a token's name; what stands for none is kept.
std::string bytes_of_name(std::string_view name, const std::map<uint32_t, char>& bytes) {
  std::string result;
  while (!name.empty()) {
    const character c = first_character(name);
    const auto found = bytes.find(c.code);
    const size_t size = std::max<size_t>(1, c.bytes);
    if (c.bytes > 0 && found != bytes.end()) {
      result += found->second;
    } else {
      result += name.substr(0, size);
    }
    name.remove_prefix(size);
  }
  return result;
}

}  // namespace

token_text::token_text(const std::string& path) {
  const mapped_file file(path);
  json all;
  try {
    all = json::parse(file.text());
  } catch (const error& why) {
    file.refuse(why.what());
  }
  const json *model = all.find("model"), *decoder = all.find("decoder");
  const json* const vocabulary = model == nullptr ? nullptr : model->find("vocab");
  if (vocabulary == nullptr) file.refuse("must have a model with a vocab");
  const json* const kind = decoder == nullptr ? nullptr : decoder->find("type");
  speaks_ = kind != nullptr && kind->text == "ByteLevel" && vocabulary->is == json::kind::object;
  if (!speaks_) return;
  const auto put = [&](const json* number, std::string text) {
    const double id = number == nullptr ? -1 : number->number;
    if (!(id >= 0 && id < kMostTokens && id == std::floor(id))) {
      file.refuse("a token's number must be 0 to " + std::to_string(kMostTokens - 1));
    }
    if (id >= double(bytes_.size())) bytes_.resize(size_t(id) + 1);
    bytes_[size_t(id)] = std::move(text);
  };
  const std::map<uint32_t, char> bytes = byte_of_character();
  for (size_t i = 0; i < vocabulary->names.size(); ++i) {
    put(&vocabulary->items[i], bytes_of_name(vocabulary->names[i], bytes));
  }
  if (const json* const added = all.find("added_tokens")) {
    for (const json& token : added->items) {
      const json* const content = token.find("content");
      put(token.find("id"), content == nullptr ? "" : content->text);
    }
  }
}

std::string token_text::of(const std::vector<int>& tokens) const {
  std::string text;
  for (const int token : tokens) {
    const bool is_there = size_t(token) < bytes_.size() && !bytes_[token].empty();
    text += is_there ? bytes_[token] : kNoCharacter;
  }
  return text;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const character c = first_character(text);
    const bool controls =
        (c.code < 32 && c.code != '\n' && c.code != '\t') || (c.code >= 127 && c.code < 160);
    const size_t size = std::max<size_t>(1, c.bytes);
    if (c.bytes == 0 || controls) {
      result += kNoCharacter;
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return result;
}

}  // namespace gpt2
