#pragma once

#include <cstdint>

#include "penalty.h"

namespace plufg {

// A node signal [rows, bands, channels] as the caller stores it: numbers of T, or of 16 bits where T is
// float, on the CPU of bfloat16 only. Everything else is in T.
enum class Storage : int { full, bfloat16, float16 };
struct Signal {
  void* data = nullptr;
  Storage storage = Storage::full;

  // The signal from its n-th number on.
  template <typename T>
  Signal from(int64_t n) const {
    const int64_t bytes = n * (storage == Storage::full ? static_cast<int64_t>(sizeof(T)) : 2);
    return {data ? static_cast<char*>(data) + bytes : nullptr, storage};
  }
};

// What the steps of one problem share. In scratch memory a row of a band has `width` numbers, its `channels`
// and zeros behind, so that they are whole vectors; the order of rows and bands is the device's own.
template <typename T, typename I>
struct PlapProblem {
  const I* rowptr;  // [rows + 1]
  const I* col;     // [edges]
  const T* weight;  // [edges], null: ones
  const T* dinv;    // [rows]
  const T* p;       // [bands]
  int64_t rows;
  int64_t bands;
  int64_t stride;  // bands of the tensors: from a node to the next
  int64_t channels;
  int64_t width;
  int64_t edges;
  T eps;
  Penalty penalty;
  T parameter;

 protected:
  // For the band() of every stage: the same problem for one band, in the same scratch memory.
  void take_band(int64_t b) {
    p += b;
    bands = 1;
  }
  template <typename X>
  static void move(X*& x, int64_t by) {
    if (x) x += by;
  }
};

// h_i = dinv_i f_i, which is what every edge compares.
template <typename T, typename I>
struct PlapScale : PlapProblem<T, I> {
  Signal f;
  T* h;  // rows x bands x width

  PlapScale band(int64_t b) const {
    PlapScale s = *this;
    s.take_band(b);
    s.f = f.template from<T>(b * this->channels);
    return s;
  }
};

// One step:
//   n2_ij = weight_ij |h_j - h_i|^2 + eps^2,   q_ij = n2_ij^((p-2)/2)
//   N_i   = (sum_j n2_ij^(p/2))^(1/p),         z_i = phi'(N_i) / N_i^(p-1)
//   M_ij  = weight_ij/2 q_ij (z_i + z_j)
//   a_i   = 1 / (dinv_i^2 sum_j M_ij + 2 mu)
//   out_i = a_i (dinv_i sum_j M_ij h_j + 2 mu y_i)
// Where n2 counts as zero (it underflows), q is 1 for p = 2, else 0. For Penalty::power z is the constant p:
// norm and z are null, and one pass over the edges does it all.
template <typename T, typename I>
struct PlapStep : PlapProblem<T, I> {
  const T* h = nullptr;   // rows x bands x width
  const T* mu = nullptr;  // [bands]
  T* norm = nullptr;      // [rows, bands] N
  T* z = nullptr;         // [rows, bands]
  Signal y = {};          // [rows, bands, channels]
  Signal out = {};        // [rows, bands, channels], or no data
  T* next = nullptr;      // rows x bands x width, dinv_i out_i, or null: what the next step starts from
  T* a = nullptr;         // [rows, bands], or null
  T* change = nullptr;    // [rows, bands, 2] |out_i - f_i|^2 and |f_i|^2, or null

  PlapStep band(int64_t b) const {
    PlapStep s = *this;
    s.take_band(b);
    s.mu += b;
    for (T** x : {&s.norm, &s.z, &s.a}) s.move(*x, b);
    s.move(s.change, 2 * b);
    s.y = y.template from<T>(b * this->channels);
    s.out = out.template from<T>(b * this->channels);
    return s;
  }
};

// Its derivative with respect to f and p. With G the gradient of out, u_i = a_i dinv_i G_i and
// s_i = dinv_i <u_i, out_i>:
//   mbar_ij = <u_i, h_j> - s_i                                     the derivative of the loss by M_ij
//   zbar_i  = sum over edges ij and ki of mbar weight/2 q
//   t_i     = zbar_i z'(N_i) N_i^(1-p)
//   c_ij    = weight_ij (mbar_ij M_ij (p - 2) / n2_ij + q_ij t_i)
//   df_i    = dinv_i (sum over receivers k of (M_ki u_k + c_ki (h_i - h_k)) + sum_j c_ij (h_i - h_j))
//   dp_i    = sum_j mbar_ij M_ij ln(n2_ij) / 2 + zbar_i (dz_i/dp + z'(N_i) dN_i/dp)
// c is 0 where n2 is. The CSR lists what a row receives from, its transpose what it sends to; on an
// undirected graph they are the same arrays and one pass over them does both.
template <typename T, typename I>
struct PlapBackward : PlapProblem<T, I> {
  const I* rowptr_t = nullptr;
  const I* col_t = nullptr;
  const T* weight_t = nullptr;
  Signal f = {};
  Signal grad = {};  // G
  Signal out = {};
  const T* a = nullptr;     // [rows, bands]
  const T* norm = nullptr;  // [rows, bands] N, null for Penalty::power
  T* hu = nullptr;          // rows x bands x 2 x width, h and u side by side: an edge needs both
  T* s = nullptr;           // [rows, bands]
  T* z = nullptr;           // [rows, bands], and
  T* t = nullptr;           // [rows, bands], null for Penalty::power
  Signal df = {};
  T* dp = nullptr;  // [rows, bands], null where it is not wanted

  PlapBackward band(int64_t b) const {
    PlapBackward g = *this;
    g.take_band(b);
    g.a += b;
    g.move(g.norm, b);
    for (T** x : {&g.s, &g.z, &g.t, &g.dp}) g.move(*x, b);
    for (Signal* x : {&g.f, &g.grad, &g.out, &g.df}) *x = x->template from<T>(b * this->channels);
    return g;
  }
};

}  // namespace plufg
