#include "profile.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace gpt2 {
namespace {

constexpr const char* kBetweenSteps = "between steps";

// The time at the peak.
double least_milliseconds(const part& p, double peak_flops, double peak_bytes) {
  const double peak = p.flops > 0 ? peak_flops : peak_bytes;
  return peak > 0 ? 1000 * (p.flops > 0 ? p.flops : p.bytes) / peak : 0;
}

}  // namespace

void profile::begin(const part& p) {
  watch_.take();
  parts_.push_back(p);
}

void profile::end_step() {
  begin({kBetweenSteps, 0, 0});
  ++steps_;
}

std::vector<profile::row> profile::rows() const {
  const std::vector<double> times = watch_.milliseconds();
  std::vector<row> found;
  for (size_t i = 0; i < times.size(); ++i) {
    const part& p = parts_[i];
    auto same = std::ranges::find_if(
        found, [&](const row& r) { return std::string_view(r.what.name) == p.name; });
    if (same == found.end()) same = found.insert(same, row{{p.name, 0, 0}, 0, 0});
    same->what.flops += p.flops;
    same->what.bytes += p.bytes;
    same->launches += 1;
    same->milliseconds += times[i];
  }
  for (row& r : found) {
    for (double* const x : {&r.what.flops, &r.what.bytes, &r.launches, &r.milliseconds}) {
      *x /= double(steps_);
    }
  }
  std::ranges::stable_sort(found, std::greater{}, &row::milliseconds);
  return found;
}

std::string profile::table(double peak_flops, double peak_bytes) const {
  const std::vector<row> all = rows();
  double total = 0;
  for (const row& r : all) total += r.milliseconds;
  char line[160];
  std::snprintf(line, sizeof(line), "%-28s %8s %9s %7s %17s %9s\n", "part of a step", "launches",
                "ms", "share", "rate", "of peak");
  std::string text = line;
  for (const row& r : all) {
    char rate[32] = "", share[32] = "";
    if (r.what.flops > 0) {
      std::snprintf(rate, sizeof(rate), "%.1f TFLOP/s", r.what.flops / r.milliseconds / 1e9);
    } else if (r.what.bytes > 0) {
      std::snprintf(rate, sizeof(rate), "%.2f TB/s", r.what.bytes / r.milliseconds / 1e9);
    }
    const double least = least_milliseconds(r.what, peak_flops, peak_bytes);
    if (least > 0) std::snprintf(share, sizeof(share), "%.1f %%", 100 * least / r.milliseconds);
    std::snprintf(line, sizeof(line), "%-28s %8.4g %9.3f %5.1f %% %17s %9s\n", r.what.name,
                  r.launches, r.milliseconds, 100 * r.milliseconds / total, rate, share);
    text += line;
  }
  std::snprintf(line, sizeof(line), "%-28s %8s %9.3f\n", "all", "", total);
  return text + line;
}

void profile::write(const std::string& path, double peak_flops, double peak_bytes) const {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw error(path + ": cannot be written: " + std::strerror(errno));
  std::fputs("part,launches,ms,flops,bytes,ms_at_peak\n", file);
  for (const row& r : rows()) {
    std::fprintf(file, "%s,%.9g,%.6f,%.9g,%.9g,%.6f\n", r.what.name, r.launches, r.milliseconds,
                 r.what.flops, r.what.bytes, least_milliseconds(r.what, peak_flops, peak_bytes));
  }
  if (std::fclose(file) != 0) throw error(path + ": cannot be written: " + std::strerror(errno));
}

}  // namespace gpt2
