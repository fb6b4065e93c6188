#pragma once

// CUDA on a CPU, for tests: include this file and then a `.cuh` of csrc/cuda, and a plain C++20 compiler
// builds its kernels as they are. Every thread of a block is a fiber that runs until it has to wait for
// others; who runs next is drawn from a seed. README.md beside this file says what that can and cannot show.
//
// One launch at a time: the engine belongs to the process and knows no locks.

#include <cxxabi.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

#include "device.h"
#include "fiber.h"
#include "symbols.h"

// Of internal linkage, as AddressSanitizer guards no variable that several translation units may define: this
// is what puts red zones around the static shared arrays of a kernel template.
#define __global__ [[maybe_unused]] static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run one after another, so one copy serves them all; each block finds it poisoned. `used` keeps the
// compiler from reasoning that nobody but the one thread it sees can write there.
#define __shared__ static __attribute__((used))

#define PLUFG_LAUNCH(kernel, blocks, threads, stream, ...) \
  PLUFG_LAUNCH_SHARED(kernel, blocks, threads, 0, stream, __VA_ARGS__)
#define PLUFG_LAUNCH_SHARED(kernel, blocks, threads, bytes, stream, ...) \
  (static_cast<void>(stream), ::simt::launch(kernel, (blocks), (threads), (bytes), __VA_ARGS__))
