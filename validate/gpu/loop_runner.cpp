#include "validate/gpu/loop_runner.h"

#include <chrono>
#include <thread>

namespace longhaul {
namespace {

constexpr std::chrono::milliseconds kAhead{1};

// The loop whose next call will start first, by the estimates; loops.size() when all calls are enqueued. So neither
// queue runs full while the other is empty.
std::size_t earliest(const std::vector<Loop>& loops, const std::vector<int>& done) {
  std::size_t best = loops.size();
  double best_ms = 0;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const double start_ms = done[i] * loops[i].estimate_ms;
    if (done[i] < loops[i].calls && (best == loops.size() || start_ms < best_ms)) {
      best = i;
      best_ms = start_ms;
    }
  }
  return best;
}

}  // namespace

CudaEvent& LoopRunner::event(std::size_t loop, int call) {
  if (events_.size() <= loop) events_.resize(loop + 1);
  while (events_[loop].size() <= static_cast<std::size_t>(call)) events_[loop].emplace_back();
  return events_[loop][static_cast<std::size_t>(call)];
}

std::vector<std::vector<CallSpan>> LoopRunner::run(const std::vector<Loop>& loops, Start start) {
  for (std::size_t i = 0; i < loops.size(); ++i) event(i, loops[i].calls);  // made before the clock runs
  std::vector<int> done(loops.size(), 0);
  const auto call = [&](std::size_t i) {
    loops[i].load->enqueue(loops[i].stream);
    event(i, ++done[i]).record(loops[i].stream);
  };
  base_.record(loops.front().stream);
  event(0, 0).record(loops.front().stream);
  if (start == Start::kFirstAhead) {
    call(0);
    base_.synchronize();
    std::this_thread::sleep_for(kAhead);
  }
  for (std::size_t i = 1; i < loops.size(); ++i) {
    LH_CUDA_CHECK(cudaStreamWaitEvent(loops[i].stream, base_.get(), 0));
    event(i, 0).record(loops[i].stream);
  }
  for (std::size_t i = earliest(loops, done); i < loops.size(); i = earliest(loops, done)) call(i);
  return read_back(loops);
}

std::vector<std::vector<CallSpan>> LoopRunner::read_back(const std::vector<Loop>& loops) {
  for (const Loop& loop : loops) LH_CUDA_CHECK(cudaStreamSynchronize(loop.stream));
  std::vector<std::vector<CallSpan>> spans(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    for (int call = 0; call < loops[i].calls; ++call) {
      spans[i].push_back({event(i, call).milliseconds_since(base_), event(i, call + 1).milliseconds_since(base_)});
    }
  }
  return spans;
}

}  // namespace longhaul
