// host/tensor_map.cuh: what is refused, with which sentence.
#include "harness.h"
#include "kittens/host/tensor_map.cuh"

using namespace kittens;
using host::tensor_map_request;
using testing::buffer;
using testing::error_of;

namespace {

tensor_map_request good(const void* data) {
  return {.data = data,
          .kind = host::dtype::bfloat16,
          .rank = 3,
          .extent = {64, 5, 3},
          .stride_bytes = {128, 640},
          .box = {64, 16, 1},
          .swizzle_bytes = 128};
}

template <class Change>
std::string refusal(Change&& change) {
  const buffer<uint8_t> data(5 * 3 * 128);
  tensor_map_request r = good(data.data());
  change(r);
  return error_of([&] { host::encode_tensor_map(r); });
}

TEST(what_the_hardware_takes) {
  CHECK_EQUAL(refusal([](tensor_map_request&) {}), "");
  CHECK_EQUAL(refusal([](tensor_map_request& r) { r.rank = 1; }), "");
  CHECK_EQUAL(refusal([](tensor_map_request& r) { r.stride_bytes[1] = 0; }), "");
  CHECK_EQUAL(refusal([](tensor_map_request& r) { r.box[1] = 256; }), "");
  CHECK_EQUAL(refusal([](tensor_map_request& r) { r.box[0] = 8; }), "");
  CHECK_EQUAL(refusal([](tensor_map_request& r) { r.extent[1] = int64_t{1} << 32; }), "");
  CHECK_EQUAL(refusal([](tensor_map_request& r) {
                r.extent[1] = r.extent[2] = 1;  // of which any stride will do
                r.stride_bytes[0] = 3;
                r.stride_bytes[1] = -1;
              }),
              "");
  for (const int swizzle : {0, 32, 64, 128}) {
    CHECK_EQUAL(refusal([&](tensor_map_request& r) {
                  r.swizzle_bytes = swizzle;
                  r.box[0] = 16;
                }),
                "");
  }
}

TEST(what_it_refuses) {
  const auto check = [](const char* sentence, auto&& change) {
    CHECK_EQUAL(refusal(change), std::string("tensor map: ") + sentence);
  };
  using request = tensor_map_request&;
  check("rank must be 1 to 5, got 0", [](request r) { r.rank = 0; });
  check("rank must be 1 to 5, got 6", [](request r) { r.rank = 6; });
  check("swizzle_bytes must be 0, 32, 64 or 128, got 16", [](request r) { r.swizzle_bytes = 16; });
  check("extent[1] must be 1 to 4294967296, got 0", [](request r) { r.extent[1] = 0; });
  check("extent[0] must be 1 to 4294967296, got 4294967297",
        [](request r) { r.extent[0] = (int64_t{1} << 32) + 1; });
  check("box[0] must be 1 to 256, got 512", [](request r) { r.box[0] = 512; });
  check("box[2] must be 1 to 256, got 0", [](request r) { r.box[2] = 0; });
  check("stride_bytes[0] must be a multiple of 16 below 2^40, got 130",
        [](request r) { r.stride_bytes[0] = 130; });
  check("stride_bytes[1] must be a multiple of 16 below 2^40, got 1099511627776",
        [](request r) { r.stride_bytes[1] = int64_t{1} << 40; });
  check("stride_bytes[1] must be a multiple of 16 below 2^40, got -640",
        [](request r) { r.stride_bytes[1] = -640; });
  check("a row of the box must be a multiple of 16 bytes, got 24",
        [](request r) { r.box[0] = 12; });
  check("a row of the box must be at most swizzle_bytes (64), got 128",
        [](request r) { r.swizzle_bytes = 64; });
  check("a box must be at most 232448 bytes, got 1048576", [](request r) {
    r.box[1] = 256;
    r.box[2] = 32;
  });
  check("data must not be null", [](request r) { r.data = nullptr; });
  check("data must be aligned to 16 bytes, got an address that is 2 past it",
        [](request r) { r.data = static_cast<const uint8_t*>(r.data) + 2; });
}

TEST(names_of_types) {
  CHECK(host::dtype_of<float> == host::dtype::float32);
  CHECK(host::dtype_of<__half> == host::dtype::float16);
  CHECK(host::dtype_of<__nv_bfloat16> == host::dtype::bfloat16);
}

}  // namespace
