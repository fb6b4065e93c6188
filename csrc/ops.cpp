#include "ops.h"

#include <sstream>
#include <string>

namespace plufg {
namespace {

using torch::headeronly::ScalarType;

std::string describe(const Tensor& t) {
  std::ostringstream text;
  text << torch::headeronly::toString(t.scalar_type()) << " [";
  for (int64_t d = 0; d < t.dim(); ++d) text << (d ? ", " : "") << t.size(d);
  text << "]";
  return text.str();
}

// What every tensor argument of one operator has to be; `x` is the signal it is called with, under the name
// `first`, of shape `shape` with `dims` dimensions.
struct Arguments {
  const char* op;
  const Tensor& x;
  const char* first;
  const char* shape;
  int64_t dims;

  void layout(const char* name, const Tensor& t) const {
    STD_TORCH_CHECK(t.device() == x.device(), op, ": ", name, " must be on the device of ", first, " (type ",
                    static_cast<int>(x.device().type()), ", index ", x.get_device_index(), "), got type ",
                    static_cast<int>(t.device().type()), ", index ", t.get_device_index());
    STD_TORCH_CHECK(t.is_contiguous(), op, ": ", name, " must be contiguous, got strides that are not");
  }

  void signal(const char* name, const Tensor& t) const {
    STD_TORCH_CHECK(t.dim() == dims, op, ": ", name, " must have shape ", shape, ", got ", describe(t));
    STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float || t.scalar_type() == ScalarType::Double, op, ": ",
                    name, " must be float32 or float64, got ", describe(t));
    bool same = t.scalar_type() == x.scalar_type();
    for (int64_t d = 0; d < dims; ++d) same = same && t.size(d) == x.size(d);
    STD_TORCH_CHECK(same, op, ": ", name, " must have dtype and shape of ", first, ", ", describe(x),
                    ", got ", describe(t));
    layout(name, t);
  }

  void vector(const char* name, const OptTensor& t, int64_t size, const char* meaning) const {
    if (!t) return;
    STD_TORCH_CHECK(t->dim() == 1 && t->size(0) == size && t->scalar_type() == x.scalar_type(), op, ": ",
                    name, " must hold one value of the dtype of ", first, " per ", meaning, ", ",
                    torch::headeronly::toString(x.scalar_type()), " [", size, "], got ", describe(*t));
    layout(name, *t);
  }

  void index(const char* name, const Tensor& t, ScalarType dtype, int64_t size, const char* expected) const {
    STD_TORCH_CHECK(t.dim() == 1 && t.size(0) == size && t.scalar_type() == dtype, op, ": ", name,
                    " must be ", expected, ", ", torch::headeronly::toString(dtype), " [", size, "], got ",
                    describe(t));
    layout(name, t);
  }

  // Values are the caller's business (a Graph validates them once), except where looking costs nothing: a CSR
  // whose ends do not match its edges. On a GPU even that would wait for the device.
  void ends(const char* name, const Tensor& rowptr, int64_t edges) const {
    if (!rowptr.is_cpu()) return;
    const int64_t last = rowptr.numel() - 1;
    const auto at = [&](int64_t i) {
      const void* data = rowptr.const_data_ptr();
      return rowptr.scalar_type() == ScalarType::Long ? static_cast<const int64_t*>(data)[i]
                                                      : int64_t(static_cast<const int32_t*>(data)[i]);
    };
    STD_TORCH_CHECK(at(0) == 0 && at(last) == edges, op, ": ", name,
                    " must start at 0 and end at the number of edges ", edges, ", got ", at(0), " and ",
                    at(last));
  }

  // The CSR of a graph and its transpose.
  void graph(const Tensor& rowptr, const Tensor& col, const OptTensor& weight, const Tensor& rowptr_t,
             const Tensor& col_t, const OptTensor& weight_t) const {
    const int64_t nodes = x.size(0);
    const int64_t edges = col.numel();
    const ScalarType dtype = rowptr.scalar_type();
    STD_TORCH_CHECK(dtype == ScalarType::Int || dtype == ScalarType::Long, op,
                    ": rowptr must be int32 or int64, got ", describe(rowptr));
    index("rowptr", rowptr, dtype, nodes + 1, "the row pointers of N nodes");
    index("col", col, dtype, edges, "one-dimensional, of the dtype of rowptr");
    index("rowptr_t", rowptr_t, dtype, nodes + 1, "the row pointers of the transpose");
    index("col_t", col_t, dtype, edges, "the columns of the transpose");
    ends("rowptr", rowptr, edges);
    ends("rowptr_t", rowptr_t, edges);
    STD_TORCH_CHECK(weight.has_value() == weight_t.has_value(), op,
                    ": weight and weight_t must be given together or not at all, got only ",
                    weight ? "weight" : "weight_t");
    vector("weight", weight, edges, "edge");
    vector("weight_t", weight_t, edges, "edge");
  }
};

}  // namespace

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

// The transposed graph is what a backward reads; a forward only checks it.
STABLE_TORCH_LIBRARY(plufg, m) {
  const std::string graph =
      "Tensor rowptr, Tensor col, Tensor? weight, Tensor rowptr_t, Tensor col_t, Tensor? weight_t";
  const auto define = [&](const std::string& schema) {
    m.def(schema.c_str(),
          {torch::headeronly::Tag::pt2_compliant_tag, torch::headeronly::Tag::needs_exact_strides});
  };
  define("cheb_step(Tensor x, Tensor? prev, " + graph +
         ", Tensor? left, Tensor? right, Tensor? diag, float alpha, float beta, float gamma) -> Tensor");
  define("plap_step(Tensor f, Tensor y, " + graph +
         ", Tensor dinv, Tensor p, Tensor mu, float eps) -> (Tensor, Tensor)");
  define("plap_step_backward(Tensor grad, Tensor f, Tensor out, Tensor a, " + graph +
         ", Tensor dinv, Tensor p, float eps, bool need_p) -> (Tensor, Tensor)");
}
