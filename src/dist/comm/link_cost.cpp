// What a collective costs on a ring of N ranks, each with one link to the next that carries W bytes a second
// after a latency of L. In every step all ranks send and receive at the same time, so a step of b bytes takes
// L + b / W, whatever N is. With S the bytes of the whole tensor:
//
//   reduce_scatter   A part of S/N starts at each rank and goes round once, gathering a summand at each stop:
//                    N-1 steps of S/N.                                     (N-1) L + (N-1)/N S/W
//   all_gather       The same way without the sums.                        (N-1) L + (N-1)/N S/W
//   all_reduce       One after the other.                                 2(N-1) L + 2(N-1)/N S/W
//   broadcast        A chain from the root, N pieces of S/N behind each other: the last piece leaves the root
//                    in step N and is N-2 steps from the end of the chain.  2(N-1) L + 2(N-1)/N S/W
//   reduce           The same chain backwards, a summand at each stop.    2(N-1) L + 2(N-1)/N S/W
//   alternate        The all_reduce that passes whole tensors round: N-1 steps of S. (N-1) L + (N-1) S/W
//   barrier          An all_reduce of nothing.                            2(N-1) L
//   send, recv       One step.                                             L + S/W
//
// No all_reduce can be faster than 2(N-1)/N S/W: each rank must send its part of the sum, and what the
// others' sums need of it. The ring reaches that, at the cost of 2(N-1) latencies.
#include "dist/comm/link_model.h"

namespace kiln {

double link_seconds(const LinkModel& link, CommAlgorithm algorithm, const CommCall& call, int world) {
  if (world < 2) return 0;
  const double n = world, brought = static_cast<double>(call.bytes().value);
  auto steps = [&](double count, double bytes) { return count * (link.latency + bytes / link.bandwidth); };
  switch (call.what) {
    case Collective::all_reduce:
      return algorithm == CommAlgorithm::alternate ? steps(n - 1, brought) : steps(2 * (n - 1), brought / n);
    case Collective::reduce_scatter:
      return steps(n - 1, brought / n);
    case Collective::all_gather:
      return steps(n - 1, brought);  // each brings S/N
    case Collective::reduce:
    case Collective::broadcast:
      return steps(2 * (n - 1), brought / n);
    case Collective::barrier:
      return steps(2 * (n - 1), 0);
    case Collective::send:
    case Collective::recv:
    case Collective::send_recv:
      return steps(1, brought);
  }
  return 0;
}

}  // namespace kiln
