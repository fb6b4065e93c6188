// Compiled once per instruction set, like plap_step.cpp and under its rules.
#include "plap_pieces.h"

namespace plufg::PLUFG_ISA {
namespace {

// h, u and s of the derivative, and z.
template <typename T, typename I>
void scale_rows(const PlapBackward<T, I>& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t node = i * s.stride;
    const T d = s.dinv[i];
    T* h = s.hu + i * 2 * s.width;
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
    s.z[node] = z_at(s.penalty, s.parameter, s.norm[node], *s.p);
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
  const int64_t stride = 2 * width;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(T));
  const I* ahead = e.col + edges_ahead(bytes, piece.stop, s.edges);
  for (int64_t i = piece.first; i < piece.last; ++i) {
    const int64_t to = piece.to(e.rowptr, i);
    const Centre<T, V> h(s.hu + i * stride);
    const Centre<T, V> u(s.hu + i * stride + width);
    const T si = s.s[i * s.stride];
    for (int64_t k = piece.from(e.rowptr, i); k < to; ++k) {
      prefetch(s.hu + ahead[k] * stride, bytes);
      const T* hj = s.hu + e.col[k] * stride;
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
      store(w.term(0) + at * kLanes<T>, square);
      store(w.term(1) + at * kLanes<T>, mine + theirs);
      const T sj = s.s[e.col[k] * s.stride];
      w.value(0)[at] = (R::kReceive ? si : T(0)) + (R::kSend ? sj : T(0));
      if (R::kReceive && s.dp) {
        store(w.term(2) + at * kLanes<T>, mine);
        w.value(1)[at] = si;
      }
    }
  }
}

// Phases one and two of the derivative: calls use(k, n2, q, mbar, mine) for all edges of a piece, a
// vector at a time. mbar is of the edges of the role, those of both directions added; mine of the received.
template <typename R, typename T, typename I, typename Use>
inline void weigh_backward(const PlapBackward<T, I>& s, const Edges<T, I>& e, const Piece& piece,
                           const Workspace<T>& w, Use use) {
  with_vectors(s.width / kLanes<T>, [&](auto v) { compare_backward<v.value, R>(s, e, piece, w); });
  for (int64_t k = 0; k < piece.stop - piece.start; k += kLanes<T>) {
    const Vector<T> n2 = squares(s, e.weight, piece, w, k);
    const Vector<T> mbar = sums(w.term(1) + k * kLanes<T>) - load(w.value(0) + k);
    Vector<T> mine = {};
    if (R::kReceive && s.dp) mine = sums(w.term(2) + k * kLanes<T>) - load(w.value(1) + k);
    use(k, n2, powers(n2, *s.p), mbar, mine);
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
    const auto use = [&](int64_t k, Vector<T> n2, Vector<T> q, Vector<T> mbar, Vector<T>) {
      Vector<T> share = T(0.5) * q * mbar;
      if (e.weight) share *= load(e.weight + piece.start + k, count - k);
      store(w.value(2) + k, share);
      if (!s.dp) return;
      const auto zero = n2 < Format<T>::kLeast;
      const Vector<T> log = T(0.5) * natural_log<T>(zero ? Vector<T>{} + T(1) : n2);
      store(w.value(4) + k, zero ? Vector<T>{} : q * n2 * log);
    };
    weigh_backward<R>(s, e, piece, w, use);
    add_values(s.stride, e.rowptr, piece, w, 2, piece.opens, s.t);
    if (R::kReceive && s.dp) add_values(s.stride, e.rowptr, piece, w, 4, piece.opens, s.dp);
  });
  for (int64_t i = begin; i < end; ++i) {
    const int64_t node = i * s.stride;
    const T norm = s.norm[node];
    const T zbar = s.t[node];
    const T p = *s.p;
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
                   const Workspace<T>& w, int64_t vector, Weight m) {
  const int64_t stride = 2 * s.width;
  const int64_t first = vector * kLanes<T>;
  const T* rows = s.hu + first;
  const T* c = w.value(3);
  T* kept = w.sums + first;
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
        const T mk = m(k);
        for (int v = 0; v < V; ++v) acc[v] += mk * load(uj + v * kLanes<T>);
      }
    }
    if (piece.closes) {
      const int64_t at = i * s.stride * s.channels + first;
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
      for_tiles(vectors, [&](int64_t at, auto v) {
        add_gradients<v.value, Role<false, true>, true>(
            s, out, piece, w, at, [&](int64_t k) { return out.weight ? T(2) * out.weight[k] : T(2); });
      });
    });
    return;
  }
  for_roles(s, begin, end, w.edges, [&](auto role, const Edges<T, I>& e, const Piece& piece) {
    using R = decltype(role);
    if (s.z) {
      pair_up(s.stride, e.rowptr, e.col, piece, s.z, w, 5, true, true);
      pair_up(s.stride, e.rowptr, e.col, piece, s.t, w, 6, R::kReceive, R::kSend);
    }
    const int64_t count = piece.stop - piece.start;
    const auto use = [&](int64_t k, Vector<T> n2, Vector<T> q, Vector<T> mbar, Vector<T> mine) {
      const T p = *s.p;
      const auto zero = n2 < Format<T>::kLeast;
      const Vector<T> x = zero ? Vector<T>{} + T(1) : n2;
      Vector<T> weight = Vector<T>{} + T(1);
      if (e.weight) weight = load(e.weight + piece.start + k, count - k);
      Vector<T> m = weight * q;
      // The product with M first: a small norm makes M large and mbar small.
      Vector<T> c = {};
      if (s.z) {
        c = m * load(w.value(6) + k);
        m *= T(0.5) * load(w.value(5) + k);
      } else {
        m *= p;
      }
      c += mbar * m * ((p - T(2)) * weight) / x;
      store(w.value(2) + k, m);
      store(w.value(3) + k, zero ? Vector<T>{} : c);
      if (R::kReceive && s.dp) {
        const Vector<T> log = T(0.5) * natural_log<T>(x);
        store(w.value(4) + k, mine * m * (s.z ? log : log + T(1) / p));
      }
    };
    weigh_backward<R>(s, e, piece, w, use);
    for_tiles(vectors, [&](int64_t at, auto v) {
      add_gradients<v.value, R, false>(s, e, piece, w, at,
                                       [&](int64_t k) { return w.value(2)[k - piece.start]; });
    });
    if (R::kReceive && s.dp) add_values(s.stride, e.rowptr, piece, w, 4, piece.opens && !s.z, s.dp);
  });
}

template <typename T, typename I>
Workspace<T> workspace(const PlapBackward<T, I>& s, T* memory) {
  return {memory, s.width, 2 * s.width * static_cast<int64_t>(sizeof(T))};
}

}  // namespace

#define PLUFG_DEFINE_PLAP(T, I)                                                                  \
  void plap_backward_scale(const PlapBackward<T, I>& s, int64_t begin, int64_t end, T*) {        \
    scale_rows(s, begin, end);                                                                   \
  }                                                                                              \
  void plap_backward_nodes(const PlapBackward<T, I>& s, int64_t begin, int64_t end, T* memory) { \
    node_rows(s, begin, end, workspace(s, memory));                                              \
  }                                                                                              \
  void plap_backward(const PlapBackward<T, I>& s, int64_t begin, int64_t end, T* memory) {       \
    backward_rows(s, begin, end, workspace(s, memory));                                          \
  }
PLUFG_DEFINE_PLAP(float, int32_t)
PLUFG_DEFINE_PLAP(float, int64_t)
PLUFG_DEFINE_PLAP(double, int32_t)
PLUFG_DEFINE_PLAP(double, int64_t)

}  // namespace plufg::PLUFG_ISA
