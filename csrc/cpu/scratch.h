#pragma once

#include <cstddef>

namespace plufg {

// Memory to work in, not initialised, on large pages: rows gathered at random from small ones would miss the
// address translation as often as the cache. A few blocks are kept for the next call, for fresh memory costs
// as much as the work it is for.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* data() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_;
  size_t bytes_;
};

}  // namespace plufg
