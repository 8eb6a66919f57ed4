// The CUDA bench, loaded when it is wanted: `longhaul` itself starts without CUDA's libraries (70 ms and 1 GB of them).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "validate/gpu/calibrate/bench.h"

namespace longhaul {

struct BenchOptions {
  int gpus = 0;                    // 0: all that CUDA sees
  std::int64_t operand_bytes = 0;  // device memory for operands, at most; less where less is free
  std::int64_t host_bytes = 0;     // pinned memory for copies
  // A GPU failed while others wait for it in a collective that never ends: says the line and ends the process.
  std::function<void(const std::string& line)> end_process;
};

// A bench and the library whose code it is.
class LoadedBench {
 public:
  LoadedBench(std::shared_ptr<void> library, std::unique_ptr<Bench> bench)
      : library_(std::move(library)), bench_(std::move(bench)) {}
  Bench& operator*() { return *bench_; }

 private:
  std::shared_ptr<void> library_;  // outlives the bench
  std::unique_ptr<Bench> bench_;
};

// Throws LimitError, one line with the remedy: Longhaul was built without a part that this needs (which, why, and how
// to build it), the library does not load, there is no GPU, or there are fewer than asked for.
LoadedBench load_bench(const BenchOptions& options);

// What the module exports, by the name "longhaul_make_bench".
using MakeBench = Bench* (*)(const BenchOptions&);

}  // namespace longhaul
