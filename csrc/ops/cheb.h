#pragma once

#include <vector>

#include "../common/cheb.h"
#include "allocate.h"
#include "arguments.h"

namespace plufg {

// (L x)_i = diag_i x_i - left_i sum_{j != i} weight_ij right_j x_j, with the transposed graph beside it.
struct ChebOperator {
  const Tensor& rowptr;
  const Tensor& col;
  const OptTensor& weight;
  const Tensor& rowptr_t;
  const Tensor& col_t;
  const OptTensor& weight_t;
  const OptTensor& left;
  const OptTensor& right;
  const OptTensor& diag;

  void check(const Arguments& args) const;

  // A step on it, without signals and coefficients.
  template <typename T, typename I>
  ChebStep<T, I> step(int64_t channels) const {
    ChebStep<T, I> s{};
    s.rowptr = static_cast<const I*>(rowptr.const_data_ptr());
    s.col = static_cast<const I*>(col.const_data_ptr());
    s.weight = data_or_null<T>(weight);
    s.left = data_or_null<T>(left);
    s.right = data_or_null<T>(right);
    s.diag = data_or_null<T>(diag);
    s.rows = rowptr.numel() - 1;
    s.channels = channels;
    s.edges = col.numel();
    return s;
  }
};

void check_cheb_step(const Tensor& x, const OptTensor& prev, const ChebOperator& lap);
void check_cheb_analysis(const Tensor& x, const ChebOperator& lap, const Tensor& weights,
                         const std::vector<double>& recurrence);
void check_cheb_synthesis(const Tensor& z, const ChebOperator& lap, const Tensor& weights,
                          const std::vector<double>& recurrence);

// The operator for one device. `Launch` has a static member template `run(const ChebStep<T, I>&,
// device_index)`.
template <typename Launch>
Tensor cheb_step(Tensor x, OptTensor prev, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t,
                 Tensor col_t, OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag,
                 double alpha, double beta, double gamma) {
  const ChebOperator lap{rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag};
  check_cheb_step(x, prev, lap);
  Tensor out = allocate(x, {x.size(0), x.size(1)});
  if (x.numel() == 0) return out;

  with_types(x, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    ChebStep<T, I> s = lap.template step<T, I>(x.size(1));
    s.x = static_cast<const T*>(x.const_data_ptr());
    s.prev = data_or_null<T>(prev);
    s.out = static_cast<T*>(out.mutable_data_ptr());
    s.alpha = static_cast<T>(alpha);
    s.beta = static_cast<T>(beta);
    s.gamma = static_cast<T>(gamma);
    Launch::run(s, x.get_device_index());
  });
  return out;
}

}  // namespace plufg
