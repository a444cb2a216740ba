// kittens: tiles and vectors for GPU kernels. The one header a kernel includes.
#pragma once

#include "kittens/arch/arch.cuh"
#include "kittens/ops/load_store.cuh"
#include "kittens/ops/map.cuh"
#include "kittens/ops/reduce.cuh"
#include "kittens/types/dtype.cuh"
#include "kittens/types/global_tensor.cuh"
#include "kittens/types/lane_run.cuh"
#include "kittens/types/register_vector.cuh"
#include "kittens/types/shared_vector.cuh"
