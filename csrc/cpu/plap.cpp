// Compiled once per instruction set, with PLUFG_ISA naming the namespace. Nothing here may come from the
// standard library or from torch: an inline function compiled with wide instructions could be picked by the
// linker for all.
#include "plap.h"

#include "elementary.h"

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
  T* terms;       // [3, bands, edges, kLanes] sums that are still spread over lanes
  T* values;      // [7, bands, edges]
  T* sums;        // [bands, width] of a row that is not complete
  T* totals;      // [bands, vectors of a row] likewise
  int64_t bands;

  Workspace(T* memory, int64_t bands_, int64_t width, int64_t row_bytes) : bands(bands_) {
    constexpr int64_t kFirstCache = 24 << 10;
    edges = kFirstCache / (row_bytes + bands * kVectorBytes) / 16 * 16;
    edges = edges < 16 ? 16 : edges > kPieceEdges ? kPieceEdges : edges;
    terms = memory;
    values = terms + 3 * bands * edges * kLanes<T>;
    sums = values + 7 * bands * edges;
    totals = sums + bands * width;
  }
  T* term(int which, int64_t band) const { return terms + (which * bands + band) * edges * kLanes<T>; }
  T* value(int which, int64_t band) const { return values + (which * bands + band) * edges; }
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

// Phase one of a step: the terms of |h_j - h_i|^2 for every edge and band of a piece.
template <int V, typename T, typename I>
void compare(const PlapStep<T, I>& s, const Piece& piece, const Workspace<T>& w) {
  const int64_t width = V ? V * kLanes<T> : s.width;
  const int64_t vectors = width / kLanes<T>;
  const int64_t stride = s.bands * width;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(T));
  const I* ahead = s.col + edges_ahead(bytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    const int64_t to = piece.to(s.rowptr, i);
    const T* hi = s.h + i * stride;
    if (s.bands == 1) {
      const Centre<T, V> centre(hi);
      for (int64_t k = piece.from(s.rowptr, i); k < to; ++k) {
        prefetch(s.h + ahead[k] * stride, V ? V * kVectorBytes : bytes);
        store(w.term(0, 0) + (k - piece.start) * kLanes<T>,
              square_distance(centre, s.h + s.col[k] * stride, vectors));
      }
    } else {
      for (int64_t k = piece.from(s.rowptr, i); k < to; ++k) {
        prefetch(s.h + ahead[k] * stride, bytes);
        const T* hj = s.h + s.col[k] * stride;
        for (int64_t b = 0; b < s.bands; ++b) {
          const Centre<T, V> centre(hi + b * width);
          store(w.term(0, b) + (k - piece.start) * kLanes<T>,
                square_distance(centre, hj + b * width, vectors));
        }
      }
    }
  }
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

// n2 of a vector of edges, the k-th of a piece and those behind. Lanes behind the last edge hold anything.
template <typename T, typename I>
inline Vector<T> squares(const PlapProblem<T, I>& s, const T* weight, const Piece& piece,
                         const Workspace<T>& w, int64_t band, int64_t k) {
  Vector<T> n2 = sums(w.term(0, band) + k * kLanes<T>);
  if (weight) n2 *= load(weight + piece.start + k, piece.stop - piece.start - k);
  return n2 + s.eps * s.eps;
}

// Phases one and two of a step: calls use(band, k, n2, q) for all edges of a piece, a vector at a time, with
// k counted from the piece's first edge.
template <typename T, typename I, typename Use>
inline void weigh(const PlapStep<T, I>& s, const Piece& piece, const Workspace<T>& w, Use use) {
  with_vectors(s.width / kLanes<T>, [&](auto v) { compare<v.value>(s, piece, w); });
  for (int64_t b = 0; b < s.bands; ++b) {
    for (int64_t k = 0; k < piece.stop - piece.start; k += kLanes<T>) {
      const Vector<T> n2 = squares(s, s.weight, piece, w, b, k);
      use(b, k, n2, powers(n2, s.p[b]));
    }
  }
}

