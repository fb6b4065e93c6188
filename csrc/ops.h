#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "common/cheb.h"
#include "common/plap.h"

namespace plufg {

using torch::stable::Tensor;
using OptTensor = std::optional<Tensor>;

// Throws std::runtime_error naming the argument, what is expected and what came.
void check_cheb_step(const Tensor& x, const OptTensor& prev, const Tensor& rowptr, const Tensor& col,
                     const OptTensor& weight, const Tensor& rowptr_t, const Tensor& col_t,
                     const OptTensor& weight_t, const OptTensor& left, const OptTensor& right,
                     const OptTensor& diag);

void check_plap_step(const Tensor& f, const Tensor& y, const Tensor& rowptr, const Tensor& col,
                     const OptTensor& weight, const Tensor& rowptr_t, const Tensor& col_t,
                     const OptTensor& weight_t, const Tensor& dinv, const Tensor& p, const Tensor& mu);
void check_plap_step_backward(const Tensor& grad, const Tensor& f, const Tensor& out, const Tensor& a,
                              const Tensor& rowptr, const Tensor& col, const OptTensor& weight,
                              const Tensor& rowptr_t, const Tensor& col_t, const OptTensor& weight_t,
                              const Tensor& dinv, const Tensor& p);

template <typename T>
const T* data_or_null(const OptTensor& t) {
  return t ? static_cast<const T*>(t->const_data_ptr()) : nullptr;
}

// Calls run(T(), I()) with the scalar type of a signal and the type of the indices.
template <typename Run>
void with_types(const Tensor& signal, const Tensor& rowptr, Run run) {
  const bool wide = rowptr.scalar_type() == torch::headeronly::ScalarType::Long;
  if (signal.scalar_type() == torch::headeronly::ScalarType::Float) {
    wide ? run(float(), int64_t()) : run(float(), int32_t());
  } else {
    wide ? run(double(), int64_t()) : run(double(), int32_t());
  }
}

// The operator for one device. `Launch` has a static member template `run(const ChebStep<T, I>&,
// device_index)`.
template <typename Launch>
Tensor cheb_step(Tensor x, OptTensor prev, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t,
                 Tensor col_t, OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag,
                 double alpha, double beta, double gamma) {
  check_cheb_step(x, prev, rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag);
  Tensor out = torch::stable::empty_like(x);
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

// The p-Laplacian step for one device, and its derivative with respect to f and p. `Launch` has a static
// member template `run` for PlapStep<T, I> and for PlapBackward<T, I>.
template <typename Launch>
std::tuple<Tensor, Tensor> plap_step(Tensor f, Tensor y, Tensor rowptr, Tensor col, OptTensor weight,
                                     Tensor rowptr_t, Tensor col_t, OptTensor weight_t, Tensor dinv, Tensor p,
                                     Tensor mu, double eps) {
  check_plap_step(f, y, rowptr, col, weight, rowptr_t, col_t, weight_t, dinv, p, mu);
  Tensor out = torch::stable::empty_like(f);
  Tensor a = torch::stable::new_empty(f, {f.size(0), f.size(1)});
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
  Tensor df = torch::stable::empty_like(f);
  Tensor dp = torch::stable::new_empty(f, {need_p ? f.size(0) : 0, f.size(1)});
  if (a.numel() == 0) return {df, dp};
  Tensor scalars = torch::stable::new_empty(f, {f.size(0), f.size(1), 2});
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
