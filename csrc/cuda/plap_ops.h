#pragma once

#include <optional>

#include "../ops/plap.h"
#include "plap.cuh"
#include "plap_backward.cuh"

namespace plufg {

// Runs the kernels of plap on a `Queue`: a stream of a GPU, or what the tests put in its place. Memory is
// freed before the kernels that work in it have run, but given to nothing that runs before them.
template <typename Queue>
class PlapLaunch {
 public:
  static constexpr bool kWaits = false;
  static constexpr bool kFloat16 = true;
  static constexpr bool kBandsApart = false;

  explicit PlapLaunch(const Tensor& on) : on_(on), queue_(on) {}

  static int64_t vector_bytes() { return 16; }

  struct Scratch {
    Tensor tensor;
    template <typename T>
    T* data() const {
      return plufg::data<T>(tensor);
    }
  };

  template <typename T>
  Scratch scratch(int64_t numbers) const {
    return {allocate(on_, {numbers}, sizeof(T) == 4 ? ScalarType::Float : ScalarType::Double)};
  }

  template <typename T, typename I>
  void scale(const PlapScale<T, I>& s) const {
    cuda::plap_scale(s, queue_.stream());
    queue_.check("plufg::plap");
  }

  template <typename T, typename I>
  void step(const PlapStep<T, I>& s) {
    cuda::plap_step(s, cut<T>(cuda::plap_sums(s, queue_.chunk_edges())),
                    done_ ? data<int64_t>(*done_) : nullptr, queue_.stream());
    queue_.check("plufg::plap");
  }

  template <typename T, typename I>
  bool settled(const PlapStep<T, I>& s, double tol, const Tensor& taken) {
    if (!done_) {
      done_ = allocate(on_, {}, ScalarType::Long);
      torch::stable::fill_(*done_, 0);
    }
    const Scratch sums = scratch<double>(cuda::plap_settle_sums(s.rows, s.bands));
    cuda::plap_settle(s.change, s.rows, s.bands, tol, sums.template data<double>(), data<int64_t>(taken),
                      data<int64_t>(*done_), queue_.stream());
    queue_.check("plufg::plap");
    return false;
  }

  template <typename T, typename I>
  void backward(const PlapBackward<T, I>& s) {
    cuda::plap_backward(s, cut<T>(cuda::plap_backward_sums(s, queue_.chunk_edges())), queue_.stream());
    queue_.check("plufg::plap");
  }

 private:
  // Kept for the steps that follow.
  template <typename T>
  cuda::Cut<T> cut(int64_t numbers) {
    if (!sums_) sums_ = scratch<T>(numbers);
    return {queue_.chunk_edges(), sums_->template data<T>()};
  }

  const Tensor& on_;
  Queue queue_;
  std::optional<Scratch> sums_;
  std::optional<Tensor> done_;
};

}  // namespace plufg
