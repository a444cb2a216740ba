// Matrix products: the seam. products_cublaslt.cpp has them from cuBLASLt, for a GPU;
// products_loops.cpp as plain loops, where the simulator runs the kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "memory.h"

namespace gpt2 {

using thunderkittens::dtype;

enum class epilogue {
  none,
  bias,  // + bias[n]
};

// c = op(a) · op(b), of row-major matrices: a is [m, k], or [k, m] where transposed, b [k, n] or
// [n, k], c [m, n]. Strides: elements between rows. Sums are float32: of bfloat16 as they are, of
// float32 rounded to TF32 by the tensor cores, and exact in the loops.
struct product {
  const char* name;  // in a profile
  int64_t m, n, k;
  bool transposed_a = false, transposed_b = false;
  int64_t a_stride, b_stride, c_stride;
  epilogue after = epilogue::none;
};

struct operands {
  const void *a, *b;
  void* c;
  const void* bias = nullptr;  // [n]
  bool accumulate = false;     // added to c: without an epilogue
};

class products {
 public:
  products(const device& d, dtype type);
  ~products();

  // How it is computed, once and for all; a number for `run`. Throws error where it cannot be.
  int plan(const product& p);
  const product& planned(int number) const;
  int64_t workspace_bytes() const;
  // Whether there may be several ways to compute one.
  bool have_choice() const;
  // Runs it in each of the ways that there are, and takes the fastest for good of those whose
  // result has the same bits as that of the first: so a choice by time changes no result. Waits.
  // What `accumulate` adds to is lost.
  void choose(int number, const operands& o, void* workspace, stream s);
  // Asynchronous; nothing is allocated.
  void run(int number, const operands& o, void* workspace, stream s) const;

 private:
  struct implementation;
  std::unique_ptr<implementation> own_;
};

}  // namespace gpt2
