#pragma once

#include "../common/cheb.h"
#include "allocate.h"
#include "arguments.h"

namespace plufg {

void check_cheb_step(const Tensor& x, const OptTensor& prev, const Tensor& rowptr, const Tensor& col,
                     const OptTensor& weight, const Tensor& rowptr_t, const Tensor& col_t,
                     const OptTensor& weight_t, const OptTensor& left, const OptTensor& right,
                     const OptTensor& diag);

// The operator for one device. `Launch` has a static member template `run(const ChebStep<T, I>&,
// device_index)`.
template <typename Launch>
Tensor cheb_step(Tensor x, OptTensor prev, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t,
                 Tensor col_t, OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag,
                 double alpha, double beta, double gamma) {
  check_cheb_step(x, prev, rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag);
  Tensor out = allocate(x, {x.size(0), x.size(1)});
  if (x.numel() == 0) return out;

  with_types(x, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    Launch::run(
        ChebStep<T, I>{
            .x = static_cast<const T*>(x.const_data_ptr()),
            .prev = data_or_null<T>(prev),
            .rowptr = static_cast<const I*>(rowptr.const_data_ptr()),
            .col = static_cast<const I*>(col.const_data_ptr()),
            .weight = data_or_null<T>(weight),
            .left = data_or_null<T>(left),
            .right = data_or_null<T>(right),
            .diag = data_or_null<T>(diag),
            .out = static_cast<T*>(out.mutable_data_ptr()),
            .rows = x.size(0),
            .channels = x.size(1),
            .edges = col.numel(),
            .alpha = static_cast<T>(alpha),
            .beta = static_cast<T>(beta),
            .gamma = static_cast<T>(gamma),
        },
        x.get_device_index());
  });
  return out;
}

}  // namespace plufg
