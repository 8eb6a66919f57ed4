// A build without the CUDA executor.
#include "sim/cli/validate_gpu.h"
#include "sim/core/invariant.h"

namespace longhaul {

std::optional<std::string> missing_for_gpu() {
  return "this build runs nothing on GPUs: build it where nvcc and cuBLASLt are, with cuDNN and NCCL for all of it "
         "(docs/development.md), or give a stored run with --record FILE, or --device host for a small emulation";
}

int visible_gpu_count() { return 0; }

bool can_join_gpus() { return false; }

std::unique_ptr<Device> make_gpu(int index) { LH_ASSERT(false, "GPU {} in a build without CUDA", index); }

GpuTeam make_gpu_team(const Schedule&) { LH_ASSERT(false, "a team of {} GPUs in a build without CUDA", 0); }

}  // namespace longhaul
