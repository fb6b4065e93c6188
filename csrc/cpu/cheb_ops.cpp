// Runs the CPU kernels of cheb over whole recurrences and registers them.
#include "../ops/cheb.h"
#include "cheb.h"
#include "parallel.h"

namespace plufg {
namespace {

struct CpuLaunch {
  template <typename T, typename I>
  static void run(const ChebStep<T, I>& s, int32_t /*device*/) {
    parallel_rows(s, s.channels,
                  [](const auto& t, int64_t begin, int64_t end) { PLUFG_CHOOSE(cheb_step, t, begin, end) });
  }
};

template <typename T, typename I>
void run(const ChebAnalysis<T, I>& s) {
  parallel_rows(s.step, s.step.channels,
                [&](const auto&, int64_t begin, int64_t end) { PLUFG_CHOOSE(cheb_analysis, s, begin, end) });
}

template <typename T, typename I>
void run(const ChebSynthesis<T, I>& s) {
  parallel_rows(s.step, s.step.channels,
                [&](const auto&, int64_t begin, int64_t end) { PLUFG_CHOOSE(cheb_synthesis, s, begin, end) });
}

// weight_ij right_j, edge after edge: several steps on one operator read it in order instead of fetching
// right_j from anywhere, which costs a fifth of a step.
template <typename T, typename I>
OptTensor sent_weights(const ChebOperator& lap, ChebStep<T, I>& s, int64_t steps) {
  if (!s.right || steps < 2) return std::nullopt;
  OptTensor sent = allocate(*lap.right, {s.edges});
  torch::stable::parallel_for(0, s.edges, kGrain, [&, to = data<T>(*sent)](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) to[e] = cheb_edge(s, e, static_cast<int64_t>(s.col[e]));
  });
  s.weight = data<T>(*sent);
  s.right = nullptr;
  return sent;
}

Tensor cheb_analysis(Tensor x, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t, Tensor col_t,
                     OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag, Tensor weights,
                     std::vector<double> recurrence) {
  const ChebOperator lap{rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag};
  check_cheb_analysis(x, lap, weights, recurrence);
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
      return run(s);
    }
    const OptTensor sent = sent_weights(lap, s.step, degree);
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
      run(s);
      s.step.prev = s.step.x;
      s.step.x = s.step.out;
    }
  });
  return z;
}

Tensor cheb_synthesis(Tensor z, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t, Tensor col_t,
                      OptTensor weight_t, OptTensor left, OptTensor right, OptTensor diag, Tensor weights,
                      std::vector<double> recurrence, bool sum_bands) {
  const ChebOperator lap{rowptr, col, weight, rowptr_t, col_t, weight_t, left, right, diag};
  check_cheb_synthesis(z, lap, weights, recurrence);
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
    const OptTensor sent = sent_weights(lap, s.step, degree);
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
      run(s);
      s.step.prev = s.step.x;
      s.step.x = s.step.out;
    }
  });
  return out;
}

}  // namespace
}  // namespace plufg

STABLE_TORCH_LIBRARY_IMPL(plufg, CPU, m) {
  m.impl("cheb_step", TORCH_BOX(&plufg::cheb_step<plufg::CpuLaunch>));
  m.impl("cheb_analysis", TORCH_BOX(&plufg::cheb_analysis));
  m.impl("cheb_synthesis", TORCH_BOX(&plufg::cheb_synthesis));
}
