#pragma once

#include <torch/csrc/stable/tensor.h>

#include <initializer_list>

namespace plufg {

// An uninitialised tensor of the device of `like`. A large one on the CPU asks the system for large pages:
// fresh memory then costs a few page faults instead of one per 4 kB, and rows gathered from it fewer misses
// of the address translation.
torch::stable::Tensor allocate(const torch::stable::Tensor& like, std::initializer_list<int64_t> sizes,
                               std::optional<torch::headeronly::ScalarType> dtype = std::nullopt);

}  // namespace plufg
