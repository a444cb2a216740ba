// A registered op, to be called from C++ through the dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace thunderkittens {

// The op with the signature of `implementation`. Keep it in a static variable: the look-up is by
// name.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name, Signature& implementation) {
  static_cast<void>(implementation);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

}  // namespace thunderkittens
