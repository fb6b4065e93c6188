#pragma once

#include <algorithm>
#include <tuple>

#include "../common/plap.h"
#include "allocate.h"
#include "arguments.h"

namespace plufg {

// What the operators of the p-Laplacian share: a signal [N, B, C], a graph and a penalty.
struct PlapArguments {
  const char* op;
  Tensor signal;
  const char* name;  // of the signal
  Tensor rowptr;
  Tensor col;
  OptTensor weight;
  Tensor rowptr_t;
  Tensor col_t;
  OptTensor weight_t;
  Tensor dinv;
  Tensor p;
  double eps;
  int64_t penalty;
  double parameter;

  // Throws std::runtime_error unless all of these and `others`, signals of the same kind, are as they must
  // be.
  Arguments check(bool float16, std::initializer_list<std::pair<const char*, const Tensor*>> others) const;

  bool general() const { return static_cast<Penalty>(penalty) != Penalty::power; }

  // A new tensor in the precision that is computed in.
  Tensor make(std::initializer_list<int64_t> sizes) const {
    return allocate(signal, sizes, work_type(signal));
  }

  // A new [N, B] tensor, or one without rows.
  Tensor make_nodes(bool wanted = true) const { return make({wanted ? signal.size(0) : 0, signal.size(1)}); }

  Tensor make_signal() const { return allocate(signal, {signal.size(0), signal.size(1), signal.size(2)}); }

  template <typename T, typename I>
  PlapProblem<T, I> problem(int64_t vector_bytes) const {
    const int64_t lanes = vector_bytes / static_cast<int64_t>(sizeof(T));
    const int64_t channels = signal.size(2);
    return {
        .rowptr = static_cast<const I*>(rowptr.const_data_ptr()),
        .col = static_cast<const I*>(col.const_data_ptr()),
        .weight = data_or_null<T>(weight),
        .dinv = static_cast<const T*>(dinv.const_data_ptr()),
        .p = static_cast<const T*>(p.const_data_ptr()),
        .rows = signal.size(0),
        .bands = signal.size(1),
        .stride = signal.size(1),
        .channels = channels,
        .width = std::max<int64_t>((channels + lanes - 1) / lanes, 1) * lanes,
        .edges = col.numel(),
        .eps = static_cast<T>(eps),
        .penalty = static_cast<Penalty>(penalty),
        .parameter = static_cast<T>(parameter),
    };
  }
};

inline Signal as_signal(const Tensor& t) {
  const ScalarType type = t.scalar_type();
  return {const_cast<void*>(t.const_data_ptr()), type == ScalarType::BFloat16 ? Storage::bfloat16
                                                 : type == ScalarType::Half   ? Storage::float16
                                                                              : Storage::full};
}

// The operators for one device. A `Launch` is made for the device of a tensor; it runs scale(PlapScale),
// step(PlapStep) and backward(PlapBackward), has scratch(numbers) to work in and says the vector_bytes() that
// rows are filled up to; kFloat16 is whether it takes such signals. Where kWaits, settled(step, tol, taken)
// is whether a step was the last one. A device that nobody waits for decides that itself: then it is false,
// what it is asked for behind its last step is not done, and it counts in `taken`. Where
// kBandsApart, stages get one band at a time.

template <typename Launch>
int64_t parts(int64_t bands) {
  return Launch::kBandsApart ? bands : 1;
}

template <typename Launch, typename S>
S part(const S& s, int64_t b) {
  return Launch::kBandsApart ? s.band(b) : s;
}

// What a part has in scratch memory.
template <typename Launch, typename T, typename I>
int64_t part_numbers(const PlapProblem<T, I>& s) {
  return s.rows * (s.bands / parts<Launch>(s.bands)) * s.width;
}

template <typename Launch>
std::tuple<Tensor, Tensor, Tensor> plap_step(Tensor f, Tensor y, Tensor rowptr, Tensor col, OptTensor weight,
                                             Tensor rowptr_t, Tensor col_t, OptTensor weight_t, Tensor dinv,
                                             Tensor p, Tensor mu, double eps, int64_t penalty,
                                             double parameter) {
  const PlapArguments args{"plufg::plap_step", f,    "f", rowptr, col,     weight,   rowptr_t, col_t,
                           weight_t,           dinv, p,   eps,    penalty, parameter};
  args.check(Launch::kFloat16, {{"y", &y}}).vector("mu", mu, f.size(1), "band");
  Launch launch(f);
  Tensor out = args.make_signal();
  Tensor a = args.make_nodes();
  Tensor norm = args.make_nodes(args.general());
  if (a.numel() == 0) return {out, a, norm};
  with_types(f, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    const PlapProblem<T, I> problem = args.problem<T, I>(launch.vector_bytes());
    const auto h = launch.template scratch<T>(part_numbers<Launch>(problem));
    Tensor z = args.make_nodes(args.general());
    PlapStep<T, I> s{problem};
    s.h = h.template data<T>();
    s.mu = data<T>(mu);
    s.norm = args.general() ? data<T>(norm) : nullptr;
    s.z = args.general() ? data<T>(z) : nullptr;
    s.y = as_signal(y);
    s.out = as_signal(out);
    s.a = data<T>(a);
    const PlapScale<T, I> scale{problem, as_signal(f), h.template data<T>()};
    for (int64_t b = 0; b < parts<Launch>(problem.bands); ++b) {
      launch.scale(part<Launch>(scale, b));
      launch.step(part<Launch>(s, b));
    }
  });
  return {out, a, norm};
}

