#include "options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>
#include <variant>
#include <vector>

namespace gpt2 {
namespace {

struct option {
  const char *name, *value, *help;
  std::variant<std::string*, int64_t*, double*, bool*> to;
  double least = 0, most = 0;                // of a number
  std::vector<std::string_view> words = {};  // of a text, where it is one of some
};

constexpr double kMost = 1e15;

std::vector<option> table(options& o) {
  return {
      {"train", "PATH", "tokens to train on: a .bin file, or a folder: all in it", &o.train},
      {"eval", "PATH", "tokens to evaluate on", &o.evaluation},
      {"hellaswag", "FILE", "questions to answer, a .bin file of llm.c's or prepare's",
       &o.hellaswag},
      {"tokenizer", "FILE", "a tokenizer.json: put into checkpoints; it turns samples into text",
       &o.tokenizer},
      {"init", "FOLDER", "begin with the model of a checkpoint, whose kind and sizes hold",
       &o.init},
      {"model",
       "KIND",
       "gpt2, or llama: RMSNorm, rotary embeddings, SwiGLU, no biases",
       &o.kind,
       0,
       0,
       {"gpt2", "llama"}},
      {"vocabulary", "N", "tokens that there are", &o.sizes.vocabulary, 1, 1 << 20},
      {"layers", "N", "blocks", &o.sizes.layers, 1, 256},
      {"heads", "N", "attention heads of a block", &o.sizes.heads, 1, 1024},
      {"width", "N", "of the residual stream", &o.sizes.width, 8, 1 << 14},
      {"key-heads", "N", "of llama: heads of keys and values; 0: as many as heads",
       &o.sizes.key_heads, 0, 1024},
      {"hidden", "N", "of llama: the MLP's width; 0: 8/3 of the width", &o.sizes.hidden, 0,
       1 << 16},
      {"theta", "X", "of llama: the rotary embeddings' base", &o.sizes.theta, 1, 1e12},
      {"length", "N", "tokens of a sequence, and positions", &o.length, 1, 1 << 20},
      {"dtype",
       "TYPE",
       "bfloat16, with master weights, or float32",
       &o.type,
       0,
       0,
       {"bfloat16", "float32"}},
      {"stochastic-rounding", "", "of bfloat16: no master weights, updates are rounded at random",
       &o.update.stochastic_rounding},
      {"steps", "N", "updates of the whole run", &o.steps, 0, kMost},
      {"batch", "N", "sequences that a rank computes at once", &o.batch, 1, 1 << 20},
      {"total-batch", "N", "tokens of an update (default: those of a batch)", &o.total_batch, 0,
       kMost},
      {"graph", "", "launch a step as one CUDA graph, recorded at the start", &o.graph},
      {"recompute", "", "compute gelu again in the backward: less memory", &o.recompute},
      {"lr", "X", "the highest learning rate", &o.rate.highest, 0, 1e6},
      {"schedule",
       "NAME",
       "cosine, linear, constant or wsd, after the warm-up",
       &o.rate.shape,
       0,
       0,
       {"cosine", "linear", "constant", "wsd"}},
      {"warmup", "N", "steps in which the rate rises", &o.rate.warmup, 0, kMost},
      {"last-lr", "X", "the last rate, as a share of the highest", &o.rate.last, 0, 1},
      {"decay-share", "X", "of wsd: the share of the steps that decays", &o.rate.decay_share, 0, 1},
      {"weight-decay", "X", "of matrices", &o.update.weight_decay, 0, 1e6},
      {"beta1", "X", "of AdamW", &o.update.beta1, 0, 0.999999},
      {"beta2", "X", "of AdamW", &o.update.beta2, 0, 0.999999},
      {"epsilon", "X", "of AdamW", &o.update.epsilon, 1e-20, 1},
      {"clip", "X", "the largest norm of the gradients; 0: any", &o.update.clip, 0, 1e30},
      {"skip-loss-z", "X", "no update where the loss is so many deviations high; 0: any",
       &o.update.outliers.loss_z, 0, 1e6},
      {"skip-norm-z", "X", "the same of the gradients' norm", &o.update.outliers.norm_z, 0, 1e6},
      {"outlier-window", "N", "steps whose mean and deviation these are", &o.update.outliers.window,
       2, 1 << 16},
      {"seed", "N", "of the first weights, the order of the data, and what is random", &o.seed, 0,
       kMost},
      {"out", "FOLDER", "where checkpoints and log.csv go", &o.out},
      {"resume", "", "go on from the newest checkpoint in --out", &o.resume},
      {"log-every", "N", "steps between lines", &o.log_every, 1, kMost},
      {"eval-every", "N", "steps between evaluations; the last is always made", &o.eval_every, 1,
       kMost},
      {"eval-batches", "N", "batches of an evaluation", &o.eval_batches, 1, kMost},
      {"sample", "N", "tokens of a sample of the model's text; 0: none", &o.sampling.tokens, 0,
       1 << 20},
      {"sample-every", "N", "steps between samples; the last is always made", &o.sample_every, 1,
       kMost},
      {"prompt", "LIST", "of token numbers, by commas (default: the first token of --train)",
       &o.prompt},
      {"temperature", "X", "of samples; 0: the most probable token", &o.sampling.temperature, 0,
       100},
      {"top-k", "N", "samples are of so many most probable tokens; 0: of all", &o.sampling.top_k, 0,
       1 << 20},
      {"save-every", "N", "steps between checkpoints; the last is always saved", &o.save_every, 1,
       kMost},
      {"keep", "N", "checkpoints to keep", &o.keep, 1, 1 << 20},
      {"profile", "N", "time the parts of the last N steps, also to profile.csv; 0: not",
       &o.profile, 0, 1000},
      {"device", "N", "which GPU; of several ranks the first one's", &o.device, 0, 1024},
      {"ranks", "N", "processes, each with a GPU, that share an update's tokens", &o.ranks, 1,
       1024},
      {"nccl", "FILE", "the library by which they do", &o.nccl},
      {"help", "", "this list", &o.help},
  };
}

std::string shown(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

template <class Number>
void set_number(const option& one, const std::string& text, Number* to) {
  char* end = nullptr;
  double value = 0;
  if constexpr (std::is_same_v<Number, int64_t>) {
    *to = std::strtoll(text.c_str(), &end, 10);
    value = static_cast<double>(*to);
  } else {
    *to = value = std::strtod(text.c_str(), &end);
  }
  const bool whole = !text.empty() && *end == '\0';
  if (whole && value >= one.least && value <= one.most) return;
  throw error("--" + std::string(one.name) + " must be " + shown(one.least) + " to " +
              shown(one.most) + ", got " + text);
}

void set(const option& one, const std::string& text) {
  if (const auto* to = std::get_if<int64_t*>(&one.to)) return set_number(one, text, *to);
  if (const auto* to = std::get_if<double*>(&one.to)) return set_number(one, text, *to);
  if (!one.words.empty() && std::ranges::find(one.words, text) == one.words.end()) {
    throw error("--" + std::string(one.name) + ": " + one.help + ", got " + text);
  }
  *std::get<std::string*>(one.to) = text;
}

std::vector<int> parse_tokens(const std::string& text) {
  std::vector<int> tokens;
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const long long token = std::strtoll(at, &end, 10);
    const bool more = *end == ',' && end[1] != '\0';
    if (end == at || token < 0 || token >= 1 << 20 || (!more && *end != '\0')) {
      throw error("--prompt must be numbers of tokens, with commas between them, got " + text);
    }
    tokens.push_back(static_cast<int>(token));
    at = end + more;
  }
  return tokens;
}

// What an option is about, and whether there is that: without, it would change nothing.
void refuse_without_effect(const options& o) {
  const auto is = [](const std::string& schedule) { return "--schedule " + schedule; };
  const bool samples = o.sampling.tokens > 0, evaluates = !o.evaluation.empty();
  const struct {
    const char* name;
    std::string of;
    bool counts;
  } all[] = {
      {"theta", "--model llama", o.kind == "llama"},
      {"key-heads", "--model llama", o.kind == "llama"},
      {"hidden", "--model llama", o.kind == "llama"},
      {"decay-share", is("wsd"), o.rate.shape == "wsd"},
      {"last-lr", is("cosine, linear or wsd"), o.rate.shape != "constant"},
      {"eval-batches", "--eval", evaluates},
      {"eval-every", "--eval or --hellaswag", evaluates || !o.hellaswag.empty()},
      {"sample-every", "--sample", samples},
      {"prompt", "--sample", samples},
      {"temperature", "--sample", samples},
      {"top-k", "--sample", samples},
  };
  for (const auto& one : all) {
    if (one.counts || !o.given.contains(one.name)) continue;
    throw error("--" + std::string(one.name) + " must come with " + one.of +
                ": without, it changes nothing");
  }
}

void check(options& o) {
  if (o.train.empty()) throw error("--train is needed: which tokens to train on; --help lists all");
  if (o.out.empty()) throw error("--out must be a folder, got nothing");
  o.sizes.positions = o.length;
  o.sizes.is_llama = o.kind == "llama";
  if (o.resume && !o.init.empty()) {
    throw error("--init begins a run, and --resume goes on with one: got both");
  }
  o.sampling.prompt = parse_tokens(o.prompt);
  o.update.seed = static_cast<uint64_t>(o.seed);
  if (o.update.stochastic_rounding && o.element() == dtype::float32) {
    throw error("--stochastic-rounding is of bfloat16 weights, got --dtype float32");
  }
  if (o.profile > 0 && o.graph) {
    throw error("--profile times launches one by one, which --graph makes as one: got both");
  }
  const int64_t at_once = o.batch * o.length * o.ranks;
  if (o.total_batch == 0) o.total_batch = at_once;
  if (o.total_batch % at_once != 0) {
    throw error("--total-batch must be a multiple of --batch times --length times --ranks (" +
                std::to_string(at_once) + "), got " + std::to_string(o.total_batch));
  }
}

}  // namespace

options parse_options(int count, char** arguments) {
  options o;
  const std::vector<option> known = table(o);
  for (int i = 1; i < count; ++i) {
    const std::string text = arguments[i];
    const auto equals = text.find('=');
    const auto found = std::ranges::find_if(known, [&](const option& one) {
      return text.substr(0, equals) == "--" + std::string(one.name);
    });
    if (found == known.end()) throw error("there is no option " + text + "; --help lists all");
    o.given.insert(found->name);
    if (bool* const* flag = std::get_if<bool*>(&found->to)) {
      if (equals != std::string::npos) throw error(text + ": it takes no value");
      **flag = true;
    } else if (equals != std::string::npos) {
      set(*found, text.substr(equals + 1));
    } else if (++i < count) {
      set(*found, arguments[i]);
    } else {
      throw error(text + " needs a value");
    }
  }
  if (o.help) return o;
  check(o);
  refuse_without_effect(o);
  return o;
}

void check_model(const options& o, const config& checkpoint) {
  const auto refuse = [](const std::string& name, const std::string& is, const std::string& got) {
    throw error("--" + name + " must be " + is + ", as in the checkpoint, or be left out, got " +
                got);
  };
  if (o.given.contains("model") && o.sizes.is_llama != checkpoint.is_llama) {
    refuse("model", checkpoint.is_llama ? "llama" : "gpt2", o.kind);
  }
  constexpr std::pair<const char*, int64_t config::*> kSizes[] = {
      {"vocabulary", &config::vocabulary}, {"layers", &config::layers},
      {"heads", &config::heads},           {"width", &config::width},
      {"key-heads", &config::key_heads},   {"hidden", &config::hidden}};
  const auto without_zeros = [](config c) {
    c.key_heads = c.heads_of_keys();
    c.hidden = c.mlp_width();
    return c;
  };
  for (const auto& [name, size] : kSizes) {
    if (!o.given.contains(name)) continue;
    config asked = checkpoint;
    asked.*size = o.sizes.*size;
    const int64_t is = without_zeros(checkpoint).*size, got = without_zeros(asked).*size;
    if (is != got) refuse(name, std::to_string(is), std::to_string(got));
  }
  if (o.given.contains("theta") && o.sizes.theta != checkpoint.theta) {
    refuse("theta", shown(checkpoint.theta), shown(o.sizes.theta));
  }
}

std::string help() {
  options o;
  std::string text = "Trains a GPT-2, or a model of Llama's shape, without Python and PyTorch.\n\n";
  for (const option& one : table(o)) {
    std::string standard;
    if (const auto* to = std::get_if<int64_t*>(&one.to)) standard = std::to_string(**to);
    if (const auto* to = std::get_if<double*>(&one.to)) standard = shown(**to);
    if (const auto* to = std::get_if<std::string*>(&one.to)) standard = **to;
    const std::string left = "  --" + std::string(one.name) + " " + one.value;
    text += left + std::string(left.size() < 24 ? 24 - left.size() : 1, ' ') + one.help;
    const bool says = std::string_view(one.help).find("default") != std::string_view::npos;
    text += says || standard.empty() ? "\n" : " (" + standard + ")\n";
  }
  return text;
}

}  // namespace gpt2
