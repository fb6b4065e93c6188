#include "scratch.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace plufg {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kMostKept = size_t{256} << 20;

struct Block {
  void* memory;
  size_t bytes;
};

Block allocate_block(size_t bytes) {
  void* memory = std::aligned_alloc(kLargePage, bytes);
  if (!memory) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: where it is refused, small pages serve
#endif
  return {memory, bytes};
}

// The blocks that nobody uses, the one used last at the end. Never destroyed: threads may outlive the
// library's other objects.
struct Pool {
  std::mutex mutex;
  std::vector<Block> blocks;
  size_t bytes = 0;

  Block take(size_t wanted) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
        // Not one much too large: what is left of it would be lost for as long as it is used.
        if (block->bytes < wanted || block->bytes > wanted + wanted / 4 + kLargePage) continue;
        const Block found = *block;
        blocks.erase(std::next(block).base());
        bytes -= found.bytes;
        return found;
      }
    }
    return allocate_block(wanted);
  }

  void give(Block block) {
    if (block.bytes > kMostKept) {
      // It would drive out all others, and then go as well.
      std::free(block.memory);
      return;
    }
    std::vector<Block> dropped;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      blocks.push_back(block);
      bytes += block.bytes;
      while (bytes > kMostKept) {
        dropped.push_back(blocks.front());
        bytes -= blocks.front().bytes;
        blocks.erase(blocks.begin());
      }
    }
    for (const Block& old : dropped) std::free(old.memory);
  }
};

Pool& pool() {
  static Pool& it = *new Pool;
  return it;
}

// A sanitizer finds what is read behind its end only in a block of the very size that was asked for.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeep = false;
#else
constexpr bool kKeep = true;
#endif

}  // namespace

Scratch::Scratch(size_t bytes) {
  if constexpr (kKeep) {
    const Block block = pool().take((bytes + kLargePage - 1) / kLargePage * kLargePage);
    memory_ = block.memory;
    bytes_ = block.bytes;
  } else {
    memory_ = std::malloc(bytes);
    bytes_ = bytes;
    if (!memory_) throw std::bad_alloc();
  }
}

Scratch::~Scratch() {
  if constexpr (kKeep) {
    pool().give({memory_, bytes_});
  } else {
    std::free(memory_);
  }
}

}  // namespace plufg
