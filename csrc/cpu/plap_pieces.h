#pragma once

// What the kernels of a step and of its derivative share: how edges are taken in pieces, and what is computed
// for an edge. Included only by files that are compiled once per instruction set.
#include "elementary.h"
#include "plap.h"

namespace plufg::PLUFG_ISA {
namespace {

template <int N>
struct Size {
  static constexpr int value = N;
};

// Edges are taken in pieces, in three phases: first the terms of all norms, whose sums over channels wait for
// nothing; then sums and powers, a vector of edges at a time; then the additions, from rows that are still in
// the first cache. One edge at a time would wait for sum, root and division in turn. A piece is several whole
// rows, for most rows of most graphs are short, or a part of a row that is longer than a piece.
struct Piece {
  int64_t first;  // rows [first, last)
  int64_t last;
  int64_t start;  // edges [start, stop)
  int64_t stop;
  bool opens;   // the rows have no sums yet
  bool closes;  // the rows are complete after this piece

  template <typename I>
  int64_t from(const I* rowptr, int64_t row) const {
    return rowptr[row] > start ? rowptr[row] : start;
  }
  template <typename I>
  int64_t to(const I* rowptr, int64_t row) const {
    return rowptr[row + 1] < stop ? rowptr[row + 1] : stop;
  }
};

template <typename I, typename Work>
inline void for_pieces(const I* rowptr, int64_t begin, int64_t end, int64_t most, Work work) {
  for (int64_t i = begin; i < end;) {
    const int64_t start = rowptr[i];
    int64_t last = i;
    while (last < end && rowptr[last + 1] - start <= most) ++last;
    if (last > i) {
      work(Piece{i, last, start, rowptr[last], true, true});
      i = last;
      continue;
    }
    const int64_t stop = rowptr[i + 1];
    for (int64_t at = start; at < stop; at += most) {
      const bool closes = at + most >= stop;
      work(Piece{i, i + 1, at, closes ? stop : at + most, at == start, closes});
    }
    ++i;
  }
}

// The memory a thread works in. What a piece reads must fit the first cache along with it.
template <typename T>
struct Workspace {
  int64_t edges;  // of a piece
  T* terms;       // [3, edges, kLanes] sums that are still spread over lanes
  T* values;      // [7, edges]
  T* sums;        // [width] of a row that is not complete
  T* totals;      // [vectors of a row] likewise

  Workspace(T* memory, int64_t width, int64_t row_bytes) {
    constexpr int64_t kFirstCache = 24 << 10;
    edges = kFirstCache / (row_bytes + kVectorBytes) / 16 * 16;
    edges = edges < 16 ? 16 : edges > kPieceEdges ? kPieceEdges : edges;
    terms = memory;
    values = terms + 3 * edges * kLanes<T>;
    sums = values + 7 * edges;
    totals = sums + width;
  }
  T* term(int which) const { return terms + which * edges * kLanes<T>; }
  T* value(int which) const { return values + which * edges; }
};

// How far ahead of edges before `stop` rows are fetched: about the latency of memory, but never beyond the
// last edge.
inline int64_t edges_ahead(int64_t row_bytes, int64_t stop, int64_t edges) {
  const int64_t n = 8192 / row_bytes;
  const int64_t reach = n < 8 ? 8 : n > 32 ? 32 : n;
  return stop + reach <= edges ? reach : 0;
}

// Into the second cache: the first has buffers for a few lines only, and waits when they are taken.
inline void prefetch(const void* row, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += kCacheLine) __builtin_prefetch(static_cast<const char*>(row) + b, 0, 2);
}

// bfloat16 is the upper half of a float.
using Halves = VectorOf<uint16_t, kLanes<float>>::type;
using Words = VectorOf<uint32_t, kLanes<float>>::type;

inline Vector<float> widen(Halves h) {
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(h, Words) << 16);
}

// Rounds to nearest, ties to even; the sum would turn some NaN into infinity.
inline Halves narrow(Vector<float> v) {
  const auto bits = reinterpret_cast<Words>(v);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words nan = Words{} + 0x7fc0;
  return __builtin_convertvector(v == v ? rounded : nan, Halves);
}

// The vector of a signal that starts at number `at`; only `left` of its lanes are the row's, the others 0.
template <typename T>
inline Vector<T> read(Signal x, int64_t at, int64_t left) {
  if constexpr (sizeof(T) == 4) {
    if (x.storage != Storage::full) {
      // A signal without channels has no memory; not even nothing may be copied from there.
      Halves h = {};
      const int64_t lanes = left < kLanes<T> ? left : kLanes<T>;
      if (lanes > 0)
        __builtin_memcpy(&h, static_cast<const uint16_t*>(x.data) + at, static_cast<size_t>(lanes) * 2);
      return widen(h);
    }
  }
  return load(static_cast<const T*>(x.data) + at, left);
}

template <typename T>
inline void write(Signal x, int64_t at, Vector<T> v, int64_t left) {
  if constexpr (sizeof(T) == 4) {
    if (x.storage != Storage::full) {
      const Halves h = narrow(v);
      const int64_t lanes = left < kLanes<T> ? left : kLanes<T>;
      if (lanes > 0)
        __builtin_memcpy(static_cast<uint16_t*>(x.data) + at, &h, static_cast<size_t>(lanes) * 2);
      return;
    }
  }
  store(static_cast<T*>(x.data) + at, v, left);
}

