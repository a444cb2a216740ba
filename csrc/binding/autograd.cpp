#include "binding/autograd.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <unordered_set>
#include <vector>

namespace thunderkittens {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// What the running node's hooks have switched off in this thread. A node that raises leaves it to
// the engine, which restores its threads' state after each of its tasks.
thread_local c10::DispatchKeySet switched_off;

struct switch_off final : torch::autograd::FunctionPreHook {
  variable_list operator()(const variable_list& gradients) override {
    c10::impl::LocalDispatchKeySet state = c10::impl::tls_local_dispatch_key_set();
    switched_off = c10::autocast_dispatch_keyset - state.excluded_;
    state.excluded_ = state.excluded_ | switched_off;
    c10::impl::_force_tls_local_dispatch_key_set(state);
    return gradients;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
};

struct switch_on final : torch::autograd::FunctionPostHook {
  variable_list operator()(const variable_list& results, const variable_list&) override {
    c10::impl::LocalDispatchKeySet state = c10::impl::tls_local_dispatch_key_set();
    state.excluded_ = state.excluded_ - switched_off;
    c10::impl::_force_tls_local_dispatch_key_set(state);
    return results;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
};

}  // namespace

void differentiate_without_autocast(const variable_list& results, const variable_list& inputs) {
  std::unordered_set<Node*> known;  // the inputs' own nodes, and those that have been found
  for (const at::Tensor& t : inputs) {
    if (t.defined() && t.requires_grad()) {
      known.insert(torch::autograd::impl::gradient_edge(t).function.get());
    }
  }
  std::vector<Node*> found;
  const auto find = [&](Node* node) {
    if (node != nullptr && known.insert(node).second) found.push_back(node);
  };
  for (const at::Tensor& t : results) {
    if (t.defined()) find(t.grad_fn().get());
  }
  while (!found.empty()) {
    Node* const node = found.back();
    found.pop_back();
    node->add_pre_hook(std::make_unique<switch_off>());
    node->add_post_hook(std::make_unique<switch_on>());
    for (const torch::autograd::Edge& edge : node->next_edges()) find(edge.function.get());
  }
}

}  // namespace thunderkittens
