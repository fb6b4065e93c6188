#include "plap.h"

namespace plufg {

Arguments PlapArguments::check(bool float16,
                               std::initializer_list<std::pair<const char*, const Tensor*>> others) const {
  const Arguments args{op, signal, name, "[N, B, C]", 3, true, float16};
  args.signal(name, signal);
  for (const auto& [other, tensor] : others) args.signal(other, *tensor);
  args.graph(rowptr, col, weight, rowptr_t, col_t, weight_t);
  args.vector("dinv", dinv, signal.size(0), "node");
  args.vector("p", p, signal.size(1), "band");
  STD_TORCH_CHECK(penalty >= 0 && penalty < kPenalties, op, ": penalty must be a number from 0 to ",
                  kPenalties - 1, ", got ", penalty);
  return args;
}

}  // namespace plufg

STABLE_TORCH_LIBRARY_FRAGMENT(PLUFG_LIBRARY, m) {
  const std::string graph = plufg::kGraphSchema;
  const std::string penalty = "float eps, int penalty, float parameter";
  plufg::define(m, "plap_step(Tensor f, Tensor y, " + graph + ", Tensor dinv, Tensor p, Tensor mu, " +
                       penalty + ") -> (Tensor, Tensor, Tensor)");
  plufg::define(m, "plap_steps(Tensor y, " + graph + ", Tensor dinv, Tensor p, Tensor mu, " + penalty +
                       ", int steps, float? tol) -> (Tensor, Tensor)");
  plufg::define(m, "plap_step_backward(Tensor grad, Tensor f, Tensor out, Tensor a, Tensor norm, " + graph +
                       ", Tensor dinv, Tensor p, " + penalty + ", bool need_p) -> (Tensor, Tensor)");
}
