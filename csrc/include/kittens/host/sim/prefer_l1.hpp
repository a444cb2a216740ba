// host/prefer_l1.cuh in the simulator, which has no cache.
#pragma once

namespace kittens::host {

template <auto Kernel>
void prefer_l1() {}

}  // namespace kittens::host
