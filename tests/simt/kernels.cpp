// The kernels of csrc/cuda as a Python module.

#include "bind.h"

#include "../../csrc/cuda/cheb.cuh"

namespace {

using simt::at;

template <typename T, typename I>
void cheb_step(uintptr_t x, uintptr_t prev, uintptr_t rowptr, uintptr_t col, uintptr_t weight, uintptr_t left,
               uintptr_t right, uintptr_t diag, uintptr_t out, int64_t rows, int64_t channels, int64_t edges,
               double alpha, double beta, double gamma) {
  plufg::cuda::cheb_step(plufg::ChebStep<T, I>{at<const T>(x), at<const T>(prev), at<const I>(rowptr),
                                               at<const I>(col), at<const T>(weight), at<const T>(left),
                                               at<const T>(right), at<const T>(diag), at<T>(out), rows, channels,
                                               edges, T(alpha), T(beta), T(gamma)},
                         nullptr);
}

}  // namespace

PYBIND11_MODULE(kernels, m) {
  simt::bind(m);
  m.def("cheb_step_float32_int32", cheb_step<float, int32_t>);
  m.def("cheb_step_float32_int64", cheb_step<float, int64_t>);
  m.def("cheb_step_float64_int32", cheb_step<double, int32_t>);
  m.def("cheb_step_float64_int64", cheb_step<double, int64_t>);
}
