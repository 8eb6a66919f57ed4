// Loops of calls on streams of the current device, and when every call started and ended.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/common/stream.h"
#include "validate/gpu/load.h"
#include "validate/gpu/loop_samples.h"

namespace longhaul {

// A load, the stream it runs on, about how long a call takes, and how many calls.
struct Loop {
  const Load* load = nullptr;
  cudaStream_t stream = nullptr;
  double estimate_ms = 0;
  int calls = 0;
};

class LoopRunner {
 public:
  enum class Start {
    kTogether,
    kFirstAhead,  // the others about a millisecond after the first loop's first call, which then has its blocks
  };

  // Enqueues the loops, each on its own stream, and waits for them. Spans, one vector a loop, count from one event.
  std::vector<std::vector<CallSpan>> run(const std::vector<Loop>& loops, Start start = Start::kTogether);

 private:
  std::vector<std::vector<CallSpan>> read_back(const std::vector<Loop>& loops);
  CudaEvent& event(std::size_t loop, int call);

  CudaEvent base_;
  std::vector<std::vector<CudaEvent>> events_;  // by loop: its start, then the end of each call
};

}  // namespace longhaul
