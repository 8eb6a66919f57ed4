// A device by script: samples come from a list (the last one repeats), the clock moves by what each takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "validate/gpu/calibrate/stopwatch.h"

namespace longhaul {

class ScriptedStopwatch : public Stopwatch {
 public:
  explicit ScriptedStopwatch(std::vector<Sample> cold, std::vector<Sample> batches = {{1, 1980}})
      : cold_(std::move(cold)), batches_(std::move(batches)) {}

  Sample cold() override {
    if (fail_at >= 0 && taken == fail_at) throw std::runtime_error("scripted failure");
    const Sample sample = cold_.at(std::min(static_cast<std::size_t>(taken), cold_.size() - 1));
    ++taken;
    now += 1e-3 * sample.ms + overhead_seconds;
    return sample;
  }
  Sample batch(int calls) override {
    const Sample sample = batches_.at(std::min(batch_calls.size(), batches_.size() - 1));
    batch_calls.push_back(calls);
    now += 1e-3 * sample.ms * calls;
    return sample;
  }
  double seconds() override { return now; }
  void rest(double seconds) override {
    rests.push_back(seconds);
    now += seconds;
  }

  double now = 100;  // of the host's clock
  double overhead_seconds = 0;
  int taken = 0, fail_at = -1;
  std::vector<int> batch_calls;
  std::vector<double> rests;

 private:
  std::vector<Sample> cold_;
  std::vector<Sample> batches_;
};

}  // namespace longhaul
