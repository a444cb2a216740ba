#include "checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "files.h"

namespace gpt2 {
namespace {

namespace fs = std::filesystem;

// Takes what the library says of a path as ours.
template <class F>
void on_disk(const F& f) {
  try {
    f();
  } catch (const fs::filesystem_error& why) {
    throw error(why.path1().string() + ": " + why.code().message());
  }
}

std::vector<fs::path> checkpoints(const std::string& out) {
  std::vector<fs::path> found;
  if (!fs::is_directory(out)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    const bool digits = name.size() == 13 && name.starts_with("step-") &&
                        name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (digits && entry.is_directory()) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void append(std::vector<float_tensor>& tensors, const std::string& prefix, const parameters& p,
            const std::vector<float>& values) {
  for (const parameter& one : p.all) {
    tensors.push_back({prefix + one.name, one.shape, values.data() + one.offset});
  }
}

std::vector<float> read_all(const safetensors& file, const std::string& prefix,
                            const parameters& p) {
  std::vector<float> values(p.total, 0.0f);
  for (const parameter& one : p.all) {
    file.read(prefix + one.name, one.shape, values.data() + one.offset);
  }
  return values;
}

int64_t whole_number(const std::string& path, const std::map<std::string, std::string>& metadata,
                     const std::string& name) {
  const auto found = metadata.find(name);
  const std::string text = found == metadata.end() ? "" : found->second;
  if (text.empty() || text.size() > 15 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    throw error(path + ": must say " + name + " as a whole number, got \"" + text + "\"");
  }
  return std::strtoll(text.c_str(), nullptr, 10);
}

// The windows of outliers: where each is in memory, and its name in a file.
struct named_window {
  const char* name;
  outlier_window at;
};
std::vector<named_window> windows_of(model& m) {
  return {{"outliers.losses", m.memory().loss_window}, {"outliers.norms", m.memory().norm_window}};
}

// What a checkpoint has of them: their values, whose addresses go into `tensors`, and counts.
std::vector<std::vector<float>> save_windows(model& m, queue& q, std::vector<float_tensor>& tensors,
                                             std::map<std::string, std::string>& metadata) {
  const int64_t size = m.outliers().window;
  std::vector<std::vector<float>> kept;
  for (const named_window& w : windows_of(m)) {
    kept.push_back(to_host(q, dtype::float32, w.at.values, size));
    tensors.push_back({w.name, {size}, kept.back().data()});
    int seen = 0;
    q.copy(&seen, w.at.seen, sizeof(seen));
    q.synchronise();
    metadata[w.name] = std::to_string(seen);
  }
  return kept;
}

void load_windows(const safetensors& file, const std::string& path, model& m, queue& q) {
  const int64_t size = m.outliers().window;
  for (const named_window& w : windows_of(m)) {
    std::vector<float> values(size);
    file.read(w.name, {size}, values.data());
    const int64_t seen = whole_number(path, file.metadata(), w.name);
    if (seen >= 2 * size) {
      throw error(path + ": " + w.name + " must be below " + std::to_string(2 * size) + ", got " +
                  std::to_string(seen));
    }
    const int stored = static_cast<int>(seen);
    q.copy(w.at.values, values.data(), size * int64_t{sizeof(float)});
    q.copy(w.at.seen, &stored, sizeof(stored));
    q.synchronise();  // before the values go
  }
}

}  // namespace

std::vector<float> read_weights(const std::string& folder, const parameters& p) {
  return read_all(safetensors(folder + "/model.safetensors"), "", p);
}

bool has_checkpoints(const std::string& out) { return !checkpoints(out).empty(); }

std::string newest_checkpoint(const std::string& out) {
  const std::vector<fs::path> found = checkpoints(out);
  if (found.empty()) throw error(out + ": there is no checkpoint to resume from");
  return found.back().string();
}

void save_checkpoint(const std::string& out, const progress& done, model& m, queue& q,
                     const std::string& tokenizer, int64_t keep) {
  char name[16];
  std::snprintf(name, sizeof(name), "step-%08lld", static_cast<long long>(done.step));
  const std::string folder = out + "/" + name, partial = folder + ".partial";
  const parameters& p = m.layout();
  const std::vector<float> weights = m.exact_weights();
  const std::vector<float> average = m.whole_state(m.memory().exp_avg);
  const std::vector<float> squares = m.whole_state(m.memory().exp_avg_sq);
  if (m.shape().rank > 0) return;
  on_disk([&] {
    fs::remove_all(partial);
    fs::create_directories(partial);
    if (!tokenizer.empty()) fs::copy_file(tokenizer, partial + "/tokenizer.json");
  });
  write_text(partial + "/config.json", config_text(m.sizes()));
  std::vector<float_tensor> tensors;
  append(tensors, "", p, weights);
  write_safetensors(partial + "/model.safetensors", {}, std::exchange(tensors, {}));
  append(tensors, "exp_avg.", p, average);
  append(tensors, "exp_avg_sq.", p, squares);
  std::map<std::string, std::string> metadata = done.facts;
  metadata["step"] = std::to_string(done.step);
  metadata["sequences"] = std::to_string(done.sequences);
  metadata["skipped"] = std::to_string(done.skipped);
  const auto kept = save_windows(m, q, tensors, metadata);
  write_safetensors(partial + "/training.safetensors", metadata, tensors);
  on_disk([&] {
    fs::rename(partial, folder);
    std::vector<fs::path> all = checkpoints(out);
    all.resize(std::max<int64_t>(0, int64_t(all.size()) - keep));
    for (const fs::path& old : all) fs::remove_all(old);
  });
}

void load_checkpoint(const std::string& folder, int64_t steps, progress& done, model& m, queue& q) {
  const parameters& p = m.layout();
  const std::string path = folder + "/training.safetensors";
  const safetensors file(path);
  done.step = whole_number(path, file.metadata(), "step");
  done.sequences = whole_number(path, file.metadata(), "sequences");
  done.skipped = whole_number(path, file.metadata(), "skipped");
  if (done.step > steps) {
    throw error("--steps must be at least those that " + folder + " has made, " +
                std::to_string(done.step) + ", got " + std::to_string(steps));
  }
  if (done.skipped > done.step) {
    throw error(path + ": cannot have skipped " + std::to_string(done.skipped) + " of " +
                std::to_string(done.step) + " steps");
  }
  for (const auto& [name, value] : done.facts) {
    const auto found = file.metadata().find(name);
    const std::string saved = found == file.metadata().end() ? "" : found->second;
    if (saved != value) {
      throw error(path + ": the run has " + name + " " + saved + ", got " + value);
    }
  }
  m.set_state(m.memory().exp_avg, read_all(file, "exp_avg.", p));
  m.set_state(m.memory().exp_avg_sq, read_all(file, "exp_avg_sq.", p));
  const auto made = static_cast<float>(done.step - done.skipped);
  const std::vector<float> updates(m.parts().pieces().size(), made);
  q.copy(m.memory().updates, updates.data(), int64_t(updates.size() * sizeof(float)));
  load_windows(file, path, m, q);
  m.set_weights(read_weights(folder, p));
}

}  // namespace gpt2
