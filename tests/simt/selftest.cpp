// Kernels that the emulation has to run as a GPU would, as a Python module.

#include "bind.h"
#include "sound.cuh"

namespace {

using simt::at;

template <typename T>
concept CanAdd = requires(T* to) { atomicAdd(to, T(1)); };
static_assert(CanAdd<int> && CanAdd<unsigned> && CanAdd<unsigned long long>);
static_assert(!CanAdd<float> && !CanAdd<double>, "sums of floats in any order are not repeatable");

template <typename Half>
void narrow(uintptr_t from, uintptr_t to, size_t n) {
  for (size_t i = 0; i < n; ++i) at<Half>(to)[i] = Half(at<float>(from)[i]);
}

template <typename Half>
void widen(uintptr_t from, uintptr_t to, size_t n) {
  for (size_t i = 0; i < n; ++i) at<float>(to)[i] = static_cast<float>(at<Half>(from)[i]);
}

template <typename T>
void bind_numbers(pybind11::module_& m, const std::string& type) {
  m.def(("block_sum_" + type).c_str(), [](uintptr_t x, uintptr_t out, int n, unsigned blocks) {
    PLUFG_LAUNCH(sound::block_sum<T>, blocks, 128, nullptr, at<const T>(x), at<T>(out), n);
  });
  m.def(("shuffles_" + type).c_str(), [](uintptr_t x, uintptr_t out, unsigned threads, int by, int width) {
    PLUFG_LAUNCH(sound::shuffles<T>, 1, threads, nullptr, at<const T>(x), at<T>(out), by, width);
  });
}

template <typename T>
void bind_unwritten(pybind11::module_& m, const std::string& type) {
  m.def(("unwritten_" + type).c_str(), [](uintptr_t out, unsigned blocks) {
    PLUFG_LAUNCH_SHARED(sound::unwritten<T>, blocks, 2, 2 * sizeof(T), nullptr, at<T>(out));
  });
}

template <typename T>
void bind_tickets(pybind11::module_& m, const std::string& type) {
  m.def(("tickets_" + type).c_str(), [](uintptr_t out, unsigned blocks, unsigned threads) {
    T counter = 0;
    PLUFG_LAUNCH(sound::tickets<T>, blocks, threads, nullptr, &counter, at<int>(out));
    return counter;
  });
}

}  // namespace

PYBIND11_MODULE(selftest, m) {
  simt::bind(m);
  bind_numbers<float>(m, "float32");
  bind_numbers<double>(m, "float64");
  bind_numbers<int>(m, "int32");
  bind_numbers<long>(m, "int64");
  bind_unwritten<float>(m, "float32");
  bind_unwritten<double>(m, "float64");
  bind_tickets<int>(m, "int");
  bind_tickets<unsigned>(m, "unsigned");
  bind_tickets<unsigned long long>(m, "unsigned_long_long");
  m.def("warp_scan", [](uintptr_t x, uintptr_t out, unsigned threads) {
    PLUFG_LAUNCH(sound::warp_scan, 1, threads, nullptr, at<const int>(x), at<int>(out));
  });
  m.def("parts", [](uintptr_t x, uintptr_t out) {
    PLUFG_LAUNCH(sound::parts, 1, 64, nullptr, at<const float>(x), at<float>(out));
  });
  m.def("reverse",
        [](uintptr_t x, uintptr_t out, unsigned blocks, unsigned threads, int rounds, size_t bytes) {
          PLUFG_LAUNCH_SHARED(sound::reverse, blocks, threads, bytes, nullptr, at<const float>(x),
                              at<float>(out), rounds);
        });
  m.def("votes", [](uintptr_t x, uintptr_t out, unsigned threads) {
    PLUFG_LAUNCH(sound::votes, 1, threads, nullptr, at<const int>(x), at<int>(out));
  });
  m.def("active_sum", [](uintptr_t x, uintptr_t out, uintptr_t masks) {
    PLUFG_LAUNCH(sound::active_sum, 1, 32, nullptr, at<const int>(x), at<int>(out), at<int>(masks));
  });
  m.def("places", [](uintptr_t out, std::array<unsigned, 3> grid, std::array<unsigned, 3> block) {
    PLUFG_LAUNCH(sound::places, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), nullptr,
                 at<int>(out));
  });
  m.def("narrow_half", narrow<__half>);
  m.def("narrow_bfloat16", narrow<__nv_bfloat16>);
  m.def("widen_half", widen<__half>);
  m.def("widen_bfloat16", widen<__nv_bfloat16>);
}
