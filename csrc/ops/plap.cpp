#include "plap.h"

namespace plufg {

void check_plap_step(const Tensor& f, const Tensor& y, const Tensor& rowptr, const Tensor& col,
                     const OptTensor& weight, const Tensor& rowptr_t, const Tensor& col_t,
                     const OptTensor& weight_t, const Tensor& dinv, const Tensor& p, const Tensor& mu) {
  const Arguments args{"plufg::plap_step", f, "f", "[N, B, C]", 3};
  args.signal("f", f);
  args.signal("y", y);
  args.graph(rowptr, col, weight, rowptr_t, col_t, weight_t);
  args.vector("dinv", dinv, f.size(0), "node");
  args.vector("p", p, f.size(1), "band");
  args.vector("mu", mu, f.size(1), "band");
}

void check_plap_step_backward(const Tensor& grad, const Tensor& f, const Tensor& out, const Tensor& a,
                              const Tensor& rowptr, const Tensor& col, const OptTensor& weight,
                              const Tensor& rowptr_t, const Tensor& col_t, const OptTensor& weight_t,
                              const Tensor& dinv, const Tensor& p) {
  const Arguments args{"plufg::plap_step_backward", f, "f", "[N, B, C]", 3};
  args.signal("f", f);
  args.signal("grad", grad);
  args.signal("out", out);
  STD_TORCH_CHECK(
      a.dim() == 2 && a.size(0) == f.size(0) && a.size(1) == f.size(1) && a.scalar_type() == f.scalar_type(),
      args.op, ": a must have dtype of f and shape [N, B], got ", describe(a));
  args.layout("a", a);
  args.graph(rowptr, col, weight, rowptr_t, col_t, weight_t);
  args.vector("dinv", dinv, f.size(0), "node");
  args.vector("p", p, f.size(1), "band");
}

}  // namespace plufg

STABLE_TORCH_LIBRARY_FRAGMENT(plufg, m) {
  plufg::define(m, std::string("plap_step(Tensor f, Tensor y, ") + plufg::kGraphSchema +
                       ", Tensor dinv, Tensor p, Tensor mu, float eps) -> (Tensor, Tensor)");
  plufg::define(m, std::string("plap_step_backward(Tensor grad, Tensor f, Tensor out, Tensor a, ") +
                       plufg::kGraphSchema +
                       ", Tensor dinv, Tensor p, float eps, bool need_p) -> (Tensor, Tensor)");
}
