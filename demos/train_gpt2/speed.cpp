#include "speed.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace gpt2 {
namespace {

struct chip {
  const char* name;
  double bfloat16, tf32;  // TFLOP/s: half of what the data sheets say, which is of sparse factors
  double memory;          // TB/s
};

// The longer name first. (What has MIG in its name is a part of a GPU, and unknown.)
constexpr chip kChips[] = {
    {"H100 PCIe", 756.5, 378, 2.0}, {"H100 NVL", 835.5, 417.5, 3.9},
    {"H100", 989.5, 494.5, 3.35},   {"H800 PCIe", 756.5, 378, 2.0},
    {"H800", 989.5, 494.5, 3.35},   {"H200 NVL", 835.5, 417.5, 4.8},
    {"H200", 989.5, 494.5, 4.8},    {"GH200", 989.5, 494.5, 4.0},
    {"H20", 148, 74, 4.0},
};

// Zeros: unknown.
chip chip_of(const std::string& name) {
  const std::string words = " " + name + " ";
  if (words.find(" MIG ") != std::string::npos) return {};
  for (const chip& c : kChips) {
    if (words.find(" " + std::string(c.name) + " ") != std::string::npos) return c;
  }
  return {};
}

}  // namespace

double flops_per_token(const config& c, int64_t length) {
  const auto width = static_cast<double>(c.width), layers = static_cast<double>(c.layers);
  const double mlp = double(c.mlp_parts() + 1) * double(c.mlp_width());
  const double block = width * (double(c.qkv_width()) + width + mlp);
  const double weights = double(c.vocabulary) * width + layers * block;
  return 6 * weights + 6 * layers * double(length) * width;
}

double peak_flops(const std::string& name, dtype type) {
  const chip c = chip_of(name);
  return (type == dtype::float32 ? c.tf32 : c.bfloat16) * 1e12;
}

double peak_bytes(const std::string& name) { return chip_of(name).memory * 1e12; }

std::string shown_time(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long minutes = whole / 60, hours = minutes / 60;
  char text[48];
  if (whole < 60) {
    std::snprintf(text, sizeof(text), "%lld s", whole);
  } else if (hours == 0) {
    std::snprintf(text, sizeof(text), "%lld min", minutes);
  } else if (hours < 24) {
    std::snprintf(text, sizeof(text), "%lld h %02lld min", hours, minutes % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lld d %02lld h", hours / 24, hours % 24);
  }
  return text;
}

void speedometer::add(double milliseconds) {
  if (only_first_) sum_ = static_cast<double>(count_ = 0);
  only_first_ = count_ == 0 && !only_first_;
  sum_ += milliseconds;
  ++count_;
}

double speedometer::share_of_peak(int64_t tokens, double milliseconds) const {
  if (peak_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return flops_ * double(tokens) / (milliseconds / 1000) / (peak_ * count_of_);
}

double speedometer::seconds_left(int64_t steps) const {
  return count_ == 0 ? 0 : double(steps) * sum_ / double(count_) / 1000;
}

std::string speedometer::description() const {
  char text[160];
  if (peak_ > 0) {
    std::snprintf(text, sizeof(text), "%.4g MFLOP a token; the peak of %s is %.4g TFLOP/s\n",
                  flops_ / 1e6, chip_.c_str(), peak_ / 1e12);
  } else {
    std::snprintf(text, sizeof(text), "%.4g MFLOP a token; the peak%s%s is unknown\n", flops_ / 1e6,
                  chip_.empty() ? "" : " of ", chip_.c_str());
  }
  return text;
}

}  // namespace gpt2
