#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace plufg {
namespace {

bool cpu_runs(Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return avx2;
    case Isa::avx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return isa == Isa::baseline;
#endif
}

Isa choose() {
  const char* env = std::getenv("PLUFG_CPU_ISA");
  const std::string wanted = env ? env : "";
  std::string usable;
  Isa best = Isa::baseline;
  for (const Isa isa : kCompiledIsas) {
    if (!cpu_runs(isa)) continue;
    if (wanted == isa_name(isa)) return isa;
    usable += usable.empty() ? isa_name(isa) : std::string(", ") + isa_name(isa);
    best = isa;
  }
  if (wanted.empty()) return best;
  throw std::runtime_error(
      "PLUFG_CPU_ISA must name an instruction set that was compiled in and that this CPU runs (" + usable +
      "), got '" + wanted + "'");
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

Isa chosen_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace plufg
