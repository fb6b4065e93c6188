#include "arguments.h"

#include <sstream>

namespace plufg {

std::string describe(const Tensor& t) {
  std::ostringstream text;
  text << torch::headeronly::toString(t.scalar_type()) << " [";
  for (int64_t d = 0; d < t.dim(); ++d) text << (d ? ", " : "") << t.size(d);
  text << "]";
  return text.str();
}

void Arguments::layout(const char* name, const Tensor& t) const {
  STD_TORCH_CHECK(t.device() == x.device(), op, ": ", name, " must be on the device of ", first, " (type ",
                  static_cast<int>(x.device().type()), ", index ", x.get_device_index(), "), got type ",
                  static_cast<int>(t.device().type()), ", index ", t.get_device_index());
  STD_TORCH_CHECK(t.is_contiguous(), op, ": ", name, " must be contiguous, got strides that are not");
}

void Arguments::signal(const char* name, const Tensor& t) const {
  STD_TORCH_CHECK(t.dim() == dims, op, ": ", name, " must have shape ", shape, ", got ", describe(t));
  const ScalarType type = t.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Double ||
                      (bfloat16 && type == ScalarType::BFloat16) || (float16 && type == ScalarType::Half),
                  op, ": ", name, " must be float32", bfloat16 ? ", bfloat16" : "",
                  float16 ? ", float16" : "", " or float64", ", got ", describe(t));
  bool same = t.scalar_type() == x.scalar_type();
  for (int64_t d = 0; d < dims; ++d) same = same && t.size(d) == x.size(d);
  STD_TORCH_CHECK(same, op, ": ", name, " must have dtype and shape of ", first, ", ", describe(x), ", got ",
                  describe(t));
  layout(name, t);
}

void Arguments::nodes(const char* name, const Tensor& t, int64_t size) const {
  STD_TORCH_CHECK(
      t.dim() == 2 && t.size(0) == size && t.size(1) == x.size(1) && t.scalar_type() == work_type(x), op,
      ": ", name, " must be ", torch::headeronly::toString(work_type(x)), " [", size, ", ", x.size(1),
      "], got ", describe(t));
  layout(name, t);
}

void Arguments::vector(const char* name, const OptTensor& t, int64_t size, const char* meaning) const {
  if (!t) return;
  STD_TORCH_CHECK(t->dim() == 1 && t->size(0) == size && t->scalar_type() == work_type(x), op, ": ", name,
                  " must hold one value of the dtype of ", first, " per ", meaning, ", ",
                  torch::headeronly::toString(work_type(x)), " [", size, "], got ", describe(*t));
  layout(name, *t);
}

void Arguments::index(const char* name, const Tensor& t, ScalarType dtype, int64_t size,
                      const char* expected) const {
  STD_TORCH_CHECK(t.dim() == 1 && t.size(0) == size && t.scalar_type() == dtype, op, ": ", name, " must be ",
                  expected, ", ", torch::headeronly::toString(dtype), " [", size, "], got ", describe(t));
  layout(name, t);
}

void Arguments::ends(const char* name, const Tensor& rowptr, int64_t edges) const {
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

void Arguments::graph(const Tensor& rowptr, const Tensor& col, const OptTensor& weight,
                      const Tensor& rowptr_t, const Tensor& col_t, const OptTensor& weight_t) const {
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

}  // namespace plufg
