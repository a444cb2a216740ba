#include "log.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "speed.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {
namespace {

constexpr const char* kHeader =
    "step,loss,norm,lr,ms,tokens_per_second,loss_z,norm_z,skipped,"
    "share_of_peak,eval_loss,hellaswag\n";

double tokens_per_second(const step_report& r) {
  return double(r.tokens) / (r.milliseconds / 1000);
}

std::string number_or_nothing(double x) {
  char text[32] = "";
  if (!std::isnan(x)) std::snprintf(text, sizeof(text), "%.9g", x);
  return text;
}

}  // namespace

run_log::run_log(const std::string& out, int64_t step, bool again) {
  std::error_code failed;
  std::filesystem::create_directories(out, failed);
  const std::string path = out + "/log.csv";
  std::string kept = kHeader, line;
  std::ifstream before(path);
  while (step > 0 && std::getline(before, line)) {
    const int64_t number = std::strtoll(line.c_str(), nullptr, 10);
    const bool is_evaluation = line.find(",,") == line.find(',');
    if (again && number == step && is_evaluation) continue;
    if (number >= 1 && number <= step) kept += line + "\n";
  }
  before.close();
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr || std::fputs(kept.c_str(), file_) < 0) {
    throw thunderkittens::error(path + ": cannot be written: " + std::strerror(errno));
  }
  flush();
}

run_log::~run_log() {
  if (file_ != nullptr) std::fclose(file_);
}

void run_log::add(const step_report& r) {
  std::fprintf(file_, "%lld,%.9g,%.9g,%.9g,%.3f,%.1f,%s,%s,%d,%s,,\n",
               static_cast<long long>(r.step), r.loss, r.norm, r.rate, r.milliseconds,
               tokens_per_second(r), number_or_nothing(r.loss_z).c_str(),
               number_or_nothing(r.norm_z).c_str(), r.skipped,
               number_or_nothing(r.share_of_peak).c_str());
}

void run_log::add_evaluation(int64_t step, double loss, double answered) {
  std::fprintf(file_, "%lld,,,,,,,,,,%s,%s\n", static_cast<long long>(step),
               number_or_nothing(loss).c_str(), number_or_nothing(answered).c_str());
}

void print(const step_report& r) {
  char share[32] = "–";
  if (!std::isnan(r.share_of_peak)) {
    std::snprintf(share, sizeof(share), "%.1f %%", 100 * r.share_of_peak);
  }
  std::printf(
      "step %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %.1f ms  %.0f tokens/s  %s of peak  "
      "%s left%s\n",
      static_cast<long long>(r.step), static_cast<long long>(r.steps), r.loss, r.norm, r.rate,
      r.milliseconds, tokens_per_second(r), share, shown_time(r.seconds_left).c_str(),
      r.skipped ? "  skipped" : "");
  std::fflush(stdout);
}

}  // namespace gpt2
