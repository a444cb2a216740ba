// types/elements.cuh: from what the host knows of tensors to element types and access widths.
#include <cstdint>
#include <type_traits>

#include "vectors.h"

using namespace kittens;
using host::dtype;

namespace {

TEST(an_address_or_a_distance_off_16_bytes_allows_no_runs) {
  alignas(16) char bytes[32];
  CHECK(in_runs_of_16_bytes({bytes, bytes + 16, nullptr}, {0, 16, -48}));
  CHECK(!in_runs_of_16_bytes({bytes, bytes + 8}, {16}));
  CHECK(!in_runs_of_16_bytes({bytes}, {16, 4}));
}

template <class T>
void check_runs(dtype type) {
  for (const bool aligned : {false, true}) {
    int calls = 0;
    with_elements(type, aligned, [&]<class U, int Run>() {
      ++calls;
      CHECK((std::is_same_v<T, U>));
      CHECK_EQUAL(Run, aligned ? 16 / int(sizeof(T)) : 1);
    });
    CHECK_EQUAL(calls, 1);
  }
}
TEST(float_comes_in_runs_of_4) { check_runs<float>(dtype::float32); }
TEST(half_comes_in_runs_of_8) { check_runs<half>(dtype::float16); }
TEST(bf16_comes_in_runs_of_8) { check_runs<bf16>(dtype::bfloat16); }

}  // namespace
