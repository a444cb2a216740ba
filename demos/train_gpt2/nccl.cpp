#include "nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <type_traits>

namespace gpt2 {
namespace {

// As in nccl.h of version 2, whose numbers do not change.
constexpr int kFloat32 = 7, kBfloat16 = 9, kSymmetricWindow = 1;
struct unique_id {
  char bytes[128];
};

int type_number(dtype type) { return type == dtype::float32 ? kFloat32 : kBfloat16; }

}  // namespace

struct nccl::functions {
  int (*ncclGetUniqueId)(unique_id*);
  int (*ncclCommInitRank)(void**, int, unique_id, int);
  int (*ncclCommDestroy)(void*);
  int (*ncclMemAlloc)(void**, size_t);
  int (*ncclMemFree)(void*);
  int (*ncclCommWindowRegister)(void*, void*, size_t, void**, int);
  int (*ncclCommWindowDeregister)(void*, void*);
  int (*ncclAlltoAll)(const void*, void*, size_t, int, void*, void*);
  int (*ncclAllGather)(const void*, void*, size_t, int, void*, void*);
  const char* (*ncclGetErrorString)(int);

  explicit functions(const std::string& path) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw thunderkittens::error(
          "several ranks need NCCL, from CUDA's package nvidia-nccl or --nccl: " +
          std::string(dlerror()));
    }
    const auto find = [&](auto& function, const char* name) {
      void* const found = dlsym(library, name);
      if (found == nullptr) {
        throw thunderkittens::error(path + ": has no " + name + ": NCCL 2.28 or later is needed");
      }
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    find(ncclGetUniqueId, "ncclGetUniqueId");
    find(ncclCommInitRank, "ncclCommInitRank");
    find(ncclCommDestroy, "ncclCommDestroy");
    find(ncclMemAlloc, "ncclMemAlloc");
    find(ncclMemFree, "ncclMemFree");
    find(ncclCommWindowRegister, "ncclCommWindowRegister");
    find(ncclCommWindowDeregister, "ncclCommWindowDeregister");
    find(ncclAlltoAll, "ncclAlltoAll");
    find(ncclAllGather, "ncclAllGather");
    find(ncclGetErrorString, "ncclGetErrorString");
  }
};

nccl::nccl(const std::string& library, ranks& all)
    : rank_(all.rank()), count_(all.count()), library_(new functions(library)) {
  // NCCL_CTA_POLICY_ZERO, for this communicator, unless the user says otherwise.
  setenv("NCCL_CTA_POLICY", "2", 0);
  unique_id id{};
  if (all.is_first()) check(library_->ncclGetUniqueId(&id), "starting");
  all.hand_out(&id, sizeof(id));
  check(library_->ncclCommInitRank(&communicator_, all.count(), id, rank_), "meeting all ranks");
}

nccl::~nccl() {
  // Where something is wrong the others may not be there: the process ends, and with it all this.
  if (std::uncaught_exceptions() > 0) return;
  for (void* window : windows_) library_->ncclCommWindowDeregister(communicator_, window);
  for (void* memory : memories_) library_->ncclMemFree(memory);
  library_->ncclCommDestroy(communicator_);
}

void nccl::check(int status, const char* doing) const {
  if (status == 0) return;
  throw thunderkittens::error("NCCL: " + std::string(doing) + ": " +
                              library_->ncclGetErrorString(status));
}

void* nccl::allocate(int64_t bytes) {
  const std::string doing = "allocation of " + std::to_string(bytes) + " bytes";
  check(library_->ncclMemAlloc(&memories_.emplace_back(), bytes), doing.c_str());
  check(library_->ncclCommWindowRegister(communicator_, memories_.back(), bytes,
                                         &windows_.emplace_back(), kSymmetricWindow),
        "showing memory to all ranks");
  return memories_.back();
}

void nccl::exchange_parts(const void* from, void* to, int64_t count, dtype type, stream s) const {
  check(library_->ncclAlltoAll(from, to, count, type_number(type), communicator_, s), "exchanging");
}

void nccl::gather_parts(void* data, int64_t count, dtype type, stream s) const {
  const void* const own =
      static_cast<std::byte*>(data) + rank_ * count * kittens::host::bytes_of(type);
  check(library_->ncclAllGather(own, data, count, type_number(type), communicator_, s),
        "gathering");
}

}  // namespace gpt2
