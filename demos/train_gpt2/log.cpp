#include "log.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "thunderkittens/kernels/common.h"

namespace gpt2 {
namespace {

constexpr const char* kHeader = "step,loss,norm,lr,ms,tokens_per_second,eval_loss\n";

double tokens_per_second(const step_report& r) {
  return double(r.tokens) / (r.milliseconds / 1000);
}

}  // namespace

run_log::run_log(const std::string& out, int64_t step) {
  std::error_code failed;
  std::filesystem::create_directories(out, failed);
  const std::string path = out + "/log.csv";
  std::string kept = kHeader, line;
  std::ifstream before(path);
  while (step > 0 && std::getline(before, line)) {
    const int64_t number = std::strtoll(line.c_str(), nullptr, 10);
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
  std::fprintf(file_, "%lld,%.9g,%.9g,%.9g,%.3f,%.1f,\n", static_cast<long long>(r.step), r.loss,
               r.norm, r.rate, r.milliseconds, tokens_per_second(r));
}

void run_log::add_evaluation(int64_t step, double loss) {
  std::fprintf(file_, "%lld,,,,,,%.9g\n", static_cast<long long>(step), loss);
}

void print(const step_report& r) {
  std::printf("step %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %.1f ms  %.0f tokens/s\n",
              static_cast<long long>(r.step), static_cast<long long>(r.steps), r.loss, r.norm,
              r.rate, r.milliseconds, tokens_per_second(r));
  std::fflush(stdout);
}

}  // namespace gpt2