// n2^((p-2)/2), and where n2 counts as zero 1 for p = 2, else 0. The common exponents need square roots only.
template <typename T>
inline Vector<T> powers(Vector<T> n2, T p) {
  const Vector<T> ones = Vector<T>{} + T(1);
  if (p == T(2)) return ones;
  const auto zero = n2 < Format<T>::kLeast;
  const Vector<T> x = zero ? ones : n2;
  Vector<T> q;
  if (p == T(1)) {
    q = inverse_root(x);
  } else if (p == T(1.5)) {
    const Vector<T> y = inverse_root(x);
    q = y * inverse_root(y);
  } else if (p == T(2.5)) {
    q = inverse_root(inverse_root(x));
  } else if (p == T(3)) {
    q = x * inverse_root(x);
  } else {
    q = power(x, (p - T(2)) / T(2));
  }
  return zero ? Vector<T>{} : q;
}

// A row that all edges of another are compared with: V vectors, in registers where there are as many;
// V = 0: in memory, as many as there are.
template <typename T, int V>
struct Centre {
  Vector<T> at[V];
  explicit Centre(const T* row) {
    for (int v = 0; v < V; ++v) at[v] = load(row + v * kLanes<T>);
  }
  Vector<T> operator[](int64_t v) const { return at[v]; }
};
template <typename T>
struct Centre<T, 0> {
  const T* row;
  explicit Centre(const T* r) : row(r) {}
  Vector<T> operator[](int64_t v) const { return load(row + v * kLanes<T>); }
};

// |centre - x|^2, spread over lanes, in two chains of additions
template <int V, typename T>
inline Vector<T> square_distance(const Centre<T, V>& centre, const T* x, int64_t vectors) {
  const auto square = [&](int64_t v) {
    const Vector<T> d = centre[v] - load(x + v * kLanes<T>);
    return d * d;
  };
  Vector<T> even = square(0);
  if (V == 1) return even;
  Vector<T> odd = {};
  if (V) odd = square(1);
  for (int64_t v = V ? 2 : 1; v < (V ? V : vectors); ++v) (v & 1 ? odd : even) += square(v);
  return even + odd;
}

// Calls work(V) with the vectors of a row as a constant where there are 1, 2, 4 or 8; else with 0.
template <typename Work>
inline void with_vectors(int64_t vectors, Work work) {
  switch (vectors) {
    case 1:
      return work(Size<1>());
    case 2:
      return work(Size<2>());
    case 4:
      return work(Size<4>());
    case 8:
      return work(Size<8>());
    default:
      return work(Size<0>());
  }
}

// Calls work(v, V) for tiles that cover a row: V vectors from the v-th on, as many as registers hold.
template <typename Work>
inline void for_tiles(int64_t vectors, Work work) {
  int64_t v = 0;
  for (; v + 8 <= vectors; v += 8) work(v, Size<8>());
  for (; v + 4 <= vectors; v += 4) work(v, Size<4>());
  for (; v + 2 <= vectors; v += 2) work(v, Size<2>());
  for (; v < vectors; ++v) work(v, Size<1>());
}

// n2 of a vector of edges, the k-th of a piece and those behind. Lanes behind the last edge hold anything.
template <typename T, typename I>
inline Vector<T> squares(const PlapProblem<T, I>& s, const T* weight, const Piece& piece,
                         const Workspace<T>& w, int64_t k) {
  Vector<T> n2 = sums(w.term(0) + k * kLanes<T>);
  if (weight) n2 *= load(weight + piece.start + k, piece.stop - piece.start - k);
  return n2 + s.eps * s.eps;
}

// x_i and x_j of every edge added, own and other end as far as they are asked for, into a value.
template <typename T, typename I>
void pair_up(int64_t stride, const I* rowptr, const I* col, const Piece& piece, const T* x,
             const Workspace<T>& w, int into, bool own, bool other) {
  for (int64_t i = piece.first; i < piece.last; ++i) {
    const T xi = own ? x[i * stride] : T(0);
    for (int64_t k = piece.from(rowptr, i); k < piece.to(rowptr, i); ++k) {
      w.value(into)[k - piece.start] = xi + (other ? x[col[k] * stride] : T(0));
    }
  }
}

// Adds a value of its edges to out of the node, for every row of a piece.
template <typename T, typename I>
void add_values(int64_t stride, const I* rowptr, const Piece& piece, const Workspace<T>& w, int which,
                bool fresh, T* out) {
  for (int64_t i = piece.first; i < piece.last; ++i) {
    T total = fresh ? T(0) : out[i * stride];
    for (int64_t k = piece.from(rowptr, i); k < piece.to(rowptr, i); ++k)
      total += w.value(which)[k - piece.start];
    out[i * stride] = total;
  }
}

// M is constant: a step is a plain gather, and so is its derivative by f.
template <typename T, typename I>
inline bool is_linear(const PlapProblem<T, I>& s) {
  return s.penalty == Penalty::power && *s.p == T(2);
}

// Where norms are not needed and one tile covers a row, pieces only end the fetching ahead before the last
// edge.
template <typename T>
inline int64_t linear_piece(const Workspace<T>& w, int64_t vectors) {
  const bool covered = vectors == 1 || vectors == 2 || vectors == 4 || vectors == 8;
  return covered ? 4096 : w.edges;
}

}  // namespace
}  // namespace plufg::PLUFG_ISA