// x_i and x_j of every edge added, own and other end as far as they are asked for, into a value.
template <typename T, typename I>
void pair_up(int64_t bands, const I* rowptr, const I* col, const Piece& piece, const T* x,
             const Workspace<T>& w, int into, bool own, bool other) {
  for (int64_t i = piece.first; i < piece.last; ++i) {
    for (int64_t k = piece.from(rowptr, i); k < piece.to(rowptr, i); ++k) {
      for (int64_t b = 0; b < bands; ++b) {
        const T xi = own ? x[i * bands + b] : T(0);
        w.value(into, b)[k - piece.start] = xi + (other ? x[col[k] * bands + b] : T(0));
      }
    }
  }
}

// Adds a value of its edges to out[node], for every row of a piece.
template <typename T, typename I>
void add_values(const PlapProblem<T, I>& s, const I* rowptr, const Piece& piece, const Workspace<T>& w,
                int which, bool fresh, T* out) {
  for (int64_t i = piece.first; i < piece.last; ++i) {
    for (int64_t b = 0; b < s.bands; ++b) {
      const T* value = w.value(which, b);
      T total = fresh ? T(0) : out[i * s.bands + b];
      for (int64_t k = piece.from(rowptr, i); k < piece.to(rowptr, i); ++k) total += value[k - piece.start];
      out[i * s.bands + b] = total;
    }
  }
}

// Which part of all rows a loop is about: N bands from `band` on, V vectors of each from `vector` on.
struct Tile {
  int64_t band;
  int64_t vector;
};

// Calls work(tile, N, V) for tiles that cover all bands and vectors: a few bands together where they fit the
// registers, a part of one where it does not.
template <int kBands, typename Work>
inline void for_tiles(int64_t bands, int64_t vectors, Work work) {
  const auto whole = [&](auto v) {
    int64_t b = 0;
    if constexpr (kBands >= 3) {
      for (; b + 3 <= bands; b += 3) work(Tile{b, 0}, Size<3>(), v);
      for (; b + 2 <= bands; b += 2) work(Tile{b, 0}, Size<2>(), v);
    }
    for (; b < bands; ++b) work(Tile{b, 0}, Size<1>(), v);
  };
  if (vectors == 1) return whole(Size<1>());
  if (vectors == 2) return whole(Size<2>());
  if (vectors == 4) return whole(Size<4>());
  for (int64_t b = 0; b < bands; ++b) {
    int64_t v = 0;
    for (; v + 8 <= vectors; v += 8) work(Tile{b, v}, Size<1>(), Size<8>());
    for (; v + 4 <= vectors; v += 4) work(Tile{b, v}, Size<1>(), Size<4>());
    for (; v + 2 <= vectors; v += 2) work(Tile{b, v}, Size<1>(), Size<2>());
    for (; v < vectors; ++v) work(Tile{b, v}, Size<1>(), Size<1>());
  }
}

// The end of row i where more than a plain row is asked for: `acc` holds the new values of a band.
template <typename T, typename I>
__attribute__((noinline)) void finish_with_care(const PlapStep<T, I>& s, int64_t i, Tile tile, int vectors,
                                                const Vector<T>* acc) {
  const int64_t node = i * s.bands + tile.band;
  const int64_t first = tile.vector * kLanes<T>;
  const T d = s.dinv[i];
  Vector<T> changed = {};
  Vector<T> size = {};
  for (int v = 0; v < vectors; ++v) {
    const int64_t c = first + v * kLanes<T>;
    if (s.out.data) write<T>(s.out, node * s.channels + c, acc[v], s.channels - c);
    if (s.next) store(s.next + node * s.width + c, d * acc[v]);
    // f_i = h_i / d; a node that nothing reaches keeps its value.
    const Vector<T> f = d > T(0) ? load(s.h + node * s.width + c) / d : acc[v];
    changed += (acc[v] - f) * (acc[v] - f);
    size += f * f;
  }
  if (s.change) {
    T* change = s.change + 2 * node;
    change[0] = (tile.vector ? change[0] : T(0)) + sum<T>(changed);
    change[1] = (tile.vector ? change[1] : T(0)) + sum<T>(size);
  }
}

// Which ends a row can have; decided once for all rows.
enum class End { out, next, care };

template <typename T, typename I>
inline End end_of(const PlapStep<T, I>& s) {
  if (s.change || s.y.storage != Storage::full || s.channels != s.width) return End::care;
  return s.out.data ? (s.next ? End::care : End::out) : End::next;
}

