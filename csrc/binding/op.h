// From an op's description and what it computes to the functions that torch registers.
//
// An op is a struct, of which all is static:
//
//   name                  what torch calls it
//   arguments, results    the description (binding/describe.h)
//   compute(args...)      its results, from arguments that have been checked: by a kernel or by
//                         ATen. Undefined is what is not wanted.
//
// and, where there is need:
//
//   called                as messages name it, if not `name`
//   relation              of its arguments' sizes
//   kReturned             how many of the results `name` returns; the others are for the backward.
//                         `name`_forward returns all. compute has one more argument, the first:
//                         whether all are wanted
//   kWritten              how many of the arguments are written in place, in a row
//   kFirstWritten         which is the first of these, if not the first of all
//   kPlain                how many of the first arguments the short form `name`.plain has; a call
//                         of it is one with the defaults of the others. (An argument that Python
//                         leaves out costs the host as much as one that it gives.)
//   kRandom               the op draws random numbers
//   is_by_row(args...)    whether rows, or the sequences of a batch, are treated each by itself;
//                         if it is not there, they are, unless packed, with a seed, or reduced
//   check_options(args...)  raises what the description does not
//   meta(args...)         empty results, if the description does not say what they look like
//   autocast              what it does under autocast (binding/autocast.h), if anything.
//                         kKeepsDtypes: results of promoted arguments have the dtypes that the
//                         tensors which they are like were given in
//   before(next, args...) above the backends, where a graph of torch.compile shows it: calls `next`
//   kCountsVersions       what is written in place counts its versions, for whoever has saved it
//   in_autocast(next, cast, args...)  the same under autocast, if what is cast does not follow from
//                         the rules of dtypes (takes_autocast) and from what is written in place
//   kUncast               arguments that are not cast, if not those that are written
//   backward              the op that computes its gradients. What it is given is known by name:
//                         an argument or result of this op, or "d" and a result's name, its
//                         gradient; its result "dx" is the gradient of x
//   differentiate(call, args of backward...)  calls `call`, backward, in a way of its own
//   record(call, args...) records a call in a way of its own
//   kNoGradient           of an op without backward: why, and what to call instead. A call whose
//                         gradient would be recorded is refused
//   differentiates        of a backward: as messages name the op whose gradients it computes.
//                         They are not differentiable themselves. (It and `name`: gradients_of)
#pragma once

#include <torch/library.h>

#include "binding/functions.h"

namespace thunderkittens {

void define(const std::string& schema, bool draws_numbers = false);
void implement(const std::string& name, c10::DispatchKey key, torch::CppFunction&& function);

template <class F>
void implement(const std::string& name, std::initializer_list<c10::DispatchKey> keys, F* function) {
  for (const c10::DispatchKey key : keys) implement(name, key, torch::CppFunction(function));
}

// Whether the op stands above autograd too: it has a backward, is one, or records in its own way.
template <class Op>
inline constexpr bool kHasAutograd = requires { typename Op::backward; } || requires {
  Op::differentiates;
} || requires { Op::kRecords; } || requires { Op::kNoGradient; };

template <class Op, bool All>
void register_functions() {
  using functions = functions<Op, All>;
  using c10::DispatchKey;
  const std::string name = functions::name();
  op_description description = kDescription<Op>;
  description.results = description.results.first(functions::kOutputs);
  define(schema(name, description, written_arguments<Op>()), requires { Op::kRandom; });
  enter(registered_op{name, description});
  // One kernel for every device: it looks at the tensors itself, so that a sparse or nested tensor
  // or a foreign device gets our sentence and not the dispatcher's.
  implement(name,
            {DispatchKey::CompositeExplicitAutograd, DispatchKey::NestedTensorCPU,
             DispatchKey::NestedTensorCUDA},
            functions::backend);
  implement(name, {DispatchKey::Meta}, functions::meta);
  implement(name, {DispatchKey::FuncTorchBatched}, functions::mapped);
  if constexpr (kHasAutograd<Op>) implement(name, {DispatchKey::Autograd}, functions::autograd);
  if constexpr (requires { Op::kCountsVersions; }) {
    implement(name, {DispatchKey::ADInplaceOrView}, functions::in_place);
  }
  if constexpr (rule_in_autocast<Op>() == autocast_rule::cast) {
    implement(name, {DispatchKey::AutocastCPU}, functions::template in_autocast<at::kCPU>);
    implement(name, {DispatchKey::AutocastCUDA}, functions::template in_autocast<at::kCUDA>);
  } else if constexpr (rule_in_autocast<Op>() == autocast_rule::promote) {
    implement(name, {DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA}, functions::promoted);
  }
  if constexpr (requires { Op::kPlain; }) {
    if constexpr (!All || !kHidesResults<Op> || requires { Op::kPlainForward; }) {
      description.arguments = description.arguments.first(Op::kPlain);
      define(schema(name + ".plain", description, {}, /*defaults=*/false));
      implement(name + ".plain",
                {DispatchKey::CompositeImplicitAutograd,
                 DispatchKey::CompositeImplicitAutogradNestedTensor, DispatchKey::FuncTorchBatched},
                functions::short_form(std::make_index_sequence<Op::kPlain>()));
    }
  }
}

template <class... Ops>
struct register_ops {
  register_ops() { (register_one<Ops>(), ...); }

 private:
  template <class Op>
  static void register_one() {
    if constexpr (Op::name == std::string_view(name_called<Op>())) {
      enter(kTable<Op>);
      if constexpr (Op::arguments.can_be_packed()) enter(kPackedTable<Op>);
    }
    register_functions<Op, !kHidesResults<Op>>();
    if constexpr (kHidesResults<Op>) register_functions<Op, true>();
  }
};

}  // namespace thunderkittens
