// Trains a GPT-2, or a model of Llama's shape, without Python and PyTorch. README.md says how;
// --help lists the options.
//
// The host is a step ahead: it launches a step, then waits for the numbers of the one before, which
// by then is done or all but done. So the device never waits for the host, and within the loop
// nothing waits for all of the device's work.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "checkpoint.h"
#include "data.h"
#include "examination.h"
#include "kittens/host/library.h"
#include "log.h"
#include "nccl.h"
#include "options.h"
#include "ranks.h"
#include "speed.h"

namespace gpt2 {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// The model's sizes: as in the checkpoint that the run begins or goes on with, else the options'.
config sizes_of(const options& o) {
  if (!o.resume && has_checkpoints(o.out)) {
    throw error(o.out + ": holds a run; --resume it, or choose another --out");
  }
  const std::string from = o.resume ? newest_checkpoint(o.out) : o.init;
  const config c = from.empty() ? o.sizes : read_config(from);
  if (!from.empty()) check_model(o, c);
  if (const std::string why = why_not(c); !why.empty()) throw error(why);
  if (o.length > c.positions) {
    throw error("--length must be at most the model's positions, " + std::to_string(c.positions) +
                ", got " + std::to_string(o.length));
  }
  return c;
}

class run {
 public:
  run(const options& o, ranks& all)
      : options_(o),
        ranks_(all),
        config_(sizes_of(o)),
        data_(o.train, o.length, config_.vocabulary),
        order_(data_.sequences(), static_cast<uint64_t>(o.seed)),
        sorter_(config_.vocabulary),
        weights_(std::async(std::launch::async, [this] { return first_weights(); })),
        device_(device_of(o.device + o.rank)),
        queue_(device_),
        nccl_(all.count() > 1 ? std::make_unique<nccl>(o.nccl, all) : nullptr),
        model_(config_, o.shape(), o.element(), o.update, device_, queue_, nccl_.get()),
        examination_(o, config_, device_, model_, queue_, data_.first_token()),
        staging_(device_, place::host),
        profile_(queue_),
        speed_(flops_per_token(config_, o.length), name_of(device_), o.element(), all.count()) {
    staging_.allocate([&] {
      for (int*& tokens : tokens_) tokens = staging_.take<int>(step_ints());
      for (float*& rate : rates_) rate = staging_.take<float>(1);
      for (float*& numbers : numbers_) numbers = staging_.take<float>(layout_.floats());
    });
    done_.facts = {{"dtype", o.type},
                   {"length", std::to_string(o.length)},
                   {"outlier-window", std::to_string(o.update.outliers.window)},
                   {"rounding", o.update.stochastic_rounding ? "stochastic" : "to the nearest"},
                   {"seed", std::to_string(o.seed)},
                   {"total-batch", std::to_string(o.total_batch)},
                   {"tokens", std::to_string(data_.tokens())}};
    if (o.resume) {
      load_checkpoint(newest_checkpoint(o.out), o.steps, done_, model_, queue_);
    } else {
      model_.set_weights(weights_.get());
    }
    if (done_.step < o.steps) {
      upload_tokens();
      model_.choose_products();
    }
    if (o.graph) graph_.emplace(queue_, [this] { compute_step(); });
    const bool again = done_.step == o.steps && examination_.is_due(done_.step, true);
    saved_ = o.resume ? done_.step : 0;
    if (!all.is_first()) return;
    log_.emplace(o.out, done_.step, again);
    describe();
  }