// The end of row i: from the sums of V vectors of a band to its new values.
template <int V, typename T, typename I>
inline void finish(const PlapStep<T, I>& s, End end, int64_t i, Tile tile, T total, const Vector<T>* acc) {
  const int64_t node = i * s.bands + tile.band;
  const int64_t first = tile.vector * kLanes<T>;
  const T d = s.dinv[i];
  const T twice_mu = T(2) * s.mu[tile.band];
  const T a = T(1) / (d * d * total + twice_mu);
  if (s.a) s.a[node] = a;
  const int64_t at = node * s.channels + first;
  if (end == End::care) {
    Vector<T> values[V];
    for (int v = 0; v < V; ++v) {
      const int64_t c = v * kLanes<T>;
      values[v] = a * d * acc[v] + a * twice_mu * read<T>(s.y, at + c, s.channels - first - c);
    }
    return finish_with_care(s, i, tile, V, values);
  }
  const T* y = static_cast<const T*>(s.y.data) + at;
  T* out = end == End::out ? static_cast<T*>(s.out.data) + at : s.next + at;
  const T scale = end == End::out ? T(1) : d;
  for (int v = 0; v < V; ++v) {
    // The value first, for itself: scaled sums would round otherwise than a step that is scaled later.
    const Vector<T> value = a * d * acc[v] + a * twice_mu * load(y + v * kLanes<T>);
    store(out + v * kLanes<T>, scale * value);
  }
}

// Phase three of a step: adds M_ij h_j over the edges of a piece, M_ij = weight(band, k), for one tile.
template <int N, int V, bool kFetch, typename T, typename I, typename Weight>
void add_neighbours(const PlapStep<T, I>& s, End end, const Piece& piece, const Workspace<T>& w, Tile tile,
                    Weight weight) {
  const int64_t stride = s.bands * s.width;
  const int64_t offset = tile.band * s.width + tile.vector * kLanes<T>;
  const int64_t slot = (tile.band * s.width) / kLanes<T> + tile.vector;
  const T* h = s.h + offset;
  const I* ahead = s.col + edges_ahead(N * V * kVectorBytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    Vector<T> acc[N * V];
    T totals[N];
    for (int n = 0; n < N; ++n) totals[n] = piece.opens ? T(0) : w.totals[slot + n * V];
    for (int v = 0; v < N * V; ++v)
      acc[v] = piece.opens ? Vector<T>{} : load(w.sums + offset + v * kLanes<T>);
    const int64_t to = piece.to(s.rowptr, i);
    for (int64_t k = piece.from(s.rowptr, i); k < to; ++k) {
      const T* hj = h + s.col[k] * stride;
      if constexpr (kFetch) prefetch(h + ahead[k] * stride, N * V * kVectorBytes);
      for (int n = 0; n < N; ++n) {
        const T m = weight(tile.band + n, k);
        totals[n] += m;
        for (int v = 0; v < V; ++v) acc[n * V + v] += m * load(hj + (n * V + v) * kLanes<T>);
      }
    }
    if (piece.closes) {
      for (int n = 0; n < N; ++n)
        finish<V>(s, end, i, Tile{tile.band + n, tile.vector}, totals[n], acc + n * V);
    } else {
      for (int n = 0; n < N; ++n) w.totals[slot + n * V] = totals[n];
      for (int v = 0; v < N * V; ++v) store(w.sums + offset + v * kLanes<T>, acc[v]);
    }
  }
}

// Where norms are not needed and one tile covers a row, pieces only end the fetching ahead before the last
// edge.
template <typename T>
inline int64_t linear_piece(const Workspace<T>& w, int64_t vectors) {
  const bool covered = w.bands == 1 && (vectors == 1 || vectors == 2 || vectors == 4 || vectors == 8);
  return covered ? 4096 : w.edges;
}

template <typename T, typename I>
inline bool is_linear(const PlapProblem<T, I>& s) {
  if (s.penalty != Penalty::power) return false;
  for (int64_t b = 0; b < s.bands; ++b)
    if (s.p[b] != T(2)) return false;
  return true;
}

