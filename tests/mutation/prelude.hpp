// What every kernel of the cases includes and no mutant changes: compiled once.
#pragma once

#include <kittens.cuh>

#include <algorithm>
#include <cfloat>
#include <limits>
#include <numbers>
#include <string>

#include "kittens/host/dtype.h"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"
