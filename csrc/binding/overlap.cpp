#include "binding/overlap.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace thunderkittens {
namespace {

// Steps of `stride` bytes, from `least` to `most` of them.
struct steps {
  int64_t stride, least, most;
};

// Looks for steps that lead over a distance. Of the strides of a tensor each is mostly longer than
// all shorter ones together reach, so there is little to try.
class step_search {
 public:
  explicit step_search(std::vector<steps> all) : all_(std::move(all)) {
    std::sort(all_.begin(), all_.end(),
              [](const steps& a, const steps& b) { return a.stride > b.stride; });
    reach_.resize(all_.size() + 1);
    for (size_t i = all_.size(); i-- > 0;) {
      reach_[i] = {reach_[i + 1].least + all_[i].stride * all_[i].least,
                   reach_[i + 1].most + all_[i].stride * all_[i].most};
    }
  }

  // Whether some lead over `distance`; with `moving`, not all of them 0.
  bool leads(int64_t distance, bool moving) { return leads_from(0, distance, moving); }

 private:
  struct range {
    int64_t least = 0, most = 0;
  };

  bool leads_from(size_t i, int64_t distance, bool moving) {
    if (distance < reach_[i].least || distance > reach_[i].most) return false;
    if (i == all_.size()) return !moving;
    if (++tried_ > kTries) return true;
    const auto [stride, least, most] = all_[i];
    // The rest has to be within reach of those that follow.
    const int64_t first = std::max(least, ceil_div(distance - reach_[i + 1].most, stride));
    const int64_t last = std::min(most, -ceil_div(reach_[i + 1].least - distance, stride));
    for (int64_t n = first; n <= last; ++n) {
      if (leads_from(i + 1, distance - n * stride, moving && n == 0)) return true;
      if (tried_ > kTries) return true;
    }
    return false;
  }

  static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

  static constexpr int kTries = 10000;
  std::vector<steps> all_;    // the longest stride first
  std::vector<range> reach_;  // of all from the i-th on, bytes
  int tried_ = 0;
};

}  // namespace

bool overlaps_itself(const at::Tensor& t) {
  if (t.numel() == 0) return false;
  std::vector<steps> all;
  for (int64_t i = 0; i < t.dim(); ++i) {
    if (t.size(i) == 1) continue;
    if (t.stride(i) == 0) return true;
    all.push_back({t.stride(i), 1 - t.size(i), t.size(i) - 1});
  }
  return step_search(std::move(all)).leads(0, /*moving=*/true);
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  // Forward in a and back in b, and the bytes of an element.
  const auto size_a = static_cast<int64_t>(a.element_size());
  const auto size_b = static_cast<int64_t>(b.element_size());
  std::vector<steps> all = {{1, 1 - size_b, size_a - 1}};
  const auto add = [&](int64_t stride, int64_t least, int64_t most) {
    if (stride == 0) return;
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const steps& s) { return s.stride == stride; });
    if (same == all.end()) {
      all.push_back({stride, least, most});
    } else {  // tried as one
      same->least += least;
      same->most += most;
    }
  };
  for (int64_t i = 0; i < a.dim(); ++i) add(a.stride(i) * size_a, 0, a.size(i) - 1);
  for (int64_t i = 0; i < b.dim(); ++i) add(b.stride(i) * size_b, 1 - b.size(i), 0);
  const auto address = [](const at::Tensor& t) {
    return reinterpret_cast<int64_t>(t.const_data_ptr());
  };
  return step_search(std::move(all)).leads(address(b) - address(a), /*moving=*/false);
}

void check_no_overlap(std::string_view op, std::string_view name, const at::Tensor& t,
                      std::string_view why) {
  TORCH_CHECK(!overlaps_itself(t), op, ": ", name, " must not overlap with itself", why,
              ", got sizes ", t.sizes(), " and strides ", t.strides());
}

void check_no_overlap(std::string_view op, std::string_view name, const at::Tensor& t,
                      std::string_view other_name, const at::Tensor& other, std::string_view why) {
  TORCH_CHECK(!overlap(t, other), op, ": ", name, " must not share memory with ", other_name, why,
              ", got one that does");
}

}  // namespace thunderkittens
