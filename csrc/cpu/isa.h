#pragma once

namespace plufg {

// The instruction sets the CPU kernels are compiled for, ordered from the least to the most demanding.
enum class Isa { baseline, avx2, avx512 };

#if defined(__x86_64__)
inline constexpr Isa kCompiledIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
#else
inline constexpr Isa kCompiledIsas[] = {Isa::baseline};
#endif

const char* isa_name(Isa isa);

// The size of its vectors.
constexpr int vector_bytes(Isa isa) { return isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 16; }

// The instruction set of this process: PLUFG_CPU_ISA if set, else the best one that this CPU runs. Decided
// once. Throws std::runtime_error when PLUFG_CPU_ISA names one that is unknown or cannot run here.
Isa chosen_isa();

}  // namespace plufg