// Up to `steps` steps from f = y, ended by a relative change below `tol`; and how many. Two buffers take
// turns and hold dinv_i f_i, so that no step has to scale.
template <typename Launch>
std::tuple<Tensor, Tensor> plap_steps(Tensor y, Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t,
                                      Tensor col_t, OptTensor weight_t, Tensor dinv, Tensor p, Tensor mu,
                                      double eps, int64_t penalty, double parameter, int64_t steps,
                                      std::optional<double> tol) {
  const PlapArguments args{"plufg::plap_steps",
                           y,
                           "y",
                           rowptr,
                           col,
                           weight,
                           rowptr_t,
                           col_t,
                           weight_t,
                           dinv,
                           p,
                           eps,
                           penalty,
                           parameter};
  args.check(Launch::kFloat16, {}).vector("mu", mu, y.size(1), "band");
  STD_TORCH_CHECK(steps >= 1, args.op, ": steps must be at least 1, got ", steps);
  Launch launch(y);
  Tensor out = args.make_signal();
  Tensor taken = allocate(y, {}, ScalarType::Long);
  torch::stable::fill_(taken, 0);
  if (y.size(0) == 0 || y.size(1) == 0) {
    torch::stable::fill_(taken, static_cast<double>(tol ? 1 : steps));
    return {out, taken};
  }
  with_types(y, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    const PlapProblem<T, I> problem = args.problem<T, I>(launch.vector_bytes());
    // Bands that stop together take their steps together, others one after another in the same memory.
    const int64_t all = parts<Launch>(problem.bands);
    const int64_t together = tol ? all : 1;
    const int64_t numbers = part_numbers<Launch>(problem);
    const auto even = launch.template scratch<T>(together * numbers);
    const auto odd = launch.template scratch<T>(steps > 1 ? together * numbers : 1);
    Tensor norm = args.make_nodes(args.general());
    Tensor z = args.make_nodes(args.general());
    Tensor change = args.make({tol ? problem.rows : 0, problem.bands, 2});
    PlapStep<T, I> s{problem};
    s.mu = data<T>(mu);
    s.norm = args.general() ? data<T>(norm) : nullptr;
    s.z = args.general() ? data<T>(z) : nullptr;
    s.y = as_signal(y);
    s.change = tol ? data<T>(change) : nullptr;
    int64_t count = 0;
    for (int64_t first = 0; first < all; first += together) {
      T* current = even.template data<T>();
      T* next = odd.template data<T>();
      for (int64_t k = 0; k < together; ++k) {
        const PlapScale<T, I> scale{problem, as_signal(y), current + k * numbers};
        launch.scale(part<Launch>(scale, first + k));
      }
      for (count = 0; count < steps;) {
        const bool last = ++count == steps;
        s.out = last || tol ? as_signal(out) : Signal{};
        for (int64_t k = 0; k < together; ++k) {
          s.h = current + k * numbers;
          s.next = last ? nullptr : next + k * numbers;
          launch.step(part<Launch>(s, first + k));
        }
        if (tol && launch.settled(s, *tol, taken)) break;
        std::swap(current, next);
      }
    }
    if (Launch::kWaits || !tol) torch::stable::fill_(taken, static_cast<double>(count));
  });
  return {out, taken};
}

template <typename Launch>
std::tuple<Tensor, Tensor> plap_step_backward(Tensor grad, Tensor f, Tensor out, Tensor a, Tensor norm,
                                              Tensor rowptr, Tensor col, OptTensor weight, Tensor rowptr_t,
                                              Tensor col_t, OptTensor weight_t, Tensor dinv, Tensor p,
                                              double eps, int64_t penalty, double parameter, bool need_p) {
  const PlapArguments args{"plufg::plap_step_backward",
                           f,
                           "f",
                           rowptr,
                           col,
                           weight,
                           rowptr_t,
                           col_t,
                           weight_t,
                           dinv,
                           p,
                           eps,
                           penalty,
                           parameter};
  const Arguments checked = args.check(Launch::kFloat16, {{"grad", &grad}, {"out", &out}});
  checked.nodes("a", a, f.size(0));
  checked.nodes("norm", norm, args.general() ? f.size(0) : 0);
  Launch launch(f);
  Tensor df = args.make_signal();
  Tensor dp = args.make_nodes(need_p);
  if (a.numel() == 0) return {df, dp};
  with_types(f, rowptr, [&](auto scalar, auto index) {
    using T = decltype(scalar);
    using I = decltype(index);
    const PlapProblem<T, I> problem = args.problem<T, I>(launch.vector_bytes());
    const auto hu = launch.template scratch<T>(2 * part_numbers<Launch>(problem));
    Tensor scalars = args.make_nodes();
    Tensor z = args.make_nodes(args.general());
    Tensor t = args.make_nodes(args.general());
    PlapBackward<T, I> s{problem};
    s.rowptr_t = data<I>(rowptr_t);
    s.col_t = data<I>(col_t);
    s.weight_t = data_or_null<T>(weight_t);
    s.f = as_signal(f);
    s.grad = as_signal(grad);
    s.out = as_signal(out);
    s.a = data<T>(a);
    s.norm = args.general() ? data<T>(norm) : nullptr;
    s.hu = hu.template data<T>();
    s.s = data<T>(scalars);
    s.z = args.general() ? data<T>(z) : nullptr;
    s.t = args.general() ? data<T>(t) : nullptr;
    s.df = as_signal(df);
    s.dp = need_p ? data<T>(dp) : nullptr;
    for (int64_t b = 0; b < parts<Launch>(problem.bands); ++b) launch.backward(part<Launch>(s, b));
  });
  return {df, dp};
}

}  // namespace plufg