#define PLUFG_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::simt::engine.dynamic_shared())

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace simt {

using Site = std::source_location;

inline std::string text(const uint3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

inline std::string text(const Site& at) {
  const std::string path = at.file_name();
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(at.line());
}

enum class State : uint8_t { ready, at_block, at_warp, at_active, ended };

struct Thread {
  uint3 index;
  Fiber* fiber = nullptr;  // none until it starts
  State state = State::ready;
  // While it waits:
  const char* what = nullptr;
  Site at = {};
  unsigned mask = 0;
  int source = -1;     // the lane whose value it asks for, -1: all votes
  uint64_t given = 0;  // value or vote
  uint64_t got = 0;

  bool waits() const { return state != State::ready && state != State::ended; }
  bool meets(const Thread& other) const {
    return state == other.state && mask == other.mask && what == other.what && at.line() == other.at.line() &&
           at.column() == other.at.column() &&
           (at.file_name() == other.at.file_name() || !std::strcmp(at.file_name(), other.at.file_name()));
  }
};

class Engine {
 public:
  void seed(uint64_t value) { random_ = value; }
  // How often each kernel has run to its end, by its name as c++filt shows that of nvcc.
  const std::map<std::string, long>& launches() const { return launches_; }

  void launch(const void* kernel, dim3 grid, dim3 block, size_t bytes, const std::function<void()>& body) {
    static const Symbols symbols;
    const std::string& mangled = symbols.name(kernel);
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
    kernel_ = demangled.get();
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    if (threads < 1 || threads > 1024 || block.z > 64) refuse("a block of " + text(block) + " threads");
    if (blocks < 1 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
      refuse("a grid of " + text(grid));
    if (bytes > 48 * 1024) refuse(std::to_string(bytes) + " bytes of dynamic shared memory");

    // From the heap and of the very size: AddressSanitizer watches both ends.
    const std::unique_ptr<unsigned char[]> dynamic(new unsigned char[bytes]);
    dynamic_ = {dynamic.get(), bytes};
    std::vector<Span> shared = symbols.shared(mangled);
    shared.push_back(dynamic_);
    body_ = &body;
    blockDim = block;
    gridDim = grid;
    threads_.resize(threads);
    std::vector<uint64_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    while (!order.empty()) {
      const uint64_t number = take(order);
      blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                  static_cast<unsigned>(number / grid.x / grid.y)};
      for (const Span& span : shared) poison(span);
      run_block();
    }
    ++launches_[kernel_];
  }

  void* dynamic_shared() const { return dynamic_.data; }

  // All threads of the block; returns how many votes were not zero.
  uint64_t meet_block(const char* what, bool vote, Site at) {
    stop_at(State::at_block, what, at, 0, -1, vote);
    if (++arrived_ == threads_.size() &&
        std::all_of(threads_.begin(), threads_.end(),
                    [&](const Thread& other) { return other.meets(*current_); })) {
      uint64_t votes = 0;
      for (const Thread& thread : threads_) votes += thread.given;
      for (Thread& thread : threads_) release(thread, votes);
      arrived_ = 0;
    }
    return wait();
  }

  // The lanes of a mask; each gets the value of lane `source`, or all votes as a mask where that is -1.
  uint64_t meet_warp(const char* what, unsigned mask, int source, uint64_t given, Site at) {
    if (!(mask >> lane() & 1)) refuse(std::string(what) + " by a thread that is not in its mask", at);
    stop_at(State::at_warp, what, at, mask, source, given);
    Thread* const warp = current_ - lane();
    const auto present = threads_.data() + threads_.size() - warp;
    uint64_t votes = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      const int other = std::countr_zero(rest);
      if (other >= present || !warp[other].meets(*current_)) return wait();
      if (warp[other].given) votes |= uint64_t{1} << other;
      const int read = warp[other].source;
      if (read >= 0 && !(mask >> read & 1)) {
        refuse(std::string(what) + " in thread " + text(warp[other].index) + " reads lane " +
                   std::to_string(read) + ", which is not in the mask",
               at);
      }
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      Thread& other = warp[std::countr_zero(rest)];
      release(other, other.source >= 0 ? warp[other.source].given : votes);
    }
    return wait();
  }

  // Which threads happen to run together is up to the hardware: a group of those that came, drawn at random.
  unsigned active(Site at) {
    stop_at(State::at_active, "__activemask", at, 0, -1, 0);
    if (random(16) == 0) release_active(*current_);
    return static_cast<unsigned>(wait());
  }

  int lane() const { return static_cast<int>((current_ - threads_.data()) % warpSize); }

  [[noreturn]] void refuse(const std::string& what) const { throw Error("simt: " + kernel_ + ": " + what); }
  [[noreturn]] void refuse(const std::string& what, Site at) {
    current_->state = State::ready;  // it does not wait any more
    throw Error(where() + ", thread " + text(threadIdx) + ", " + text(at) + ": " + what);
  }

 private:
  struct Stop {};  // unwinds the other threads when one has failed

  std::string where() const { return "simt: " + kernel_ + ", block " + text(blockIdx); }

  uint64_t random(uint64_t below) {  // splitmix64
    uint64_t z = random_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return ((z ^ z >> 31) >> 32) * below >> 32;
  }

  template <typename T>
  T take(std::vector<T>& from) {
    std::swap(from[random(from.size())], from.back());
    T taken = from.back();
    from.pop_back();
    return taken;
  }

  void stop_at(State state, const char* what, Site at, unsigned mask, int source, uint64_t given) {
    Thread& self = *current_;
    self.state = state, self.what = what, self.at = at, self.mask = mask, self.source = source,
    self.given = given;
  }

  void release(Thread& thread, uint64_t got) {
    thread.state = State::ready;
    thread.got = got;
    ready_.push_back(&thread);
  }

  void release_active(const Thread& like) {
    const auto first = (&like - threads_.data()) / warpSize * warpSize;
    const auto last = std::min<ptrdiff_t>(first + warpSize, static_cast<ptrdiff_t>(threads_.size()));
    const Thread pattern = like;
    unsigned mask = 0;
    for (auto i = first; i < last; ++i) mask |= unsigned{threads_[i].meets(pattern)} << (i - first);
    for (auto i = first; i < last; ++i) {
      if (mask >> (i - first) & 1) release(threads_[i], mask);
    }
  }

  void run_block() {
    ready_.clear();
    for (size_t i = 0; i < threads_.size(); ++i) {
      const auto number = static_cast<unsigned>(i);
      threads_[i] =
          Thread{{number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y}};
      ready_.push_back(&threads_[i]);
    }
    arrived_ = ended_ = 0;
    failure_ = nullptr;
    running_ = &main_;
    resume(*take(ready_));
    if (failure_) std::rethrow_exception(failure_);
  }

  void become(Thread& thread) {
    current_ = &thread;
    threadIdx = thread.index;
  }

  void resume(Thread& thread) {
    if (!thread.fiber) {
      if (idle_.empty()) {
        fibers_.push_back(make_fiber(fibers_.size(), &Engine::enter));
        idle_.push_back(fibers_.back().get());
      }
      thread.fiber = idle_.back();
      idle_.pop_back();
    }
    become(thread);
    switch_to(*thread.fiber);
  }

  void switch_to(Fiber& fiber) {
    Fiber& self = *running_;
    running_ = &fiber;
    swap(self, fiber);
  }

  // The running thread waits; whoever may go on is drawn again, and it can be itself.
  __attribute__((noinline)) uint64_t wait() {
    Thread* const self = current_;
    if (ready_.empty()) unblock();
    Thread* const next = take(ready_);
    if (next != self) resume(*next);
    if (failure_) throw Stop{};
    return self->got;
  }

  static void enter();

  // A fiber serves one thread after the other, and one that has to start needs no switch.
  void serve() {
    for (;;) {
      try {
        (*body_)();
      } catch (const Stop&) {
      } catch (...) {
        fail(std::current_exception());
      }
      current_->state = State::ended;
      ++ended_;
      if (ready_.empty() && ended_ < threads_.size()) unblock();
      if (ready_.empty()) {
        idle_.push_back(running_);
        switch_to(main_);
        continue;
      }
      Thread& next = *take(ready_);
      if (!next.fiber) {
        next.fiber = running_;
        become(next);
      } else {
        idle_.push_back(running_);
        resume(next);
      }
    }
  }

  // Nobody can run. Where nobody waits for __activemask either, some wait for a thread that will never come.
  void unblock() {
    for (const Thread& thread : threads_) {
      if (thread.state == State::at_active) return release_active(thread);
    }
    std::string message = where() + ": not every thread came to where others wait for it";
    std::vector<bool> told(threads_.size());
    for (size_t i = 0; i < threads_.size(); ++i) {
      const Thread& first = threads_[i];
      if (told[i]) continue;
      std::string members;
      size_t count = 0;
      for (size_t j = i; j < threads_.size(); ++j) {
        const bool same = first.waits() ? threads_[j].meets(first) : !threads_[j].waits();
        if (!same) continue;
        told[j] = true;
        if (++count <= 4) members += " " + text(threads_[j].index);
      }
      message += "\n  " + std::to_string(count) + " x ";
      if (first.waits()) {
        message += std::string("waits at ") + first.what + ", " + text(first.at);
        if (first.state == State::at_warp) message += ", mask " + hexadecimal(first.mask);
      } else {
        message += "has ended";
      }
      message += ": thread" + members + (count > 4 ? " ..." : "");
    }
    fail(std::make_exception_ptr(Error(message)));
  }

  static std::string hexadecimal(unsigned value) {
    std::string digits;
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[value >> shift & 15];
    return "0x" + digits;
  }

  // The first failure counts. Threads that wait are woken to unwind; those that did not start never do.
  void fail(std::exception_ptr failure) {
    if (!failure_) failure_ = failure;
    ended_ += std::erase_if(ready_, [](const Thread* thread) { return !thread->fiber; });
    for (Thread& thread : threads_) {
      if (thread.waits()) release(thread, 0);
    }
  }

  std::map<std::string, long> launches_;
  uint64_t random_ = 0;
  std::string kernel_;
  const std::function<void()>* body_ = nullptr;
  Span dynamic_{};
  std::vector<Thread> threads_;
  std::vector<Thread*> ready_;
  size_t arrived_ = 0, ended_ = 0;
  std::exception_ptr failure_;
  Thread* current_ = nullptr;
  Fiber main_;
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept between launches
  std::vector<Fiber*> idle_;
};

inline Engine engine;

inline void Engine::enter() {
  arrive(nullptr);
  engine.serve();
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t bytes, Arguments... arguments) {
  // Every thread gets its own copies.
  engine.launch(reinterpret_cast<const void*>(kernel), grid, block, bytes, [&] { kernel(arguments...); });
}

template <typename T>
T shuffle(const char* what, unsigned mask, T value, int source, Site at) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "shuffles move 32 or 64 bits");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = engine.meet_warp(what, mask, source, bits, at);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The first lane of the caller's segment of `width` lanes.
inline int segment(const char* what, int width, Site at) {
  if (width < 1 || width > warpSize || (width & (width - 1))) {
    engine.refuse(std::string(what) + " with a width of " + std::to_string(width), at);
  }
  return engine.lane() & ~(width - 1);
}

}  // namespace simt

