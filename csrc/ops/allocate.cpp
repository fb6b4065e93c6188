#include "allocate.h"

#include <torch/csrc/stable/ops.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "../cpu/scratch.h"

namespace plufg {
namespace {

// Below this the C library keeps and reuses memory itself, and there is nothing to gain.
constexpr int64_t kLeastBytes = int64_t{1} << 20;

int64_t size_of(torch::headeronly::ScalarType dtype) {
  using torch::headeronly::ScalarType;
  if (dtype == ScalarType::Double || dtype == ScalarType::Long) return 8;
  return dtype == ScalarType::BFloat16 || dtype == ScalarType::Half ? 2 : 4;
}

}  // namespace

torch::stable::Tensor allocate(const torch::stable::Tensor& like, std::initializer_list<int64_t> sizes,
                               std::optional<torch::headeronly::ScalarType> dtype) {
  const auto type = dtype.value_or(like.scalar_type());
  const int64_t numbers = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const int64_t bytes = numbers * size_of(type);
  if (!like.is_cpu() || bytes < kLeastBytes) return torch::stable::new_empty(like, sizes, dtype);
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes.begin()[d];
  const auto* memory = new Scratch(static_cast<size_t>(bytes));
  return torch::stable::from_blob(memory->data<void>(), sizes, strides, like.device(), type,
                                  [memory](void*) { delete memory; });
}

}  // namespace plufg