  void go(clock::time_point start) {
    last_report_ = clock::now();
    reported_ = done_.step;
    const int64_t first = done_.step;
    counters in_loop;
    while (done_.step < options_.steps && !ends()) {
      const counters before = count();
      launch_step();
      if (done_.step > reported_ + 1) report();
      if (std::exchange(is_first_, false)) {
        report();
        std::printf("%.2f s from the start to the end of the first step\n",
                    milliseconds(clock::now() - start) / 1000);
      }
      in_loop.allocations += count().allocations - before.allocations;
      in_loop.synchronisations += count().synchronisations - before.synchronisations;
      const bool examines = done_.step < options_.steps && examination_.is_due(done_.step, false);
      const bool saves = done_.step % options_.save_every == 0;
      if (!examines && !saves) continue;
      report();
      if (examines) examine(false);
      if (saves) save();
      last_report_ = clock::now();
    }
    report();
    const bool whole = done_.step == options_.steps;
    if (whole && examination_.is_due(done_.step, true)) examine(true);
    if (done_.step > first) save();
    if (profile_.steps() > 0) show_profile();
    if (done_.skipped > 0) {
      std::printf("%lld of all %lld steps skipped\n", static_cast<long long>(done_.skipped),
                  static_cast<long long>(done_.step));
    }
    std::printf(
        "%lld steps, in whose loop %lld allocations and %lld synchronisations%s\n",
        static_cast<long long>(done_.step - first), static_cast<long long>(in_loop.allocations),
        static_cast<long long>(in_loop.synchronisations), whole ? "" : "; interrupted, and saved");
  }

 private:
  std::vector<float> first_weights() const {
    if (options_.resume) return {};
    const parameters layout(config_);
    if (!options_.init.empty()) return read_weights(options_.init, layout);
    return first_values(layout, static_cast<uint64_t>(options_.seed));
  }
  bool ends() { return ranks_.ends_at(done_.step, interrupted != 0); }
  int64_t rows() const { return options_.shape().rows(); }
  int64_t step_ints() const { return options_.shape().micro_steps * token_batch::ints(rows()); }

  void describe() {
    const run_shape s = options_.shape();
    std::printf("%s of %.1f M parameters, %s%s, %s\n", config_.is_llama ? "Llama's shape" : "GPT-2",
                double(model_.layout().count()) / 1e6, options_.type.c_str(),
                model_.fuses_gelu() ? ", gelu in the products" : "",
                device_.is_simulated() ? "in the simulator" : "on a GPU");
    std::printf("%lld tokens an update: %s%lld × %lld × %lld; %lld sequences to train on\n",
                static_cast<long long>(options_.total_batch),
                s.ranks > 1 ? (std::to_string(s.ranks) + " ranks × ").c_str() : "",
                static_cast<long long>(s.micro_steps), static_cast<long long>(s.batch),
                static_cast<long long>(s.length), static_cast<long long>(data_.sequences()));
    std::fputs(speed_.description().c_str(), stdout);
    const std::string memory = model_.memory().description(examination_.sampling_bytes());
    std::fputs((memory + examination_.description()).c_str(), stdout);
    std::fflush(stdout);
  }

  // The kernels of an update. What changes from one to the next, tokens and learning rate, is in
  // the device's memory.
  void compute_step() {
    for (int64_t i = 0; i < options_.shape().micro_steps; ++i) model_.train(i);
    model_.update();
  }

  // Those of the next update, whose memory no step before the last reads any more.
  void upload_tokens() {
    const int slot = static_cast<int>(done_.step % queue::kMarks);
    const int64_t micro_steps = options_.shape().micro_steps;
    const int64_t first = done_.sequences + options_.rank * micro_steps * options_.batch;
    for (int64_t i = 0; i < micro_steps; ++i) {
      sorter_.fill(tokens_[slot] + i * token_batch::ints(rows()), options_.batch, data_,
                   [&](int64_t number) { return order_.at(first + i * options_.batch + number); });
    }
    queue_.copy(model_.memory().tokens, tokens_[slot], step_ints() * int64_t{sizeof(int)});
  }

  // One update, launched: its tokens, its kernels, and the copy of its results.
  void launch_step() {
    const int slot = static_cast<int>(done_.step % queue::kMarks);
    upload_tokens();
    *rates_[slot] = static_cast<float>(options_.rate.at(done_.step, options_.steps));
    queue_.copy(model_.memory().learning_rate, rates_[slot], sizeof(float));
    const bool watched = done_.step >= options_.steps - options_.profile;
    model_.watch(watched ? &profile_ : nullptr);
    graph_ ? graph_->launch() : compute_step();
    if (watched) profile_.end_step();
    queue_.copy(numbers_[slot], model_.memory().numbers, layout_.floats() * int64_t{sizeof(float)});
    queue_.mark(slot);
    ++done_.step;
    done_.sequences += ranks_.count() * options_.shape().micro_steps * options_.batch;
  }