template <typename T, typename I>
void step_rows(const PlapStep<T, I>& s, int64_t begin, int64_t end, const Workspace<T>& w) {
  const End way = end_of(s);
  const auto add = [&](const Piece& piece, auto fetch, auto weight) {
    for_tiles<sizeof(T) == 4 ? 3 : 1>(s.bands, s.width / kLanes<T>, [&](Tile tile, auto n, auto v) {
      add_neighbours<n.value, v.value, fetch.value>(s, way, piece, w, tile, weight);
    });
  };
  if (is_linear(s)) {
    // M is constant: a plain gather.
    for_pieces(s.rowptr, begin, end, linear_piece(w, s.width / kLanes<T>), [&](const Piece& piece) {
      add(piece, Size<1>(), [&](int64_t, int64_t k) { return s.weight ? T(2) * s.weight[k] : T(2); });
    });
    return;
  }
  for_pieces(s.rowptr, begin, end, w.edges, [&](const Piece& piece) {
    if (s.z) pair_up(s.bands, s.rowptr, s.col, piece, s.z, w, 1, true, true);
    weigh(s, piece, w, [&](int64_t b, int64_t k, Vector<T>, Vector<T> q) {
      if (s.weight) q *= load(s.weight + piece.start + k, piece.stop - piece.start - k);
      if (s.z) q *= T(0.5) * load(w.value(1, b) + k);
      store(w.value(0, b) + k, s.z ? q : s.p[b] * q);
    });
    add(piece, Size<0>(), [&](int64_t b, int64_t k) { return w.value(0, b)[k - piece.start]; });
  });
}

// N_i and z_i; both 0 at a node all whose edges are.
template <typename T, typename I>
void norm_rows(const PlapStep<T, I>& s, int64_t begin, int64_t end, const Workspace<T>& w) {
  for_pieces(s.rowptr, begin, end, w.edges, [&](const Piece& piece) {
    weigh(s, piece, w, [&](int64_t b, int64_t k, Vector<T> n2, Vector<T> q) {
      store(w.value(0, b) + k, n2 < Format<T>::kLeast ? Vector<T>{} : n2 * q);
    });
    add_values(s, s.rowptr, piece, w, 0, piece.opens, s.norm);
    if (!piece.closes) return;
    for (int64_t node = piece.first * s.bands; node < piece.last * s.bands; ++node) {
      const T p = s.p[node % s.bands];
      const T norm = s.norm[node] > T(0) ? raised(s.norm[node], T(1) / p) : T(0);
      s.norm[node] = norm;
      s.z[node] = norm > T(0) ? curve(s.penalty, s.parameter, norm, p).z : T(0);
    }
  });
}

template <typename T, typename I>
void scale_step(const PlapScale<T, I>& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t node = i * s.bands; node < (i + 1) * s.bands; ++node) {
      for (int64_t c = 0; c < s.width; c += kLanes<T>) {
        store(s.h + node * s.width + c, s.dinv[i] * read<T>(s.f, node * s.channels + c, s.channels - c));
      }
    }
  }
}

// h, u and s of the derivative, and z.
template <typename T, typename I>
void scale_backward(const PlapBackward<T, I>& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const T d = s.dinv[i];
    for (int64_t b = 0; b < s.bands; ++b) {
      const int64_t node = i * s.bands + b;
      T* h = s.hu + node * 2 * s.width;
      T* u = h + s.width;
      Vector<T> total = {};
      for (int64_t c = 0; c < s.width; c += kLanes<T>) {
        const int64_t at = node * s.channels + c;
        const int64_t left = s.channels - c;
        const Vector<T> uc = s.a[node] * d * read<T>(s.grad, at, left);
        store(h + c, d * read<T>(s.f, at, left));
        store(u + c, uc);
        total += uc * read<T>(s.out, at, left);
      }
      s.s[node] = d * sum<T>(total);
      if (!s.z) continue;
      const T norm = s.norm[node];
      s.z[node] = norm > T(0) ? curve(s.penalty, s.parameter, norm, s.p[b]).z : T(0);
    }
  }
}

// Which of its edges a pass over a row of the derivative speaks for: those it receives over, those it sends
// over (then the CSR is the transpose), or both at once.
template <bool kReceive_, bool kSend_>
struct Role {
  static constexpr bool kReceive = kReceive_;
  static constexpr bool kSend = kSend_;
};

template <typename T, typename I>
struct Edges {
  const I* rowptr;
  const I* col;
  const T* weight;
};

