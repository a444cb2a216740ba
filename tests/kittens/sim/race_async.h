// What the tests of race mode's asynchronous side share: shared memory by offset, and what is
// reported under every policy.
#pragma once

#include "kittens/arch/arch.cuh"
#include "planted.h"

namespace kittens::testing {

inline constexpr const char* kPolicies[] = {"eager,race", "lazy,race", "random:1,race",
                                            "random:7,race"};
inline constexpr int kBytes = 1024;  // of a copy

KITTENS_DEVICE arch::mbarrier* barrier(int offset) {
  return reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared() + offset);
}
KITTENS_DEVICE int* words(int offset = 0) {
  return reinterpret_cast<int*>(arch::dynamic_shared() + offset);
}

// Each policy's report, which must contain all the parts; no parts: nothing may be reported.
template <class... P>
void expect_report(std::initializer_list<const char*> parts, void (*kernel)(P...),
                   const host::launch_config& config, const std::type_identity_t<P>&... arguments) {
  for (const char* policy : kPolicies) {
    const with_options chosen(policy);
    const std::string report = report_of(kernel, config, arguments...);
    if (parts.size() == 0) CHECK_EQUAL(report, "");
    for (const char* part : parts) CHECK_CONTAINS(report, part);
  }
}

inline host::launch_config block_of(int threads) {
  return {.grid = {1}, .block = {threads}, .shared_bytes = 16384};
}

}  // namespace kittens::testing
