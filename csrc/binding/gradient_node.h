// The node that a recorded call leaves in autograd's graph. (torch::autograd::Function would do,
// but costs one to two microseconds a call: a map of IValues, lists of outputs, std::function.)
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "binding/backend.h"

namespace thunderkittens {

inline constexpr size_t kMaxInputs = 9;  // of a call, those that may have a gradient

// What a backward is given: at least one of `gradients` is defined.
struct backward_call {
  c10::ArrayRef<at::Tensor> gradients;   // of the outputs that carry one
  c10::ArrayRef<at::Tensor> saved;       // in the order of `save`; undefined where it was
  std::array<bool, kMaxInputs> needs{};  // which of the inputs' gradients are wanted
};

// All but what a backward computes.
class gradient_node : public torch::autograd::Node {
 public:
  // Saves the next tensor, which may be undefined. `is_output`: the node is its grad_fn, or will
  // be.
  void save(const at::Tensor& t, bool is_output = false) {
    saved_[count_++] = torch::autograd::SavedVariable(t, is_output);
  }
  void save(const std::optional<at::Tensor>& t) { save(t ? *t : at::Tensor()); }

  void release_variables() override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& gradients,
      torch::autograd::SwapSavedVariables& swap) override;

 protected:
  explicit gradient_node(torch::autograd::SavedVariable* saved) : saved_(saved) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  // The gradients of the inputs; undefined where they are not needed.
  using backward_function = std::function<torch::autograd::variable_list(const backward_call&)>;
  virtual torch::autograd::variable_list differentiate(const backward_call& call) const = 0;
  // The same without the node, for compiled autograd, and the numbers that it depends on.
  virtual backward_function detached() const = 0;
  virtual std::vector<c10::IValue> numbers() const = 0;

 private:
  std::array<bool, kMaxInputs> needs() const;

  torch::autograd::SavedVariable* saved_;  // the derived class's
  size_t count_ = 0;
  backend backend_ = current_backend();  // in force again in the backward, on another thread
};

// Rule, which the node keeps: what the backward computes. It has `kSaved`, how many tensors are
// saved, `name()`, `operator()(const backward_call&)`, and `numbers()`, a tuple of what else it
// holds.
template <class Rule>
class gradient_node_of final : public gradient_node {
 public:
  explicit gradient_node_of(Rule rule) : gradient_node(saved_.data()), rule_(std::move(rule)) {}
  std::string name() const override { return rule_.name(); }
  Rule& rule() { return rule_; }

 protected:
  torch::autograd::variable_list differentiate(const backward_call& call) const override {
    return rule_(call);
  }
  backward_function detached() const override { return rule_; }
  std::vector<c10::IValue> numbers() const override {
    return std::apply([](const auto&... n) { return std::vector<c10::IValue>{c10::IValue(n)...}; },
                      rule_.numbers());
  }

 private:
  std::array<torch::autograd::SavedVariable, Rule::kSaved> saved_;
  Rule rule_;
};

// To where the gradient of an input goes; invalid where it has none.
inline torch::autograd::Edge edge_of(const at::Tensor& t) {
  return t.defined() ? torch::autograd::impl::gradient_edge(t) : torch::autograd::Edge();
}
inline torch::autograd::Edge edge_of(const std::optional<at::Tensor>& t) {
  return t ? edge_of(*t) : torch::autograd::Edge();
}

// A node of a call with these inputs, not yet that of any output.
template <class Rule, class... Inputs>
std::shared_ptr<gradient_node_of<Rule>> make_node(Rule rule, const Inputs&... inputs) {
  std::shared_ptr<gradient_node_of<Rule>> node(new gradient_node_of<Rule>(std::move(rule)),
                                               torch::autograd::deleteNode);
  torch::autograd::edge_list edges;
  edges.reserve(sizeof...(inputs));
  (edges.push_back(edge_of(inputs)), ...);
  node->set_next_edges(std::move(edges));
  return node;
}

// A node that raises: of gradients of the op `name`, which are not differentiable themselves.
std::shared_ptr<torch::autograd::Node> make_undifferentiable_node(
    const char* name, torch::autograd::edge_list&& edges);

}  // namespace thunderkittens