// Phase one of the derivative: the terms of |h_j - h_i|^2, of the inner products of the role, both directions
// added, and where dp is wanted of <u_i, h_j> alone; and what is to be subtracted from these.
template <int V, typename R, typename T, typename I>
void compare_backward(const PlapBackward<T, I>& s, const Edges<T, I>& e, const Piece& piece,
                      const Workspace<T>& w) {
  const int64_t width = V ? V * kLanes<T> : s.width;
  const int64_t stride = 2 * s.bands * width;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(T));
  const I* ahead = e.col + edges_ahead(bytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    const int64_t to = piece.to(e.rowptr, i);
    for (int64_t b = 0; b < s.bands; ++b) {
      const T* row = s.hu + b * 2 * width;
      const Centre<T, V> h(row + i * stride);
      const Centre<T, V> u(row + i * stride + width);
      const T si = s.s[i * s.bands + b];
      for (int64_t k = piece.from(e.rowptr, i); k < to; ++k) {
        if (b == 0) prefetch(s.hu + ahead[k] * stride, bytes);
        const T* hj = row + e.col[k] * stride;
        const T* uj = hj + width;
        Vector<T> square = {};
        Vector<T> mine = {};
        Vector<T> theirs = {};
        for (int64_t v = 0; v < (V ? V : width / kLanes<T>); ++v) {
          const Vector<T> x = load(hj + v * kLanes<T>);
          const Vector<T> d = h[v] - x;
          square += d * d;
          if constexpr (R::kReceive) mine += u[v] * x;
          if constexpr (R::kSend) theirs += h[v] * load(uj + v * kLanes<T>);
        }
        const int64_t at = k - piece.start;
        store(w.term(0, b) + at * kLanes<T>, square);
        store(w.term(1, b) + at * kLanes<T>, mine + theirs);
        const T sj = s.s[e.col[k] * s.bands + b];
        w.value(0, b)[at] = (R::kReceive ? si : T(0)) + (R::kSend ? sj : T(0));
        if (R::kReceive && s.dp) {
          store(w.term(2, b) + at * kLanes<T>, mine);
          w.value(1, b)[at] = si;
        }
      }
    }
  }
}

// Phases one and two of the derivative: calls use(band, k, n2, q, mbar, mine) for all edges of a piece, a
// vector at a time. mbar is of the edges of the role, those of both directions added; mine of the received.
template <typename R, typename T, typename I, typename Use>
inline void weigh_backward(const PlapBackward<T, I>& s, const Edges<T, I>& e, const Piece& piece,
                           const Workspace<T>& w, Use use) {
  with_vectors(s.width / kLanes<T>, [&](auto v) { compare_backward<v.value, R>(s, e, piece, w); });
  for (int64_t b = 0; b < s.bands; ++b) {
    for (int64_t k = 0; k < piece.stop - piece.start; k += kLanes<T>) {
      const Vector<T> n2 = squares(s, e.weight, piece, w, b, k);
      const Vector<T> mbar = sums(w.term(1, b) + k * kLanes<T>) - load(w.value(0, b) + k);
      Vector<T> mine = {};
      if (R::kReceive && s.dp) mine = sums(w.term(2, b) + k * kLanes<T>) - load(w.value(1, b) + k);
      use(b, k, n2, powers(n2, s.p[b]), mbar, mine);
    }
  }
}

// Calls pass(role, edges, piece) until every row has had all its edges: in one go where a graph is its own
// transpose, else first what it receives and then what it sends, row by row.
template <typename T, typename I, typename Pass>
inline void for_roles(const PlapBackward<T, I>& s, int64_t begin, int64_t end, int64_t most, Pass pass) {
  const Edges<T, I> in{s.rowptr, s.col, s.weight};
  const Edges<T, I> out{s.rowptr_t, s.col_t, s.weight_t};
  if (s.rowptr == s.rowptr_t && s.col == s.col_t) {
    for_pieces(in.rowptr, begin, end, most, [&](const Piece& p) { pass(Role<true, true>(), in, p); });
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    for_pieces(in.rowptr, i, i + 1, most, [&](Piece p) {
      p.closes = false;
      pass(Role<true, false>(), in, p);
    });
    for_pieces(out.rowptr, i, i + 1, most, [&](Piece p) {
      p.opens = false;
      pass(Role<false, true>(), out, p);
    });
  }
}

