// How one GPU call is timed: the border between the measuring loop, which decides, and the device, which runs.
//
// A stopwatch holds one prepared call: operands in device memory, plans built, warmed up. The CUDA one is
// validate/gpu/cuda_stopwatch.h; tests script theirs. Units: milliseconds a call, megahertz, seconds of the host.
#pragma once

namespace longhaul {

struct Sample {
  double ms = 0;  // a call, > 0
  // Clock of the multiprocessors over the sample, cycles over time; 0 where the sample is too short to tell.
  double clock_mhz = 0;
};

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  // One call alone: the L2 flushed before it, the stream held until everything is enqueued, so that no launch cost is
  // in the time.
  virtual Sample cold() = 0;
  // `calls` >= 1 calls back to back behind a held stream; the L2 holds what the call before left.
  virtual Sample batch(int calls) = 0;
  // A steady clock of the host.
  virtual double seconds() = 0;
  // Leaves the device alone, so that it cools.
  virtual void rest(double seconds) = 0;
};

}  // namespace longhaul
