#include "cheb.h"

namespace plufg {

void check_cheb_step(const Tensor& x, const OptTensor& prev, const Tensor& rowptr, const Tensor& col,
                     const OptTensor& weight, const Tensor& rowptr_t, const Tensor& col_t,
                     const OptTensor& weight_t, const OptTensor& left, const OptTensor& right,
                     const OptTensor& diag) {
  const Arguments args{"plufg::cheb_step", x, "x", "[N, C]", 2};
  args.signal("x", x);
  if (prev) args.signal("prev", *prev);
  args.graph(rowptr, col, weight, rowptr_t, col_t, weight_t);
  const int64_t nodes = x.size(0);
  args.vector("left", left, nodes, "node");
  args.vector("right", right, nodes, "node");
  args.vector("diag", diag, nodes, "node");
}

}  // namespace plufg

// The transposed graph is what a backward reads; a forward only checks it.
STABLE_TORCH_LIBRARY_FRAGMENT(plufg, m) {
  plufg::define(
      m, std::string("cheb_step(Tensor x, Tensor? prev, ") + plufg::kGraphSchema +
             ", Tensor? left, Tensor? right, Tensor? diag, float alpha, float beta, float gamma) -> Tensor");
}
