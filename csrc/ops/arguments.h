#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace plufg {

using torch::stable::Tensor;
using OptTensor = std::optional<Tensor>;
using torch::headeronly::ScalarType;

template <typename T>
T* data(const Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

template <typename T>
const T* data_or_null(const OptTensor& t) {
  return t ? static_cast<const T*>(t->const_data_ptr()) : nullptr;
}

// The precision to compute in: half precision is storage, sums over edges need more.
inline ScalarType work_type(const Tensor& signal) {
  const ScalarType type = signal.scalar_type();
  return type == ScalarType::BFloat16 || type == ScalarType::Half ? ScalarType::Float : type;
}

// Calls run(T(), I()) with the type a signal is computed in and the type of the indices.
template <typename Run>
void with_types(const Tensor& signal, const Tensor& rowptr, Run run) {
  const bool wide = rowptr.scalar_type() == ScalarType::Long;
  if (work_type(signal) == ScalarType::Float) {
    wide ? run(float(), int64_t()) : run(float(), int32_t());
  } else {
    wide ? run(double(), int64_t()) : run(double(), int32_t());
  }
}

// Where the operators are found, as torch.ops.<name>; a test may put a second copy of them elsewhere.
#if !defined(PLUFG_LIBRARY)
#define PLUFG_LIBRARY plufg
#endif

// The arguments that every operator takes a graph by, in a schema.
inline constexpr char kGraphSchema[] =
    "Tensor rowptr, Tensor col, Tensor? weight, Tensor rowptr_t, Tensor col_t, Tensor? weight_t";

// Defines an operator with the tags all of ours have.
template <typename Library>
void define(Library& m, const std::string& schema) {
  m.def(schema.c_str(),
        {torch::headeronly::Tag::pt2_compliant_tag, torch::headeronly::Tag::needs_exact_strides});
}

std::string describe(const Tensor& t);

// What every tensor argument of one operator has to be, checked before a kernel runs: throws
// std::runtime_error naming the argument, what is expected and what came. `x` is the signal it is called
// with, under the name `first`, of shape `shape` with `dims` dimensions.
struct Arguments {
  const char* op;
  const Tensor& x;
  const char* first;
  const char* shape;
  int64_t dims;
  bool bfloat16 = false;  // is welcome
  bool float16 = false;   // likewise

  void layout(const char* name, const Tensor& t) const;

  void signal(const char* name, const Tensor& t) const;

  // [size, B], for a signal [N, B, C]
  void nodes(const char* name, const Tensor& t, int64_t size) const;

  void vector(const char* name, const OptTensor& t, int64_t size, const char* meaning) const;

  void index(const char* name, const Tensor& t, ScalarType dtype, int64_t size, const char* expected) const;

  // Values are the caller's business (a Graph validates them once), except where looking costs nothing: a CSR
  // whose ends do not match its edges. On a GPU even that would wait for the device.
  void ends(const char* name, const Tensor& rowptr, int64_t edges) const;

  // The CSR of a graph and its transpose.
  void graph(const Tensor& rowptr, const Tensor& col, const OptTensor& weight, const Tensor& rowptr_t,
             const Tensor& col_t, const OptTensor& weight_t) const;
};

}  // namespace plufg
