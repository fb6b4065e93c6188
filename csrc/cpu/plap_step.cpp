// Compiled once per instruction set, with PLUFG_ISA naming the namespace. Nothing here may come from the
// standard library or from torch: an inline function compiled with wide instructions could be picked by the
// linker for all.
#include "plap_pieces.h"

namespace plufg::PLUFG_ISA {
namespace {

// Phase one: the terms of |h_j - h_i|^2 for every edge of a piece.
template <int V, typename T, typename I>
void compare(const PlapStep<T, I>& s, const Piece& piece, const Workspace<T>& w) {
  const int64_t width = V ? V * kLanes<T> : s.width;
  const int64_t bytes = width * static_cast<int64_t>(sizeof(T));
  const I* ahead = s.col + edges_ahead(bytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    const int64_t to = piece.to(s.rowptr, i);
    const Centre<T, V> centre(s.h + i * width);
    for (int64_t k = piece.from(s.rowptr, i); k < to; ++k) {
      prefetch(s.h + ahead[k] * width, bytes);
      store(w.term(0) + (k - piece.start) * kLanes<T>,
            square_distance(centre, s.h + s.col[k] * width, width / kLanes<T>));
    }
  }
}

// Phases one and two: calls use(k, n2, q) for all edges of a piece, a vector at a time, with k counted from
// the piece's first edge.
template <typename T, typename I, typename Use>
inline void weigh(const PlapStep<T, I>& s, const Piece& piece, const Workspace<T>& w, Use use) {
  with_vectors(s.width / kLanes<T>, [&](auto v) { compare<v.value>(s, piece, w); });
  for (int64_t k = 0; k < piece.stop - piece.start; k += kLanes<T>) {
    const Vector<T> n2 = squares(s, s.weight, piece, w, k);
    use(k, n2, powers(n2, *s.p));
  }
}

// The end of row i where more than a plain row is asked for: `acc` holds its new values from channel `first`.
template <typename T, typename I>
__attribute__((noinline)) void finish_with_care(const PlapStep<T, I>& s, int64_t i, int64_t first,
                                                int vectors, const Vector<T>* acc) {
  const int64_t node = i * s.stride;
  const T d = s.dinv[i];
  Vector<T> changed = {};
  Vector<T> size = {};
  for (int v = 0; v < vectors; ++v) {
    const int64_t c = first + v * kLanes<T>;
    if (s.out.data) write<T>(s.out, node * s.channels + c, acc[v], s.channels - c);
    if (s.next) store(s.next + i * s.width + c, d * acc[v]);
    // f_i = h_i / d; a node that nothing reaches keeps its value.
    const Vector<T> f = d > T(0) ? load(s.h + i * s.width + c) / d : acc[v];
    changed += (acc[v] - f) * (acc[v] - f);
    size += f * f;
  }
  if (s.change) {
    T* change = s.change + 2 * node;
    change[0] = (first ? change[0] : T(0)) + sum<T>(changed);
    change[1] = (first ? change[1] : T(0)) + sum<T>(size);
  }
}

// Which ends a row can have; decided once for all rows.
enum class End { out, next, care };

template <typename T, typename I>
inline End end_of(const PlapStep<T, I>& s) {
  if (s.change || s.y.storage != Storage::full || s.channels != s.width) return End::care;
  return s.out.data ? (s.next ? End::care : End::out) : End::next;
}

// The end of row i: from the sums of V vectors, the channels from `first` on, to its new values.
template <int V, typename T, typename I>
inline void finish(const PlapStep<T, I>& s, End end, int64_t i, int64_t first, T total,
                   const Vector<T>* acc) {
  const T d = s.dinv[i];
  const T twice_mu = T(2) * *s.mu;
  const T a = T(1) / (d * d * total + twice_mu);
  if (s.a) s.a[i * s.stride] = a;
  const int64_t at = i * s.stride * s.channels + first;
  if (end == End::care) {
    // All of y first: with its branches between product and sum the compiler would fuse the other product
    // than below, and the same numbers would round otherwise.
    Vector<T> values[V];
    for (int v = 0; v < V; ++v) {
      const int64_t c = v * kLanes<T>;
      values[v] = read<T>(s.y, at + c, s.channels - first - c);
    }
    for (int v = 0; v < V; ++v) values[v] = a * d * acc[v] + a * twice_mu * values[v];
    return finish_with_care(s, i, first, V, values);
  }
  const T* y = static_cast<const T*>(s.y.data) + at;
  T* out = end == End::out ? static_cast<T*>(s.out.data) + at : s.next + i * s.width + first;
  const T scale = end == End::out ? T(1) : d;
  for (int v = 0; v < V; ++v) {
    // The value first, for itself: scaled sums would round otherwise than a step that is scaled later.
    const Vector<T> value = a * d * acc[v] + a * twice_mu * load(y + v * kLanes<T>);
    store(out + v * kLanes<T>, scale * value);
  }
}

// Phase three: adds M_ij h_j over the edges of a piece, M_ij = weight(k), for V vectors from the one at
// `vector` on.
template <int V, bool kFetch, typename T, typename I, typename Weight>
void add_neighbours(const PlapStep<T, I>& s, End end, const Piece& piece, const Workspace<T>& w,
                    int64_t vector, Weight weight) {
  const int64_t first = vector * kLanes<T>;
  const T* h = s.h + first;
  const I* ahead = s.col + edges_ahead(V * kVectorBytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    T total = piece.opens ? T(0) : w.totals[vector];
    Vector<T> acc[V];
    for (int v = 0; v < V; ++v) acc[v] = piece.opens ? Vector<T>{} : load(w.sums + first + v * kLanes<T>);
    const int64_t to = piece.to(s.rowptr, i);
    for (int64_t k = piece.from(s.rowptr, i); k < to; ++k) {
      const T* hj = h + s.col[k] * s.width;
      if constexpr (kFetch) prefetch(h + ahead[k] * s.width, V * kVectorBytes);
      const T m = weight(k);
      total += m;
      for (int v = 0; v < V; ++v) acc[v] += m * load(hj + v * kLanes<T>);
    }
    if (piece.closes) {
      finish<V>(s, end, i, first, total, acc);
    } else {
      w.totals[vector] = total;
      for (int v = 0; v < V; ++v) store(w.sums + first + v * kLanes<T>, acc[v]);
    }
  }
}

template <typename T, typename I>
void step_rows(const PlapStep<T, I>& s, int64_t begin, int64_t end, const Workspace<T>& w) {
  const End way = end_of(s);
  const int64_t vectors = s.width / kLanes<T>;
  const auto add = [&](const Piece& piece, auto fetch, auto weight) {
    for_tiles(vectors, [&](int64_t at, auto v) {
      add_neighbours<v.value, fetch.value>(s, way, piece, w, at, weight);
    });
  };
  if (is_linear(s)) {
    for_pieces(s.rowptr, begin, end, linear_piece(w, vectors), [&](const Piece& piece) {
      add(piece, Size<1>(), [&](int64_t k) { return s.weight ? T(2) * s.weight[k] : T(2); });
    });
    return;
  }
  for_pieces(s.rowptr, begin, end, w.edges, [&](const Piece& piece) {
    if (s.z) pair_up(s.stride, s.rowptr, s.col, piece, s.z, w, 1, true, true);
    weigh(s, piece, w, [&](int64_t k, Vector<T>, Vector<T> q) {
      if (s.weight) q *= load(s.weight + piece.start + k, piece.stop - piece.start - k);
      if (s.z) q *= T(0.5) * load(w.value(1) + k);
      store(w.value(0) + k, s.z ? q : *s.p * q);
    });
    add(piece, Size<0>(), [&](int64_t k) { return w.value(0)[k - piece.start]; });
  });
}

// N_i and z_i.
template <typename T, typename I>
void norm_rows(const PlapStep<T, I>& s, int64_t begin, int64_t end, const Workspace<T>& w) {
  for_pieces(s.rowptr, begin, end, w.edges, [&](const Piece& piece) {
    weigh(s, piece, w, [&](int64_t k, Vector<T> n2, Vector<T> q) {
      store(w.value(0) + k, n2 < Format<T>::kLeast ? Vector<T>{} : n2 * q);
    });
    add_values(s.stride, s.rowptr, piece, w, 0, piece.opens, s.norm);
    if (!piece.closes) return;
    for (int64_t i = piece.first; i < piece.last; ++i) {
      T& norm = s.norm[i * s.stride];
      norm = norm > T(0) ? raised(norm, T(1) / *s.p) : T(0);
      s.z[i * s.stride] = z_at(s.penalty, s.parameter, norm, *s.p);
    }
  });
}

template <typename T, typename I>
void scale_rows(const PlapScale<T, I>& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = i * s.stride * s.channels;
    for (int64_t c = 0; c < s.width; c += kLanes<T>)
      store(s.h + i * s.width + c, s.dinv[i] * read<T>(s.f, at + c, s.channels - c));
  }
}

template <typename T, typename I>
Workspace<T> workspace(const PlapStep<T, I>& s, T* memory) {
  return {memory, s.width, s.width * static_cast<int64_t>(sizeof(T))};
}

}  // namespace

#define PLUFG_DEFINE_PLAP(T, I)                                                                            \
  void plap_scale(const PlapScale<T, I>& s, int64_t begin, int64_t end, T*) { scale_rows(s, begin, end); } \
  void plap_norms(const PlapStep<T, I>& s, int64_t begin, int64_t end, T* memory) {                        \
    norm_rows(s, begin, end, workspace(s, memory));                                                        \
  }                                                                                                        \
  void plap_step(const PlapStep<T, I>& s, int64_t begin, int64_t end, T* memory) {                         \
    step_rows(s, begin, end, workspace(s, memory));                                                        \
  }
PLUFG_DEFINE_PLAP(float, int32_t)
PLUFG_DEFINE_PLAP(float, int64_t)
PLUFG_DEFINE_PLAP(double, int32_t)
PLUFG_DEFINE_PLAP(double, int64_t)

}  // namespace plufg::PLUFG_ISA
