#pragma once

#include <cstdint>

#include "macros.h"

namespace plufg {

// One step of a three-term recurrence on L, as raw pointers:
//   out_i = alpha (diag_i x_i - left_i sum_{j in row i, j != i} weight_ij right_j x_j) + beta x_i + gamma
//   prev_i
// weight, left, right and diag may be null and then stand for ones; a null prev stands for zeros.
template <typename T, typename I>
struct ChebStep {
  const T* x;       // [rows, channels]
  const T* prev;    // [rows, channels]
  const I* rowptr;  // [rows + 1]
  const I* col;     // [edges]
  const T* weight;  // [edges]
  const T* left;    // [rows]
  const T* right;   // [rows]
  const T* diag;    // [rows]
  T* out;           // [rows, channels]
  int64_t rows;
  int64_t channels;
  int64_t edges;
  T alpha;
  T beta;
  T gamma;
};

// A step of an analysis: `step.out` is T_k x, made of T_{k-1} x and T_{k-2} x, and null where no later step
// reads it. Where bands is not null, bands_r (+)= sum_{t < taps} weights_{r,-t} T_{k-t} x as well; the fourth
// tap is T_0 x. A null step.x stands for zeros that nothing is gathered from.
template <typename T, typename I>
struct ChebAnalysis {
  ChebStep<T, I> step;
  const T* first;    // [rows, channels] T_0 x, read by the fourth tap
  const T* weights;  // column k of [filters, terms]
  T* bands;          // [rows, filters, channels]
  int64_t filters;
  int64_t terms;
  int64_t taps;  // 1 to 4
  bool add;      // to what bands hold already
};

// A step of Clenshaw's sweep: what is written is the step and sum_r weights_r bands_r. Where the bands are
// kept apart, the channels of the step are those of all bands, and each gets its own. A null step.x as above.
template <typename T, typename I>
struct ChebSynthesis {
  ChebStep<T, I> step;
  const T* bands;    // [rows, filters, channels], apart: [rows, channels]
  const T* weights;  // a column of [filters, terms]
  int64_t filters;
  int64_t terms;
  bool apart;
};

// out_i = self x_i + sum (the gathered neighbours) + gamma prev_i
template <typename T>
struct ChebRow {
  T self;
  T sum;
};

// The functions are `static`: the CPU kernels are compiled once per instruction set, and with external
// linkage the linker would keep one copy for all of them, possibly one that the running CPU cannot execute.
template <typename T, typename I>
static inline PLUFG_HD ChebRow<T> cheb_row(const ChebStep<T, I>& s, int64_t i) {
  const T self = s.diag ? s.alpha * s.diag[i] + s.beta : s.alpha + s.beta;
  return {self, s.left ? -s.alpha * s.left[i] : -s.alpha};
}

template <typename T, typename I>
static inline PLUFG_HD T cheb_edge(const ChebStep<T, I>& s, int64_t e, int64_t j) {
  const T w = s.weight ? s.weight[e] : T(1);
  return s.right ? w * s.right[j] : w;
}

}  // namespace plufg
