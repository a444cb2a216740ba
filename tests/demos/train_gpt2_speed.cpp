// What the trainer says of speed, for tests/demos/test_train_gpt2_log.py: its arguments are words.
//
//   peak NAME     → the peaks of bfloat16 and of float32, in TFLOP/s
//   time SECONDS  → as it is shown
//   left STEPS MS…  → the seconds that the steps will take, after some that took MS
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "speed.h"

int main(int count, char** arguments) {
  using namespace gpt2;
  if (count < 3) return 2;
  const std::string_view what = arguments[1];
  if (what == "peak") {
    std::printf("%g %g\n", peak_flops(arguments[2], dtype::bfloat16) / 1e12,
                peak_flops(arguments[2], dtype::float32) / 1e12);
  } else if (what == "time") {
    std::puts(shown_time(std::strtod(arguments[2], nullptr)).c_str());
  } else {
    speedometer speed(1e9, "NVIDIA H200", dtype::bfloat16);
    for (int i = 3; i < count; ++i) speed.add(std::strtod(arguments[i], nullptr));
    std::printf("%g %g\n", speed.seconds_left(std::strtoll(arguments[2], nullptr, 10)),
                speed.share_of_peak(1000, 10));
  }
  return 0;
}
