#pragma once

#include "../ops/cheb.h"
#include "cheb.cuh"

namespace plufg {

// Takes the steps of cheb on a `Queue`: a stream of a GPU, or what the tests put in its place.
template <typename Queue>
class ChebLaunch {
 public:
  explicit ChebLaunch(const Tensor& on) : on_(on), queue_(on) {}

  template <typename T, typename I>
  void run(const ChebStep<T, I>& s) const {
    ChebAnalysis<T, I> plain{};
    plain.step = s;
    run(plain);
  }

  template <typename T, typename I, template <typename, typename> typename S>
  void run(const S<T, I>& s) const {
    const int64_t chunk = queue_.chunk_edges();
    // Freed before the kernel has run, but given to nothing that runs before it.
    const Tensor sums = allocate(on_, {cuda::Cut<T>::slots(s.step.edges, chunk), s.step.channels});
    cuda::cheb_run(s, cuda::Cut<T>{chunk, data<T>(sums)}, queue_.stream());
    queue_.check("plufg::cheb");
  }

  template <typename T, typename I>
  void send(const ChebStep<T, I>& s, T* to) const {
    cuda::cheb_send(s, to, queue_.stream());
  }

 private:
  const Tensor& on_;
  Queue queue_;
};

}  // namespace plufg
