#pragma once

// Stacks that a thread of the CPU can change between.

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

#if !defined(__x86_64__) && !defined(SIMT_UCONTEXT)
#define SIMT_UCONTEXT
#endif
#if defined(SIMT_UCONTEXT)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

#if !defined(SIMT_UCONTEXT)
// What swapcontext does, without its two calls of the kernel for signals that nobody masks here.
asm(R"(
  .pushsection .text
  .weak simt_swap
  .hidden simt_swap
  .type simt_swap, @function
simt_swap:
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
  .size simt_swap, .-simt_swap
  .popsection
)");
extern "C" void simt_swap(void** save, void* resume);
#endif

struct Fiber {
#if defined(SIMT_UCONTEXT)
  ucontext_t context;
#else
  void* context = nullptr;  // its stack pointer
#endif
  // For AddressSanitizer, which has to know on which stack it is.
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
};

inline Fiber* left = nullptr;  // the fiber that the running one was entered from

// After every arrival on a stack. The bounds of the stack left behind are the only way to learn those of
// main.
inline void arrive([[maybe_unused]] Fiber* self) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self ? self->fake_stack : nullptr, &left->bottom, &left->size);
#endif
}

inline void swap(Fiber& from, Fiber& to) {
  left = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
#endif
#if defined(SIMT_UCONTEXT)
  swapcontext(&from.context, &to.context);
#else
  simt_swap(&from.context, to.context);
#endif
  arrive(&from);
}

inline std::unique_ptr<Fiber> make_fiber(size_t number, void (*entry)()) {
  constexpr size_t kGuard = 4096, kSize = 256 * 1024;
  void* memory = mmap(nullptr, kGuard + kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuard, PROT_NONE);
  auto fiber = std::make_unique<Fiber>();
  auto* const bottom = static_cast<unsigned char*>(memory) + kGuard;
  // Stacks that all start at the same place of a page would fight for the same few lines of the cache.
  const size_t size = kSize - number % 32 * 192;
  fiber->bottom = bottom;
  fiber->size = size;
#if defined(SIMT_UCONTEXT)
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = bottom;
  fiber->context.uc_stack.ss_size = size;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
#else
  // What simt_swap takes off the stack: six registers and where to go; one more word aligns as a call would.
  auto** const top = reinterpret_cast<void**>(bottom + size);
  top[-2] = reinterpret_cast<void*>(entry);
  fiber->context = top - 8;
#endif
  return fiber;
}

}  // namespace simt
