// Matrix products as plain loops: slow and exact, beside the simulator.
#include <vector>

#include "bfloat16.h"
#include "products.h"

namespace gpt2 {
namespace {

// An operand as [rows, columns], whichever way it is stored.
template <class T>
std::vector<float> gather(const void* data, int64_t rows, int64_t columns, int64_t stride,
                          bool transposed) {
  std::vector<float> values(rows * columns);
  const auto* from = static_cast<const T*>(data);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      values[r * columns + c] =
          static_cast<float>(from[transposed ? c * stride + r : r * stride + c]);
    }
  }
  return values;
}

template <class T>
void multiply(const product& p, const operands& o) {
  const std::vector<float> a = gather<T>(o.a, p.m, p.k, p.a_stride, p.transposed_a);
  const std::vector<float> b = gather<T>(o.b, p.k, p.n, p.b_stride, p.transposed_b);
  const auto* bias = static_cast<const T*>(o.bias);
  std::vector<float> row(p.n);
  for (int64_t i = 0; i < p.m; ++i) {
    row.assign(p.n, 0.0f);
    for (int64_t l = 0; l < p.k; ++l) {
      const float factor = a[i * p.k + l];
      const float* const other = &b[l * p.n];
      for (int64_t j = 0; j < p.n; ++j) row[j] += factor * other[j];
    }
    T* const c = static_cast<T*>(o.c) + i * p.c_stride;
    for (int64_t j = 0; j < p.n; ++j) {
      if (p.after == epilogue::bias) row[j] += static_cast<float>(bias[j]);
      if (o.accumulate) row[j] += static_cast<float>(c[j]);
      c[j] = static_cast<T>(row[j]);
    }
  }
}

}  // namespace

struct products::implementation {
  dtype type;
  std::vector<product> planned;
};

products::products(const device&, dtype type) : own_(new implementation{type, {}}) {}
products::~products() = default;

int products::plan(const product& p) {
  own_->planned.push_back(p);
  return static_cast<int>(own_->planned.size()) - 1;
}

const product& products::planned(int number) const { return own_->planned[number]; }

int64_t products::workspace_bytes() const { return 0; }

bool products::have_choice() const { return false; }

void products::choose(int number, const operands& o, void* workspace, stream s) {
  run(number, o, workspace, s);
}

void products::run(int number, const operands& o, void*, stream) const {
  const product& p = own_->planned[number];
  own_->type == dtype::float32 ? multiply<float>(p, o) : multiply<bfloat16>(p, o);
}

}  // namespace gpt2
