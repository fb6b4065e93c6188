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

// The operators for one device. A `Launch` is made for the device of a tensor; run() takes one step, a
// ChebStep, ChebAnalysis or ChebSynthesis, and send(step, to) writes weight_ij right_j, edge after edge.

template <typename Launch>
Tensor cheb_step(Tensor x, OptTensor prev, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t,
                 Tensor col_t, OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag,
                 double alpha, double beta, double gamma) {
  const ChebOperator lap{rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag};
  check_cheb_step(x, prev, lap);
  const Launch launch(x);
  Tensor out = allocate(x, {x.size(0), x.size(1)});
  if (x.numel() == 0) return out;

  with_types(x, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    ChebStep<T, I> s = lap.template step<T, I>(x.size(1));
    s.x = static_cast<const T*>(x.const_data_ptr());
    s.prev = data_or_null<T>(prev);
    s.out = data<T>(out);
    s.alpha = static_cast<T>(alpha);
    s.beta = static_cast<T>(beta);
    s.gamma = static_cast<T>(gamma);
    launch.run(s);
  });
  return out;
}

// Several steps on one operator read weight_ij right_j in order instead of fetching right_j from anywhere,
// which on the CPU costs a fifth of a step.
template <typename Launch, typename T, typename I>
OptTensor sent_weights(const Launch& launch, const ChebOperator& lap, ChebStep<T, I>& s, int64_t steps) {
  if (!s.right || steps < 2) return std::nullopt;
  OptTensor sent = allocate(*lap.right, {s.edges});
  launch.send(s, data<T>(*sent));
  s.weight = data<T>(*sent);
  s.right = nullptr;
  return sent;
}

template <typename Launch>
Tensor cheb_analysis(Tensor x, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t, Tensor col_t,
                     OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag, Tensor weights,
                     std::vector<double> recurrence) {
  const ChebOperator lap{rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag};
  check_cheb_analysis(x, lap, weights, recurrence);
  const Launch launch(x);
  const int64_t degree = weights.size(1) - 1;
  Tensor z = allocate(x, {x.size(0), weights.size(0), x.size(1)});
  if (x.numel() == 0) return z;

  with_types(x, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    ChebAnalysis<T, I> s{};
    s.step = lap.template step<T, I>(x.size(1));
    s.first = static_cast<const T*>(x.const_data_ptr());
    s.filters = weights.size(0);
    s.terms = weights.size(1);
    const auto w = static_cast<const T*>(weights.const_data_ptr());
    if (degree == 0) {
      s.step.prev = s.first;
      s.step.gamma = T(1);
      s.bands = data<T>(z);
      s.weights = w;
      s.taps = 1;
      return launch.run(s);
    }
    const OptTensor sent = sent_weights(launch, lap, s.step, degree);
    // T_k takes the place of T_{k-2}; the last one is not kept.
    OptTensor kept[2];
    s.step.x = s.first;
    for (int64_t k = 1; k <= degree; ++k) {
      OptTensor& own = kept[k % 2];
      if (k < degree && !own) own = allocate(x, {x.size(0), x.size(1)});
      s.step.out = k < degree ? data<T>(*own) : nullptr;
      const double* step = &recurrence[3 * (k - 1)];
      s.step.alpha = static_cast<T>(step[0]);
      s.step.beta = static_cast<T>(step[1]);
      s.step.gamma = static_cast<T>(step[2]);
      // A step has three terms at hand, so the bands are touched by every third step only, counted from the
      // last.
      s.bands = (degree - k) % 3 == 0 ? data<T>(z) : nullptr;
      s.weights = w + k;
      s.add = k > 3;
      s.taps = s.add ? 3 : k + 1;
      launch.run(s);
      s.step.prev = s.step.x;
      s.step.x = s.step.out;
    }
  });
  return z;
}

template <typename Launch>
Tensor cheb_synthesis(Tensor z, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t, Tensor col_t,
                      OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag, Tensor weights,
                      std::vector<double> recurrence, bool sum_bands) {
  const ChebOperator lap{rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag};
  check_cheb_synthesis(z, lap, weights, recurrence);
  const Launch launch(z);
  const int64_t nodes = z.size(0), filters = z.size(1), channels = z.size(2), degree = weights.size(1) - 1;
  Tensor out = sum_bands ? allocate(z, {nodes, channels}) : allocate(z, {nodes, filters, channels});
  if (z.numel() == 0) return out;

  with_types(z, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    const auto w = static_cast<const T*>(weights.const_data_ptr());
    ChebSynthesis<T, I> s{};
    s.step = lap.template step<T, I>(sum_bands ? channels : filters * channels);
    s.bands = static_cast<const T*>(z.const_data_ptr());
    s.filters = filters;
    s.apart = !sum_bands;
    s.terms = degree + 1;
    const OptTensor sent = sent_weights(launch, lap, s.step, degree);
    OptTensor other;
    if (degree > 0) other = allocate(z, {nodes, s.step.channels});
    for (int64_t k = degree; k >= 0; --k) {
      // B_k takes the place of B_{k+2}, and B_0 is what is returned.
      s.step.out = data<T>(k % 2 ? *other : out);
      s.weights = w + k;
      if (k < degree) {
        s.step.alpha = static_cast<T>(recurrence[3 * k]);
        s.step.beta = static_cast<T>(recurrence[3 * k + 1]);
      }
      if (k + 1 < degree) s.step.gamma = static_cast<T>(recurrence[3 * (k + 1) + 2]);
      launch.run(s);
      s.step.prev = s.step.x;
      s.step.x = s.step.out;
    }
  });
  return out;
}

}  // namespace plufg
