#include "validate/gpu/calibrate/load_bench.h"

#include "validate/gpu/calibrate/module_file.h"

namespace longhaul {
namespace {

const ModuleFile& bench_module() {
  static const ModuleFile module{"longhaul-gpu.so", "validate/gpu", LONGHAUL_BENCH_MISSING,
                                 "this longhaul cannot measure", "CUDA with cuBLASLt, cuDNN 9, NCCL"};
  return module;
}

}  // namespace

LoadedBench load_bench(const BenchOptions& options) {
  std::shared_ptr<void> library = open_module(bench_module());
  const auto make = reinterpret_cast<MakeBench>(module_entry(bench_module(), library.get(), "longhaul_make_bench"));
  return {std::move(library), std::unique_ptr<Bench>(make(options))};
}

}  // namespace longhaul
