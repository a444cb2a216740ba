// What most sources with torch include: g++ reads it once for all. It still makes the templates of
// these headers for each source, so what few need is not here. No source may rely on it: other
// compilers have none.
#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>
