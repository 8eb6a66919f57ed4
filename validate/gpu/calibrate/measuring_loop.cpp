#include "validate/gpu/calibrate/measuring_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace longhaul {
namespace {

// Mean of the clocks that are known.
class ClockMean {
 public:
  void add(double mhz) {
    if (mhz <= 0) return;
    sum_ += mhz;
    ++count_;
  }
  double mhz() const { return count_ > 0 ? sum_ / count_ : 0; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

struct ColdSamples {
  std::vector<double> kept;
  ClockMean clock;
};

void add(ColdSamples& samples, const Sample& sample) {
  samples.kept.push_back(sample.ms);
  samples.clock.add(sample.clock_mhz);
}

bool throttled(const Sample& sample, const LoopLimits& limits) {
  return sample.clock_mhz > 0 && sample.clock_mhz < limits.throttle_ratio * limits.default_clock_mhz;
}

StopReason take_cold(Stopwatch& stopwatch, const LoopLimits& limits, ColdSamples& samples, std::size_t& dropped) {
  ColdSamples slow;  // all that there is, where the clock never rises
  const double start = stopwatch.seconds();
  double rest = limits.first_rest_seconds;
  int in_a_row = 0;
  for (;;) {
    const Sample sample = stopwatch.cold();
    const double passed = stopwatch.seconds() - start;
    if (throttled(sample, limits)) {
      ++dropped;
      add(slow, sample);
      if (++in_a_row >= limits.most_drops || passed >= limits.most_seconds) {
        if (samples.kept.empty()) samples = std::move(slow);
        return StopReason::kThrottled;
      }
      stopwatch.rest(rest);
      rest = std::min(2 * rest, limits.longest_rest_seconds);
      continue;
    }
    in_a_row = 0;
    rest = limits.first_rest_seconds;
    add(samples, sample);
    if (samples.kept.size() >= limits.fewest_samples && passed >= limits.least_seconds &&
        quiet(samples.kept, limits.noise)) {
      return StopReason::kQuiet;
    }
    if (samples.kept.size() >= limits.most_samples) return StopReason::kSamples;
    if (passed >= limits.most_seconds) return StopReason::kTime;
  }
}

void take_batches(Stopwatch& stopwatch, const LoopLimits& limits, double call_ms, Measurement& result) {
  const double wanted = std::ceil(1e3 * limits.batch_seconds / call_ms);
  const int calls = static_cast<int>(std::clamp(wanted, 2.0, static_cast<double>(limits.most_batch_calls)));
  const double start = stopwatch.seconds();
  std::vector<Sample> batches;
  do {
    batches.push_back(stopwatch.batch(calls));
  } while (stopwatch.seconds() - start < limits.batch_seconds);
  const std::size_t from = batches.size() / 2;
  ClockMean clock;
  double total_ms = 0;
  for (std::size_t i = from; i < batches.size(); ++i) {
    total_ms += batches[i].ms;
    clock.add(batches[i].clock_mhz);
  }
  result.batch_ms = total_ms / static_cast<double>(batches.size() - from);
  result.batch_clock_mhz = clock.mhz();
}

}  // namespace

const char* stop_name(StopReason reason) {
  switch (reason) {
    case StopReason::kQuiet:
      return "quiet";
    case StopReason::kTime:
      return "time";
    case StopReason::kSamples:
      return "samples";
    case StopReason::kThrottled:
      return "throttled";
  }
  return "";
}

Measurement measure(Stopwatch& stopwatch, const LoopLimits& limits) {
  Measurement result;
  ColdSamples samples;
  result.stop = take_cold(stopwatch, limits, samples, result.dropped);
  result.deviation = samples.kept.size() >= 2 ? relative_deviation(samples.kept) : 0;
  result.clock_mhz = samples.clock.mhz();
  result.ms = summarize(std::move(samples.kept));
  take_batches(stopwatch, limits, result.ms.median, result);
  return result;
}

}  // namespace longhaul
