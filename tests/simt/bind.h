#pragma once

// What the test modules share: pointers come from Python as integers, and every module tells what it has run.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "simt.h"

namespace simt {

template <typename T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

inline void bind(pybind11::module_& m) {
  pybind11::register_local_exception<Error>(m, "Error");
  m.def("seed", [](uint64_t value) { engine.seed(value); });
  m.def("launches", [] { return engine.launches(); });
}

}  // namespace simt