inline void __syncthreads(simt::Site at = simt::Site::current()) {
  simt::engine.meet_block("__syncthreads", false, at);
}
inline int __syncthreads_count(int vote, simt::Site at = simt::Site::current()) {
  return static_cast<int>(simt::engine.meet_block("__syncthreads_count", vote != 0, at));
}
inline int __syncthreads_or(int vote, simt::Site at = simt::Site::current()) {
  return simt::engine.meet_block("__syncthreads_or", vote != 0, at) != 0;
}
inline int __syncthreads_and(int vote, simt::Site at = simt::Site::current()) {
  return simt::engine.meet_block("__syncthreads_and", vote == 0, at) == 0;
}

inline void __syncwarp(unsigned mask = 0xffffffff, simt::Site at = simt::Site::current()) {
  simt::engine.meet_warp("__syncwarp", mask, -1, 0, at);
}
inline unsigned __ballot_sync(unsigned mask, int vote, simt::Site at = simt::Site::current()) {
  return static_cast<unsigned>(simt::engine.meet_warp("__ballot_sync", mask, -1, vote != 0, at));
}
inline int __any_sync(unsigned mask, int vote, simt::Site at = simt::Site::current()) {
  return simt::engine.meet_warp("__any_sync", mask, -1, vote != 0, at) != 0;
}
inline int __all_sync(unsigned mask, int vote, simt::Site at = simt::Site::current()) {
  return simt::engine.meet_warp("__all_sync", mask, -1, vote == 0, at) == 0;
}
inline unsigned __activemask(simt::Site at = simt::Site::current()) { return simt::engine.active(at); }

