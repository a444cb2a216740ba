#include "sim/fiber.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#if !defined(__x86_64__)
#error "the simulator switches fibers on x86-64 only"
#endif

// System V ABI: a callee keeps rbx, rbp and r12 to r15; the caller's other registers are dead here.
asm(R"(
  .text
  .globl kittens_sim_switch
  .hidden kittens_sim_switch
  .type kittens_sim_switch, @function
kittens_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size kittens_sim_switch, . - kittens_sim_switch
)");

namespace kittens::sim {

stacks::~stacks() {
  for (uint8_t* piece : pieces_) munmap(piece, kPieceBytes);
}

uint8_t* stacks::bottom(int index) {
  while (static_cast<int>(pieces_.size()) <= index / kPiece) {
    void* p = mmap(nullptr, kPieceBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    pieces_.push_back(static_cast<uint8_t*>(p));
  }
  return pieces_[index / kPiece] + index % kPiece * kStackBytes;
}

void* stacks::prepare(int index, void (*entry)()) {
  for (; guarded_ <= index; ++guarded_) {
    // Best effort: where the system grants no more mappings, the stack is used without its guard.
    mprotect(bottom(guarded_), kGuardBytes, PROT_NONE);
  }
  // Tops that are apart by a multiple of the stack size would share the same cache sets.
  constexpr size_t kCacheLine = 64, kColours = 32;
  uint8_t* const top = bottom(index) + kStackBytes - (index % kColours) * kCacheLine;
  // As kittens_sim_switch leaves a stack: six registers, then where to return to. Above it is the
  // return address of `entry`: null, where unwinding ends.
  constexpr int kRegisters = 6;
  void** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry);
  slot -= kRegisters;
  std::fill_n(slot, kRegisters, nullptr);
  return slot;
}

}  // namespace kittens::sim