  // Of the step behind the last that was reported, once it is done; nothing where all were.
  void report() {
    if (reported_ == done_.step) return;
    const int slot = static_cast<int>(reported_ % queue::kMarks);
    const clock::time_point now = queue_.wait(slot);
    const verdict& said = *layout_.verdict_in(numbers_[slot]);
    const double took = milliseconds(now - last_report_);
    speed_.add(took);
    const step_report r{.step = reported_ + 1,
                        .steps = options_.steps,
                        .loss = layout_.loss_in(numbers_[slot]) / double(options_.total_batch),
                        .norm = said.norm,
                        .rate = options_.rate.at(reported_, options_.steps),
                        .milliseconds = took,
                        .loss_z = said.loss_z,
                        .norm_z = said.norm_z,
                        .skipped = said.skipped != 0,
                        .share_of_peak = speed_.share_of_peak(options_.total_batch, took),
                        .seconds_left = speed_.seconds_left(options_.steps - reported_ - 1),
                        .tokens = options_.total_batch};
    last_report_ = now;
    ++reported_;
    done_.skipped += r.skipped;
    if (log_) log_->add(r);
    if (log_ && (r.step % options_.log_every == 0 || r.step == options_.steps || r.skipped)) {
      print(r);
      log_->flush();
    }
    if (!std::isfinite(r.loss)) {
      throw error("step " + std::to_string(r.step) + ": the loss is not finite");
    }
  }

  void show_profile() {
    const std::string chip = name_of(device_);
    const double flops = peak_flops(chip, options_.element()), bytes = peak_bytes(chip);
    std::fputs(profile_.table(flops, bytes).c_str(), stdout);
    if (log_) profile_.write(options_.out + "/profile.csv", flops, bytes);
  }

  static double milliseconds(clock::duration d) {
    return std::chrono::duration<double, std::milli>(d).count();
  }

  // By rank 0; all others wait for it with their next step.
  void examine(bool last) {
    model_.complete_weights();
    if (log_) examination_.run(done_.step, last, *log_);
  }

  void save() {
    if (std::exchange(saved_, done_.step) == done_.step) return;
    save_checkpoint(options_.out, done_, model_, queue_, options_.tokenizer, options_.keep);
    if (log_) log_->flush();
  }

  options options_;
  ranks& ranks_;
  results layout_{options_.shape()};
  config config_;
  dataset data_;
  shuffled order_;
  batch_sorter sorter_;
  std::future<std::vector<float>> weights_;  // made while CUDA starts
  device device_;
  queue queue_;
  std::unique_ptr<nccl> nccl_;  // where there are several ranks
  model model_;
  examination examination_;
  arena staging_;
  profile profile_;
  int* tokens_[queue::kMarks];
  float* rates_[queue::kMarks];
  float* numbers_[queue::kMarks];
  progress done_;
  std::optional<recording> graph_;
  std::optional<run_log> log_;  // rank 0's
  speedometer speed_;
  int64_t reported_ = 0;  // steps whose numbers have come
  bool is_first_ = true;  // what comes is the first step
  int64_t saved_ = 0;     // the step of the last checkpoint
  clock::time_point last_report_;
};

}  // namespace
}  // namespace gpt2

int main(int count, char** arguments) {
  const auto start = gpt2::clock::now();
  std::optional<gpt2::ranks> all;
  try {
    kittens::host::check_library();
    gpt2::options o = gpt2::parse_options(count, arguments);
    if (o.help) return std::fputs(gpt2::help().c_str(), stdout) < 0;
    all.emplace(static_cast<int>(o.ranks));
    o.rank = all->rank();
    std::signal(SIGINT, [](int) { gpt2::interrupted = 1; });
    gpt2::run(o, *all).go(start);
  } catch (const std::exception& why) {
    if (!all || all->may_speak()) std::fprintf(stderr, "train_gpt2: %s\n", why.what());
    return 1;
  }
  return 0;
}
