#include "allocate.h"

#include <torch/csrc/stable/ops.h>

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace plufg {
namespace {

constexpr int64_t kLargePage = int64_t{2} << 20;
// Below this the allocator of the C library keeps and reuses memory, and there is nothing to gain.
constexpr int64_t kLeastBytes = 2 * kLargePage;

void prefer_large_pages(const torch::stable::Tensor& t) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const int64_t bytes = t.numel() * static_cast<int64_t>(t.element_size());
  if (!t.is_cpu() || bytes < kLeastBytes) return;
  const auto address = reinterpret_cast<intptr_t>(t.mutable_data_ptr());
  const intptr_t begin = (address + kLargePage - 1) / kLargePage * kLargePage;
  const intptr_t end = (address + bytes) / kLargePage * kLargePage;
  // Advice only: where it is refused, small pages serve.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), static_cast<size_t>(end - begin), MADV_HUGEPAGE);
#else
  (void)t;
#endif
}

}  // namespace

torch::stable::Tensor allocate(const torch::stable::Tensor& like, std::initializer_list<int64_t> sizes,
                               std::optional<torch::headeronly::ScalarType> dtype) {
  const torch::stable::Tensor t = torch::stable::new_empty(like, sizes, dtype);
  prefer_large_pages(t);
  return t;
}

}  // namespace plufg
