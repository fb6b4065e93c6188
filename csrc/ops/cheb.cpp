#include "cheb.h"

namespace plufg {
namespace {

void check_filters(const Arguments& args, const Tensor& weights, const std::vector<double>& recurrence) {
  STD_TORCH_CHECK(weights.dim() == 2 && weights.size(0) > 0 && weights.size(1) > 0 &&
                      weights.scalar_type() == args.x.scalar_type(),
                  args.op, ": weights must have dtype of ", args.first,
                  " and shape [R, n + 1], R and n + 1 at ", "least 1, got ", describe(weights));
  args.layout("weights", weights);
  const int64_t expected = 3 * (weights.size(1) - 1);
  STD_TORCH_CHECK(static_cast<int64_t>(recurrence.size()) == expected, args.op,
                  ": recurrence must hold three numbers for each of the n steps, ", expected, ", got ",
                  recurrence.size());
}

}  // namespace

void ChebOperator::check(const Arguments& args) const {
  args.graph(rowptr, col, weight, rowptr_t, col_t, weight_t);
  const int64_t nodes = args.x.size(0);
  args.vector("left", left, nodes, "node");
  args.vector("right", right, nodes, "node");
  args.vector("diag", diag, nodes, "node");
}

void check_cheb_step(const Tensor& x, const OptTensor& prev, const ChebOperator& lap) {
  const Arguments args{"plufg::cheb_step", x, "x", "[N, C]", 2};
  args.signal("x", x);
  if (prev) args.signal("prev", *prev);
  lap.check(args);
}

void check_cheb_analysis(const Tensor& x, const ChebOperator& lap, const Tensor& weights,
                         const std::vector<double>& recurrence) {
  const Arguments args{"plufg::cheb_analysis", x, "x", "[N, C]", 2};
  args.signal("x", x);
  lap.check(args);
  check_filters(args, weights, recurrence);
}

void check_cheb_synthesis(const Tensor& z, const ChebOperator& lap, const Tensor& weights,
                          const std::vector<double>& recurrence) {
  const Arguments args{"plufg::cheb_synthesis", z, "z", "[N, R, C]", 3};
  args.signal("z", z);
  lap.check(args);
  check_filters(args, weights, recurrence);
  STD_TORCH_CHECK(z.size(1) == weights.size(0), args.op, ": z must have a band for each of the ",
                  weights.size(0), " filters, got ", describe(z));
}

}  // namespace plufg

// The transposed graph is what a backward reads; a forward only checks it. A recurrence is a_k, b_k, c_k for
// one step after the other: T_{k+1} = (a_k L + b_k) T_k + c_k T_{k-1}.
STABLE_TORCH_LIBRARY_FRAGMENT(PLUFG_LIBRARY, m) {
  const std::string lap = std::string(plufg::kGraphSchema) + ", Tensor? left, Tensor? right, Tensor? diag";
  plufg::define(
      m, "cheb_step(Tensor x, Tensor? prev, " + lap + ", float alpha, float beta, float gamma) -> Tensor");
  plufg::define(m, "cheb_analysis(Tensor x, " + lap + ", Tensor weights, float[] recurrence) -> Tensor");
  plufg::define(m, "cheb_synthesis(Tensor z, " + lap +
                       ", Tensor weights, float[] recurrence, bool sum_bands) -> Tensor");
}
