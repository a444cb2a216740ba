// A registered op, to be called from C++ through the dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

namespace thunderkittens {

// The op with the signature of `implementation`. Keep it in a static variable: the look-up is by
// name.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name, Signature& implementation) {
  static_cast<void>(implementation);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

// Defines `name`, a short form of an op: a call of it with the defaults of what the form leaves
// out. (An argument that Python leaves out costs the host as much as one that it gives.)
template <class F>
void define_short_form(torch::Library& m, const std::string& name, const std::string& signature,
                       F* call) {
  m.def(torch::schema((name + signature).c_str()), {at::Tag::pt2_compliant_tag});
  for (const auto key : {c10::DispatchKey::CompositeImplicitAutograd,
                         c10::DispatchKey::CompositeImplicitAutogradNestedTensor}) {
    m.impl(name.c_str(), torch::dispatch(key, call));
  }
}

}  // namespace thunderkittens