// t_i, and the part of dp_i that comes through N_i and z_i.
template <typename T, typename I>
void node_rows(const PlapBackward<T, I>& s, int64_t begin, int64_t end, const Workspace<T>& w) {
  for_roles(s, begin, end, w.edges, [&](auto role, const Edges<T, I>& e, const Piece& piece) {
    using R = decltype(role);
    const int64_t count = piece.stop - piece.start;
    const auto use = [&](int64_t b, int64_t k, Vector<T> n2, Vector<T> q, Vector<T> mbar, Vector<T>) {
      Vector<T> share = T(0.5) * q * mbar;
      if (e.weight) share *= load(e.weight + piece.start + k, count - k);
      store(w.value(2, b) + k, share);
      if (!s.dp) return;
      const auto zero = n2 < Format<T>::kLeast;
      const Vector<T> log = T(0.5) * natural_log<T>(zero ? Vector<T>{} + T(1) : n2);
      store(w.value(4, b) + k, zero ? Vector<T>{} : q * n2 * log);
    };
    weigh_backward<R>(s, e, piece, w, use);
    add_values(s, e.rowptr, piece, w, 2, piece.opens, s.t);
    if (R::kReceive && s.dp) add_values(s, e.rowptr, piece, w, 4, piece.opens, s.dp);
  });
  for (int64_t node = begin * s.bands; node < end * s.bands; ++node) {
    const T norm = s.norm[node];
    const T zbar = s.t[node];
    const T p = s.p[node % s.bands];
    if (!(norm > T(0))) {
      s.t[node] = T(0);
      if (s.dp) s.dp[node] = T(0);
      continue;
    }
    const Curve<T> z = curve(s.penalty, s.parameter, norm, p);
    s.t[node] = zbar * z.dz_dx * raised(norm, T(1) - p);
    if (s.dp) {
      const T mean_log = s.dp[node] / raised(norm, p);
      const T log = logarithm(norm);
      s.dp[node] = zbar * (z.dz_dx * norm * (mean_log - log) / p - log * z.z);
    }
  }
}

// Phase three of the derivative: adds c_ij (h_i - h_j) and, over the edges a row sends over, M u.
template <int V, typename R, bool kLinear, typename T, typename I, typename Weight>
void add_gradients(const PlapBackward<T, I>& s, const Edges<T, I>& e, const Piece& piece,
                   const Workspace<T>& w, Tile tile, Weight m) {
  const int64_t stride = 2 * s.bands * s.width;
  const int64_t first = tile.vector * kLanes<T>;
  const T* rows = s.hu + 2 * tile.band * s.width + first;
  const T* c = w.value(3, tile.band);
  T* kept = w.sums + tile.band * s.width + first;
  const I* ahead = e.col + edges_ahead(V * kVectorBytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    const Centre<T, V> h(rows + i * stride);
    Vector<T> acc[V];
    for (int v = 0; v < V; ++v) acc[v] = piece.opens ? Vector<T>{} : load(kept + v * kLanes<T>);
    const int64_t to = piece.to(e.rowptr, i);
    for (int64_t k = piece.from(e.rowptr, i); k < to; ++k) {
      const T* hj = rows + e.col[k] * stride;
      const T* uj = hj + s.width;
      if constexpr (kLinear) {
        prefetch(rows + ahead[k] * stride + s.width, V * kVectorBytes);
      } else {
        // The difference first: neighbours may be close and c large.
        for (int v = 0; v < V; ++v) acc[v] += c[k - piece.start] * (h[v] - load(hj + v * kLanes<T>));
      }
      if constexpr (R::kSend) {
        const T mk = m(tile.band, k);
        for (int v = 0; v < V; ++v) acc[v] += mk * load(uj + v * kLanes<T>);
      }
    }
    if (piece.closes) {
      const int64_t at = (i * s.bands + tile.band) * s.channels + first;
      for (int v = 0; v < V; ++v) {
        const int64_t lane = v * kLanes<T>;
        write<T>(s.df, at + lane, s.dinv[i] * acc[v], s.channels - first - lane);
      }
    } else {
      for (int v = 0; v < V; ++v) store(kept + v * kLanes<T>, acc[v]);
    }
  }
}

