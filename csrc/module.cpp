// The Python module. Loading it registers the operators; what it holds itself says how it was built.
#include <Python.h>

#include <exception>
#include <iterator>

#include "cpu/isa.h"

namespace {

PyObject* cpu_isa(PyObject*, PyObject*) {
  try {
    return PyUnicode_FromString(plufg::isa_name(plufg::chosen_isa()));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

int fill(PyObject* module) {
  if (PyModule_AddStringConstant(module, "version", PLUFG_VERSION) < 0) return -1;
  if (PyModule_AddStringConstant(module, "torch_version", PLUFG_TORCH_VERSION) < 0) return -1;
  if (PyModule_AddStringConstant(module, "cuda_archs", PLUFG_CUDA_ARCHS) < 0) return -1;

  PyObject* isas = PyTuple_New(static_cast<Py_ssize_t>(std::size(plufg::kCompiledIsas)));
  if (!isas) return -1;
  Py_ssize_t at = 0;
  for (const plufg::Isa isa : plufg::kCompiledIsas) {
    PyObject* name = PyUnicode_FromString(plufg::isa_name(isa));
    if (!name || PyTuple_SetItem(isas, at++, name) < 0) {
      Py_DECREF(isas);
      return -1;
    }
  }
  const int failed = PyModule_AddObjectRef(module, "isas", isas);
  Py_DECREF(isas);
  return failed;
}

PyMethodDef methods[] = {
    {"cpu_isa", cpu_isa, METH_NOARGS, "The instruction set that the CPU kernels of this process use."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill)},
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_C",
    "Compiled operators of plufg_fast.",
    0,
    methods,
    slots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&definition); }
