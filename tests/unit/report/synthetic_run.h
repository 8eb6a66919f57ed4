// Run records made up for tests: predicted times with seeded noise, or a few kernels of given times.
//
// Nothing here was measured: the device is "synthetic", and what is kept of it has that origin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/core/rng.h"
#include "validate/device/run_record.h"
#include "validate/report/prediction.h"

namespace longhaul {

// Relative, of a kernel's time. A repeat is slower by `shared` (normal) and by its part of `drift`, which grows from
// -drift/2 in the first repeat to +drift/2 in the last; a call by `call` (normal) and, in a part `outliers` of all
// calls, by up to `outlier_most`. `offset`: of the whole run.
struct Noise {
  double call = 0, shared = 0, drift = 0, offset = 0;
  double outliers = 0, outlier_most = 0.5;
};

// Factors on the time of every call: [repeat][call].
std::vector<std::vector<double>> noise_factors(const Noise& noise, int repeats, std::size_t calls, Rng& rng);

// Every op at its predicted time x `factor` x noise; virtual ranks: transfers are copies of no meaning.
RunRecord synthetic_run(const Prediction& prediction, const Noise& noise, int repeats, std::uint64_t seed,
                        const std::function<double(const PredictedOp&)>& factor = nullptr);

// A kernel of a record that was not predicted from anything.
struct MadeKernel {
  std::string label;
  double seconds = 1e-3;
  int calls = 2;
};
RunRecord made_run(const std::vector<MadeKernel>& kernels, const Noise& noise, int repeats, Rng& rng);

}  // namespace longhaul