template <typename T, typename I>
void backward_rows(const PlapBackward<T, I>& s, int64_t begin, int64_t end, const Workspace<T>& w) {
  const int64_t vectors = s.width / kLanes<T>;
  if (is_linear(s) && !s.dp) {
    const Edges<T, I> out{s.rowptr_t, s.col_t, s.weight_t};
    for_pieces(out.rowptr, begin, end, linear_piece(w, vectors), [&](const Piece& piece) {
      for_tiles<1>(s.bands, vectors, [&](Tile tile, auto, auto v) {
        add_gradients<v.value, Role<false, true>, true>(s, out, piece, w, tile, [&](int64_t, int64_t k) {
          return out.weight ? T(2) * out.weight[k] : T(2);
        });
      });
    });
    return;
  }
  for_roles(s, begin, end, w.edges, [&](auto role, const Edges<T, I>& e, const Piece& piece) {
    using R = decltype(role);
    if (s.z) {
      pair_up(s.bands, e.rowptr, e.col, piece, s.z, w, 5, true, true);
      pair_up(s.bands, e.rowptr, e.col, piece, s.t, w, 6, R::kReceive, R::kSend);
    }
    const int64_t count = piece.stop - piece.start;
    const auto use = [&](int64_t b, int64_t k, Vector<T> n2, Vector<T> q, Vector<T> mbar, Vector<T> mine) {
      const T p = s.p[b];
      const auto zero = n2 < Format<T>::kLeast;
      const Vector<T> x = zero ? Vector<T>{} + T(1) : n2;
      Vector<T> weight = Vector<T>{} + T(1);
      if (e.weight) weight = load(e.weight + piece.start + k, count - k);
      Vector<T> m = weight * q;
      // The product with M first: a small norm makes M large and mbar small.
      Vector<T> c = {};
      if (s.z) {
        c = m * load(w.value(6, b) + k);
        m *= T(0.5) * load(w.value(5, b) + k);
      } else {
        m *= p;
      }
      c += mbar * m * ((p - T(2)) * weight) / x;
      store(w.value(2, b) + k, m);
      store(w.value(3, b) + k, zero ? Vector<T>{} : c);
      if (R::kReceive && s.dp) {
        const Vector<T> log = T(0.5) * natural_log<T>(x);
        store(w.value(4, b) + k, mine * m * (s.z ? log : log + T(1) / p));
      }
    };
    weigh_backward<R>(s, e, piece, w, use);
    for_tiles<1>(s.bands, vectors, [&](Tile tile, auto, auto v) {
      add_gradients<v.value, R, false>(s, e, piece, w, tile,
                                       [&](int64_t b, int64_t k) { return w.value(2, b)[k - piece.start]; });
    });
    if (R::kReceive && s.dp) add_values(s, e.rowptr, piece, w, 4, piece.opens && !s.z, s.dp);
  });
}

template <typename T, typename I>
Workspace<T> workspace(const PlapProblem<T, I>& s, int64_t copies, T* memory) {
  return {memory, s.bands, s.width, copies * s.bands * s.width * static_cast<int64_t>(sizeof(T))};
}

}  // namespace

#define PLUFG_DEFINE_PLAP(T, I)                                                                            \
  void plap_scale(const PlapScale<T, I>& s, int64_t begin, int64_t end, T*) { scale_step(s, begin, end); } \
  void plap_norms(const PlapStep<T, I>& s, int64_t begin, int64_t end, T* memory) {                        \
    norm_rows(s, begin, end, workspace(s, 1, memory));                                                     \
  }                                                                                                        \
  void plap_step(const PlapStep<T, I>& s, int64_t begin, int64_t end, T* memory) {                         \
    step_rows(s, begin, end, workspace(s, 1, memory));                                                     \
  }                                                                                                        \
  void plap_backward_scale(const PlapBackward<T, I>& s, int64_t begin, int64_t end, T*) {                  \
    scale_backward(s, begin, end);                                                                         \
  }                                                                                                        \
  void plap_backward_nodes(const PlapBackward<T, I>& s, int64_t begin, int64_t end, T* memory) {           \
    node_rows(s, begin, end, workspace(s, 2, memory));                                                     \
  }                                                                                                        \
  void plap_backward(const PlapBackward<T, I>& s, int64_t begin, int64_t end, T* memory) {                 \
    backward_rows(s, begin, end, workspace(s, 2, memory));                                                 \
  }
PLUFG_DEFINE_PLAP(float, int32_t)
PLUFG_DEFINE_PLAP(float, int64_t)
PLUFG_DEFINE_PLAP(double, int32_t)
PLUFG_DEFINE_PLAP(double, int64_t)

}  // namespace plufg::PLUFG_ISA
