#pragma once

#include <tuple>

#include "../common/plap.h"
#include "allocate.h"
#include "arguments.h"

namespace plufg {

void check_plap_step(const Tensor& f, const Tensor& y, const Tensor& rowptr, const Tensor& col,
                     const OptTensor& weight, const Tensor& rowptr_t, const Tensor& col_t,
                     const OptTensor& weight_t, const Tensor& dinv, const Tensor& p, const Tensor& mu);
void check_plap_step_backward(const Tensor& grad, const Tensor& f, const Tensor& out, const Tensor& a,
                              const Tensor& rowptr, const Tensor& col, const OptTensor& weight,
                              const Tensor& rowptr_t, const Tensor& col_t, const OptTensor& weight_t,
                              const Tensor& dinv, const Tensor& p);

// The p-Laplacian step for one device, and its derivative with respect to f and p. `Launch` has a static
// member template `run` for PlapStep<T, I> and for PlapBackward<T, I>.
template <typename Launch>
std::tuple<Tensor, Tensor> plap_step(Tensor f, Tensor y, Tensor rowptr, Tensor col, OptTensor weight,
                                     Tensor rowptr_t, Tensor col_t, OptTensor weight_t, Tensor dinv, Tensor p,
                                     Tensor mu, double eps) {
  check_plap_step(f, y, rowptr, col, weight, rowptr_t, col_t, weight_t, dinv, p, mu);
  Tensor out = allocate(f, {f.size(0), f.size(1), f.size(2)});
  Tensor a = allocate(f, {f.size(0), f.size(1)});
  if (a.numel() == 0) return {out, a};
  with_types(f, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    const auto data = [](const Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); };
    Launch::run(PlapStep<T, I>{
        .f = data(f),
        .y = data(y),
        .rowptr = static_cast<const I*>(rowptr.const_data_ptr()),
        .col = static_cast<const I*>(col.const_data_ptr()),
        .weight = data_or_null<T>(weight),
        .dinv = data(dinv),
        .p = data(p),
        .mu = data(mu),
        .out = static_cast<T*>(out.mutable_data_ptr()),
        .a = static_cast<T*>(a.mutable_data_ptr()),
        .rows = f.size(0),
        .bands = f.size(1),
        .channels = f.size(2),
        .edges = col.numel(),
        .eps = static_cast<T>(eps),
    });
  });
  return {out, a};
}

template <typename Launch>
std::tuple<Tensor, Tensor> plap_step_backward(Tensor grad, Tensor f, Tensor out, Tensor a, Tensor rowptr,
                                              Tensor col, OptTensor weight, Tensor rowptr_t, Tensor col_t,
                                              OptTensor weight_t, Tensor dinv, Tensor p, double eps,
                                              bool need_p) {
  check_plap_step_backward(grad, f, out, a, rowptr, col, weight, rowptr_t, col_t, weight_t, dinv, p);
  Tensor df = allocate(f, {f.size(0), f.size(1), f.size(2)});
  Tensor dp = allocate(f, {need_p ? f.size(0) : 0, f.size(1)});
  if (a.numel() == 0) return {df, dp};
  Tensor scalars = allocate(f, {f.size(0), f.size(1), 2});
  with_types(f, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    const auto data = [](const Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); };
    const auto indices = [](const Tensor& t) { return static_cast<const I*>(t.const_data_ptr()); };
    Launch::run(PlapBackward<T, I>{
        .f = data(f),
        .grad = data(grad),
        .out = data(out),
        .a = data(a),
        .rowptr = indices(rowptr),
        .col = indices(col),
        .weight = data_or_null<T>(weight),
        .rowptr_t = indices(rowptr_t),
        .col_t = indices(col_t),
        .weight_t = data_or_null<T>(weight_t),
        .dinv = data(dinv),
        .p = data(p),
        .scalars = static_cast<T*>(scalars.mutable_data_ptr()),
        .df = static_cast<T*>(df.mutable_data_ptr()),
        .dp = need_p ? static_cast<T*>(dp.mutable_data_ptr()) : nullptr,
        .rows = f.size(0),
        .bands = f.size(1),
        .channels = f.size(2),
        .edges = col.numel(),
        .eps = static_cast<T>(eps),
    });
  });
  return {df, dp};
}

}  // namespace plufg
