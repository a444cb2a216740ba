#include "examination.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace gpt2 {

examination::examination(const options& o, const config& c, const device& d, model& m, queue& q,
                         int first_token)
    : options_(o),
      sampling_(o.sampling),
      rows_(o.shape().rows()),
      model_(m),
      queue_(q),
      sorter_(c.vocabulary),
      staging_(d, place::host) {
  if (!o.evaluation.empty()) held_out_.emplace(o.evaluation, o.length, c.vocabulary);
  if (!o.hellaswag.empty()) questions_.emplace(o.hellaswag, o.length, c.vocabulary);
  if (!o.tokenizer.empty()) text_.emplace(o.tokenizer);
  if (sampling_.tokens > 0) {
    if (sampling_.prompt.empty()) sampling_.prompt = {first_token};
    for (const int token : sampling_.prompt) {
      if (token < c.vocabulary) continue;
      throw error("--prompt must be of tokens below the vocabulary of " +
                  std::to_string(c.vocabulary) + ", got " + std::to_string(token));
    }
    const auto whole = int64_t(sampling_.prompt.size()) + sampling_.tokens;
    if (whole > c.positions + 1) {
      throw error("--sample and --prompt must be at most the model's positions and one, " +
                  std::to_string(c.positions + 1) + ", got " + std::to_string(whole));
    }
    sampler_.emplace(m, whole - 1, d, q);  // the last token goes through no model
  }
  if (held_out_ || questions_) {
    staging_.allocate([&] { tokens_ = staging_.take<int>(token_batch::ints(rows_)); });
  }
  // Tokens that are none are found here, and not once there is a first evaluation.
  for (int64_t i = 0; held_out_ && i < evaluated_sequences(); ++i) {
    held_out_->read(i, tokens_, tokens_ + rows_);
  }
}

void examination::run(int64_t step, bool last, run_log& log) {
  const auto number = static_cast<long long>(step);
  if (evaluates(step, last)) {
    double loss = std::numeric_limits<double>::quiet_NaN(), share = loss;
    if (held_out_) {
      loss = mean_loss();
      std::printf("step %lld  evaluation loss %.4f\n", number, loss);
    }
    if (questions_) {
      share = share_answered();
      std::printf("step %lld  %.2f %% of %zu questions answered\n", number, 100 * share,
                  questions_->questions().size());
    }
    log.add_evaluation(step, loss, share);
  }
  if (samples(step, last)) sample(step);
  std::fflush(stdout);
}

std::string examination::description() const {
  if (!sampler_ || !text_ || text_->speaks()) return "";
  return options_.tokenizer + ": its decoder is not ByteLevel: samples are numbers\n";
}

// The losses of the batch that is staged, on the device.
void examination::forward() {
  queue_.copy(model_.memory().tokens, tokens_, token_batch::ints(rows_) * int64_t{sizeof(int)});
  model_.evaluate();
}

int64_t examination::evaluated_sequences() const {
  const int64_t there = held_out_->sequences();
  // (--eval-batches may be so large that a product of it would overflow.)
  return std::min(std::min(options_.eval_batches, there) * options_.batch, there);
}

// Of the first sequences, each of which counts once: where there are fewer than a batch left, the
// last one fills it, and counts once all the same.
double examination::mean_loss() {
  const int64_t batch = options_.batch, wanted = evaluated_sequences();
  double sum = 0;
  for (int64_t first = 0; first < wanted; first += batch) {
    const int64_t count = std::min(batch, wanted - first);
    sorter_.fill(tokens_, batch, *held_out_,
                 [&](int64_t number) { return first + std::min(number, count - 1); });
    forward();
    if (count == batch) {
      sum += to_host(queue_, dtype::float32, model_.memory().numbers, 1)[0];
      continue;
    }
    const int64_t rows = count * options_.length;
    for (const float loss : to_host(queue_, dtype::float32, model_.memory().losses, rows)) {
      sum += loss;
    }
  }
  return sum / double(wanted * options_.length);
}

// A choice is a sequence of the batch, from its start: what lies behind it is not looked at.
double examination::share_answered() {
  const std::vector<choice>& choices = questions_->choices();
  const int64_t length = options_.length, batch = options_.batch;
  std::vector<double> mean(choices.size());
  for (size_t first = 0; first < choices.size(); first += batch) {
    const size_t count = std::min<size_t>(batch, choices.size() - first);
    std::fill_n(tokens_, 2 * rows_, 0);
    for (size_t b = 0; b < count; ++b) {
      const std::vector<int>& all = choices[first + b].tokens;
      int* const inputs = tokens_ + int64_t(b) * length;
      std::copy(all.begin(), all.end() - 1, inputs);
      std::copy(all.begin() + 1, all.end(), inputs + rows_);
    }
    sorter_.sort(tokens_, rows_);
    forward();
    const std::vector<float> losses =
        to_host(queue_, dtype::float32, model_.memory().losses, rows_);
    for (size_t b = 0; b < count; ++b) {
      const choice& c = choices[first + b];
      const auto tokens = int64_t(c.tokens.size());
      double sum = 0;  // row t has the loss of token t + 1
      for (int64_t t = c.ending; t < tokens; ++t) sum += losses[int64_t(b) * length + t - 1];
      mean[first + b] = sum / double(tokens - c.ending);
    }
  }
  int64_t right = 0;
  for (const question& q : questions_->questions()) {
    const auto begin = mean.begin() + int64_t(q.first);
    right += std::min_element(begin, begin + int64_t(q.count)) - begin == q.answer;
  }
  return double(right) / double(questions_->questions().size());
}

void examination::sample(int64_t step) {
  // Numbers that neither the first weights nor the order of the data have, for each step others.
  random_numbers of_seed(~static_cast<uint64_t>(options_.seed));
  const std::vector<int> tokens =
      sampler_->sample(sampling_, random_numbers(of_seed.bits() + static_cast<uint64_t>(step)));
  std::printf("step %lld  sample:", static_cast<long long>(step));
  if (text_ && text_->speaks()) {
    std::printf("\n%s\n", printable(text_->of(tokens)).c_str());
    return;
  }
  for (const int token : tokens) std::printf(" %d", token);
  std::printf("\n");
}

}  // namespace gpt2
