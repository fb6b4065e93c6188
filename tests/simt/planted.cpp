// Kernels that the emulation has to find fault with, for ctypes: this file is compiled with sanitizers as
// well, beneath which pybind11 takes long.

#include "simt.h"

#include "planted.cuh"

namespace {

using Planted = void (*)(const float*, float*);

const std::map<std::string, Planted> kPlanted = {
#define SIMT_PLANTED(name) {#name, planted::name}
    SIMT_PLANTED(missing_barrier),
    SIMT_PLANTED(missing_barrier_in_dynamic_memory),
    SIMT_PLANTED(missing_second_barrier),
    SIMT_PLANTED(missing_warp_barrier),
    SIMT_PLANTED(divergent_barrier),
    SIMT_PLANTED(barrier_after_return),
    SIMT_PLANTED(two_barriers_for_one),
    SIMT_PLANTED(divergent_shuffle),
    SIMT_PLANTED(shuffle_after_return),
    SIMT_PLANTED(shuffle_against_barrier),
    SIMT_PLANTED(masks_that_differ),
    SIMT_PLANTED(caller_outside_its_mask),
    SIMT_PLANTED(lane_outside_the_mask),
    SIMT_PLANTED(width_of_twelve),
    SIMT_PLANTED(active_lanes_taken_for_all),
    SIMT_PLANTED(reads_one_too_many),
    SIMT_PLANTED(reads_one_too_many_of_shared),
    SIMT_PLANTED(reads_one_too_many_of_dynamic),
    SIMT_PLANTED(load_of_four_that_is_not_aligned),
#undef SIMT_PLANTED
    {"reads_one_too_many_of_a_template", planted::reads_one_too_many_of_a_template<float>},
};

}  // namespace

// Runs a kernel of 64 numbers; what the emulation has to say, or null.
extern "C" __attribute__((visibility("default"))) const char* planted_run(const char* name, uint64_t seed,
                                                                          unsigned blocks, unsigned threads,
                                                                          const float* x, float* out) {
  static std::string message;
  simt::engine.seed(seed);
  try {
    PLUFG_LAUNCH_SHARED(kPlanted.at(name), blocks, threads, 64 * sizeof(float), nullptr, x, out);
  } catch (const simt::Error& error) {
    message = error.what();
    return message.c_str();
  }
  return nullptr;
}