// As the hardware does: a lane that would reach beyond the end of its segment (for _up: before its start)
// gets its own value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, simt::Site at = simt::Site::current()) {
  const int first = simt::segment("__shfl_sync", width, at);
  return simt::shuffle("__shfl_sync", mask, value, first + (source & (width - 1)), at);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 simt::Site at = simt::Site::current()) {
  const int first = simt::segment("__shfl_up_sync", width, at), lane = simt::engine.lane();
  const bool inside = delta <= static_cast<unsigned>(lane - first);
  return simt::shuffle("__shfl_up_sync", mask, value, inside ? lane - static_cast<int>(delta) : lane, at);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   simt::Site at = simt::Site::current()) {
  const int first = simt::segment("__shfl_down_sync", width, at), lane = simt::engine.lane();
  const bool inside = delta < static_cast<unsigned>(first + width - lane);
  return simt::shuffle("__shfl_down_sync", mask, value, inside ? lane + static_cast<int>(delta) : lane, at);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, simt::Site at = simt::Site::current()) {
  const int first = simt::segment("__shfl_xor_sync", width, at), lane = simt::engine.lane();
  const int source = lane ^ (with & 31);
  return simt::shuffle("__shfl_xor_sync", mask, value, source < first + width ? source : lane, at);
}

// Of whole numbers only: sums of floats in the order in which threads happen to come are not repeatable.
template <typename T>
  requires std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to = before + value;
  return before;
}

// Threads of a process see each other's writes in order.
inline void __threadfence() {}
inline void __threadfence_block() {}
