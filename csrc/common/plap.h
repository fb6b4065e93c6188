#pragma once

#include <cstdint>

namespace plufg {

// One step of the p-Laplacian iteration for phi(x) = x^p, as raw pointers. With h_i = dinv_i f_i, which is
// never stored,
//   n2_ij = weight_ij |h_j - h_i|^2 + eps^2,   M_ij = p weight_ij n2_ij^((p-2)/2)
//   a_i   = 1 / (dinv_i^2 sum_j M_ij + 2 mu)
//   out_i = a_i (dinv_i sum_j M_ij h_j + 2 mu y_i)
// weight may be null and then stands for ones. Where n2 counts as zero (it underflows), the power is 1 for p
// = 2, else 0.
template <typename T, typename I>
struct PlapStep {
  const T* f;       // [rows, bands, channels]
  const T* y;       // [rows, bands, channels]
  const I* rowptr;  // [rows + 1]
  const I* col;     // [edges]
  const T* weight;  // [edges]
  const T* dinv;    // [rows]
  const T* p;       // [bands]
  const T* mu;      // [bands]
  T* out;           // [rows, bands, channels]
  T* a;             // [rows, bands]
  int64_t rows;
  int64_t bands;
  int64_t channels;
  int64_t edges;
  T eps;
};

// Its derivative with respect to f and p. With G the gradient of out, u_i = a_i dinv_i G_i (never stored) and
// s_i = dinv_i <u_i, out_i>:
//   mbar_ij = <u_i, h_j> - s_i                                     the derivative of the loss by M_ij
//   c_ij    = mbar_ij M_ij (p - 2) weight_ij / n2_ij
//   df_i    = dinv_i (sum over receivers k of (M_ki u_k + c_ki (h_i - h_k)) + sum_j c_ij (h_i - h_j))
//   dp_i    = sum_j mbar_ij M_ij (1/p + ln(n2_ij) / 2)
// c is 0 where n2 is. The CSR lists what a row receives from, its transpose what it sends to; on an
// undirected graph they are the same arrays and one pass over them does both.
template <typename T, typename I>
struct PlapBackward {
  const T* f;       // [rows, bands, channels]
  const T* grad;    // [rows, bands, channels] G
  const T* out;     // [rows, bands, channels]
  const T* a;       // [rows, bands]
  const I* rowptr;  // [rows + 1]
  const I* col;     // [edges]
  const T* weight;  // [edges]
  const I* rowptr_t;
  const I* col_t;
  const T* weight_t;
  const T* dinv;  // [rows]
  const T* p;     // [bands]
  T* scalars;     // [rows, bands, 2] a_i dinv_i and s_i, written before the rows are
  T* df;          // [rows, bands, channels]
  T* dp;          // [rows, bands], null where it is not wanted
  int64_t rows;
  int64_t bands;
  int64_t channels;
  int64_t edges;
  T eps;
};

}  // namespace plufg
