// What the programs of the tile layer include, or most of them: compiled once.
#pragma once

#include <kittens.cuh>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "harness.h"
#include "kittens/host/tensor_map.cuh"
