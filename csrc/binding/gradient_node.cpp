#include "binding/gradient_node.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

namespace thunderkittens {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

namespace {

bool any_defined(c10::ArrayRef<Tensor> list) {
  for (const Tensor& t : list) {
    if (t.defined()) return true;
  }
  return false;
}

class undifferentiable_node final : public torch::autograd::Node {
 public:
  undifferentiable_node(const char* op, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), op_(op) {}
  std::string name() const override {
    return c10::str("thunderkittens::", op_, "_double_backward");
  }

 protected:
  variable_list apply(variable_list&&) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op_, ": double backward is not supported");
  }

 private:
  const char* op_;
};

}  // namespace

std::array<bool, kMaxInputs> gradient_node::needs() const {
  std::array<bool, kMaxInputs> list{};
  for (size_t i = 0; i < num_outputs(); ++i) list[i] = task_should_compute_output(i);
  return list;
}

variable_list gradient_node::apply(variable_list&& gradients) {
  const std::lock_guard lock(mutex_);
  if (!any_defined(gradients)) return variable_list(num_outputs());
  c10::SmallVector<Tensor, 8> tensors;
  for (size_t i = 0; i < count_; ++i) tensors.push_back(saved_[i].unpack(shared_from_this()));
  const backend_scope scope(backend_);
  return differentiate({gradients, tensors, needs()});
}

void gradient_node::release_variables() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < count_; ++i) saved_[i].reset_data();
}

// ---- Compiled autograd --------------------------------------------------------------------------

void gradient_node::compiled_args(torch::autograd::CompiledNodeArgs& args) const {
  args.collect(name());
  args.collect(static_cast<int8_t>(backend_));
  for (size_t i = 0; i < count_; ++i) args.collect(saved_[i], /*is_output=*/true);
  // Nested: the compiled code is for these numbers alone.
  for (const c10::IValue& number : numbers()) args.collect(number, /*nested=*/true);
  for (const bool needed : needs()) args.collect(needed);
}

// The backward goes into the compiled graph as one function that is not looked into.
variable_list gradient_node::apply_with_saved(const variable_list& gradients,
                                              torch::autograd::SwapSavedVariables& swap) {
  using namespace torch::dynamo::autograd;
  for (size_t i = 0; i < count_; ++i) swap.before(saved_[i]);
  variable_list tensors;
  for (size_t i = 0; i < count_; ++i) tensors.push_back(saved_[i].unpack(shared_from_this()));
  PackedArgs packed;
  packed.pack(tensors);
  const std::vector<c10::IValue> arguments = std::move(packed).vec();
  std::vector<at::TypePtr> types;
  for (const c10::IValue& argument : arguments) {
    types.push_back(argument.isTensor() ? at::TypePtr(at::TensorType::get()) : argument.type());
  }
  auto run = [backward = detached(), needs = needs(), chosen = backend_, outputs = num_outputs()](
                 const variable_list& given, const std::vector<c10::IValue>& list) {
    if (!any_defined(given)) return variable_list(outputs);
    const auto saved = PackedArgs(list).unpack<variable_list>();
    const backend_scope scope(chosen);
    return backward({given, saved, needs});
  };
  const auto& compiler = getPyCompilerInterface();
  const std::string function =
      compiler->bind_function(swap.get_py_compiler(), name(), std::move(run), types,
                              /*is_custom_function=*/true, /*is_traceable=*/false);
  variable_list results = compiler->call_function(
      swap.get_py_compiler(), "apply_functional", function, gradients, arguments,
      IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
          get_input_metadata(next_edges())));
  for (size_t i = 0; i < count_; ++i) swap.after(saved_[i]);
  return results;
}

// ---- Making nodes -------------------------------------------------------------------------------

std::shared_ptr<torch::autograd::Node> make_undifferentiable_node(
    const char* name, torch::autograd::edge_list&& edges) {
  return {new undifferentiable_node(name, std::move(edges)), torch::autograd::deleteNode};
}

}  // namespace thunderkittens
