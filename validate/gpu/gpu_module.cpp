// What longhaul-gpu.so exports to the command (validate/gpu/calibrate/load_bench.h).
#include "kernels/common/check.h"
#include "sim/core/error.h"
#include "validate/gpu/cuda_bench.h"

extern "C" __attribute__((visibility("default"))) longhaul::Bench* longhaul_make_bench(
    const longhaul::BenchOptions& options) {
  try {
    return new longhaul::CudaBench(options);
  } catch (const longhaul::CudaError& error) {
    throw longhaul::LimitError(std::string("the GPU cannot be set up: ") + error.what());
  }
}
