// Where ops are registered with torch.
#include <map>

#include "binding/op.h"

namespace thunderkittens {
namespace {

torch::Library& fragment() {
  static torch::Library library(torch::Library::FRAGMENT, "thunderkittens", std::nullopt, __FILE__,
                                __LINE__);
  return library;
}

torch::Library& implementations(c10::DispatchKey key) {
  static std::map<c10::DispatchKey, torch::Library> all;
  return all.try_emplace(key, torch::Library::IMPL, "thunderkittens", key, __FILE__, __LINE__)
      .first->second;
}

}  // namespace

void define(const std::string& text, bool draws_numbers) {
  using tags = std::vector<at::Tag>;
  const tags plain = {at::Tag::pt2_compliant_tag};
  const tags random = {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded};
  fragment().def(torch::schema(text.c_str()), draws_numbers ? random : plain);
}

void implement(const std::string& name, c10::DispatchKey key, torch::CppFunction&& function) {
  implementations(key).impl(name.c_str(), std::move(function));
}

}  // namespace thunderkittens
