#pragma once

#include <torch/csrc/stable/tensor.h>

#include <initializer_list>

namespace plufg {

// An uninitialised tensor on the device of `like`. A large one on the CPU takes the memory that Scratch
// keeps: from the system it would come zeroed, at the price of a step, page by page.
torch::stable::Tensor allocate(const torch::stable::Tensor& like, std::initializer_list<int64_t> sizes,
                               std::optional<torch::headeronly::ScalarType> dtype = std::nullopt);

}  // namespace plufg
