#include "binding/vmap.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace thunderkittens {
namespace {

using torch::jit::Stack;

level_reader read_level = nullptr;

// Where the mapped dimension of a tensor goes: in front of its rows, into the batch, or nowhere.
enum class place : uint8_t { rows, batch, none };

place place_of(std::string_view shape) {
  const std::string_view first = shape.substr(0, shape.find(','));
  return first == "*" ? place::rows : first == "B" ? place::batch : place::none;
}

place place_of_result(const mapped_call& call, size_t i) {
  return place_of(shape_of_result(call.op, i));
}

// The tensors of a call, without the level that is left.
struct unmapped {
  struct tensor {
    size_t argument;
    Tensor t;
    std::optional<int64_t> dim;  // the mapped one
  };
  std::vector<tensor> tensors;
  SymInt size = -1;  // of the mapped dimension; -1: no tensor is mapped

  unmapped(const mapped_call& call, int64_t level) {
    for (size_t i = 0; i < call.values.size(); ++i) {
      if (call.values[i].tensor == nullptr) continue;
      const Tensor& given = *call.values[i].tensor;
      const auto* const mapped = at::functorch::maybeGetBatchedImpl(given);
      if (mapped != nullptr && mapped->level() == level) {
        size = mapped->value().sym_size(mapped->bdim());
        tensors.push_back({i, mapped->value(), mapped->bdim()});
      } else {
        tensors.push_back({i, given, std::nullopt});
      }
    }
  }
};

std::vector<Tensor> run(const mapped_call& call, Stack stack) {
  call.handle.callBoxed(stack);
  std::vector<Tensor> results;
  for (c10::IValue& v : stack) results.push_back(std::move(v).toTensor());
  return results;
}

bool is_one_call(const mapped_call& call, const unmapped& given) {
  if (!call.by_row || call.written.count > 0) return false;
  for (const auto& [i, t, dim] : given.tensors) {
    if (dim && place_of(call.op.arguments[i].shape.text) == place::none) return false;
  }
  for (size_t i = 0; i < call.op.results.size(); ++i) {
    if (is_wanted(call.op, call.values, i) && place_of_result(call, i) == place::none) return false;
  }
  return true;
}

// ---- All at once --------------------------------------------------------------------------------

std::vector<Tensor> map_at_once(const mapped_call& call, const unmapped& given, int64_t level) {
  Stack stack = call.stack;
  SymInt batch = 1;
  for (const auto& [i, t, dim] : given.tensors) {
    const place to = place_of(call.op.arguments[i].shape.text);
    if (to == place::none) {
      stack[i] = t;
      continue;
    }
    Tensor mapped = t;
    if (dim) {
      mapped = t.movedim(*dim, 0);
    } else {
      c10::SymDimVector sizes(t.sym_sizes());
      sizes.insert(sizes.begin(), given.size);
      mapped = t.expand_symint(sizes);
    }
    if (to == place::batch) {
      batch = mapped.sym_size(1);
      mapped = mapped.flatten(0, 1);
    }
    stack[i] = std::move(mapped);
  }
  std::vector<Tensor> results = run(call, std::move(stack));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_wanted(call.op, call.values, i)) continue;
    if (place_of_result(call, i) == place::batch) {
      results[i] = results[i].unflatten_symint(0, {given.size, batch});
    }
    results[i] = at::functorch::makeBatched(std::move(results[i]), 0, level);
  }
  return results;
}

// ---- One after the other ------------------------------------------------------------------------

// The call at one place of the mapped dimension.
std::vector<Tensor> call_at(const mapped_call& call, const unmapped& given, int64_t index) {
  Stack stack = call.stack;
  for (const auto& [i, t, dim] : given.tensors) stack[i] = dim ? t.select(*dim, index) : t;
  return run(call, std::move(stack));
}

// Results for no place at all: what one place's would be, of zeros.
std::vector<Tensor> call_at_none(const mapped_call& call, const unmapped& given) {
  Stack stack = call.stack;
  for (const auto& [i, t, dim] : given.tensors) {
    stack[i] = dim ? at::zeros_symint(call.values[i].tensor->sym_sizes(), t.options()) : t;
  }
  std::vector<Tensor> results = run(call, std::move(stack));
  for (size_t i = 0; i < results.size(); ++i) {
    if (is_wanted(call.op, call.values, i)) results[i] = results[i].unsqueeze(0).slice(0, 0, 0);
  }
  return results;
}

std::vector<Tensor> map_in_turn(const mapped_call& call, const unmapped& given) {
  const int64_t size = given.size.guard_int(__FILE__, __LINE__);
  if (size == 0) return call_at_none(call, given);
  std::vector<std::vector<Tensor>> lists;
  for (int64_t index = 0; index < size; ++index) {
    std::vector<Tensor> results = call_at(call, given, index);
    lists.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) lists[i].push_back(std::move(results[i]));
  }
  std::vector<Tensor> results;
  for (size_t i = 0; i < lists.size(); ++i) {
    const bool wanted = is_wanted(call.op, call.values, i);
    results.push_back(wanted ? at::stack(lists[i]) : std::move(lists[i][0]));
  }
  return results;
}

void check_written(const mapped_call& call, const unmapped& given) {
  for (const auto& [i, t, dim] : given.tensors) {
    TORCH_CHECK(!call.written.has(i) || dim, call.op.op, ": ", call.op.arguments[i].name,
                " must be mapped (in_dims of vmap) where it is written in place and another "
                "argument is mapped, got one for all");
  }
}

}  // namespace

void set_level_reader(level_reader reader) { read_level = reader; }

std::vector<Tensor> call_mapped(const mapped_call& call) {
  TORCH_CHECK(read_level != nullptr, call.op.op, ": vmap needs the Python module thunderkittens");
  const c10::impl::ExcludeDispatchKeyGuard leave(c10::DispatchKey::FuncTorchBatched);
  const int64_t level = read_level();
  const unmapped given(call, level);
  if (given.size.maybe_as_int() == -1) return run(call, call.stack);
  check_written(call, given);
  if (is_one_call(call, given)) return map_at_once(call, given, level);
  std::vector<Tensor> results = map_in_turn(call, given);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_wanted(call.op, call.values, i)) continue;
    results[i] = at::functorch::makeBatched(std::move(results[i]), 0, level);
  }
  return results;
}

}  // namespace thunderkittens
