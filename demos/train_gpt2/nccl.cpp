#include "nccl.h"

#include <dlfcn.h>

#include <exception>
#include <type_traits>

namespace gpt2 {
namespace {

// As in nccl.h of version 2, whose numbers do not change.
constexpr int kFloat32 = 7, kBfloat16 = 9, kSum = 0;
struct unique_id {
  char bytes[128];
};

int type_number(dtype type) { return type == dtype::float32 ? kFloat32 : kBfloat16; }

}  // namespace

struct nccl::functions {
  int (*ncclGetUniqueId)(unique_id*);
  int (*ncclCommInitRank)(void**, int, unique_id, int);
  int (*ncclCommDestroy)(void*);
  int (*ncclReduceScatter)(const void*, void*, size_t, int, int, void*, void*);
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
      if (found == nullptr) throw thunderkittens::error(path + ": has no " + name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    find(ncclGetUniqueId, "ncclGetUniqueId");
    find(ncclCommInitRank, "ncclCommInitRank");
    find(ncclCommDestroy, "ncclCommDestroy");
    find(ncclReduceScatter, "ncclReduceScatter");
    find(ncclAllGather, "ncclAllGather");
    find(ncclGetErrorString, "ncclGetErrorString");
  }
};

nccl::nccl(const std::string& library, ranks& all)
    : rank_(all.rank()), count_(all.count()), library_(new functions(library)) {
  unique_id id{};
  if (all.is_first()) check(library_->ncclGetUniqueId(&id), "starting");
  all.hand_out(&id, sizeof(id));
  check(library_->ncclCommInitRank(&communicator_, all.count(), id, rank_), "meeting all ranks");
}

nccl::~nccl() {
  // Where something is wrong the others may not be there: the process ends, and with it all this.
  if (std::uncaught_exceptions() == 0) library_->ncclCommDestroy(communicator_);
}

void nccl::check(int status, const char* doing) const {
  if (status == 0) return;
  throw thunderkittens::error("NCCL: " + std::string(doing) + ": " +
                              library_->ncclGetErrorString(status));
}

void* nccl::own_part(void* data, int64_t count, dtype type) const {
  return static_cast<std::byte*>(data) + rank_ * count * kittens::host::bytes_of(type);
}

void nccl::sum_parts(void* data, int64_t count, dtype type, stream s) const {
  check(library_->ncclReduceScatter(data, own_part(data, count, type), count, type_number(type),
                                    kSum, communicator_, s),
        "summing");
}

void nccl::gather_parts(void* data, int64_t count, dtype type, stream s) const {
  check(library_->ncclAllGather(own_part(data, count, type), data, count, type_number(type),
                                communicator_, s),
        "gathering");
}

}  // namespace gpt2
