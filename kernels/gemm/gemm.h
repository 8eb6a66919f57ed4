// Matrix products on one GPU through cuBLASLt: bf16 in, fp32 accumulation (split-K partial sums too), bf16 or fp32 out.
//
// A Gemm belongs to the device that was current when it was made and to one stream at a time: calls share its
// workspace. The algorithm is cuBLASLt's first heuristic choice for (problem, pointer alignments), asked once and kept,
// so that a repeated call costs only the launch and gives the same bits on the same device and library version.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>

#include "kernels/common/device_buffer.h"
#include "kernels/gemm/gemm_problem.h"

namespace longhaul {

class Gemm {
 public:
  // Device memory that an algorithm may use; 32 MiB is what NVIDIA recommends for Hopper.
  static constexpr std::size_t kDefaultWorkspaceBytes = std::size_t{32} << 20;

  explicit Gemm(std::size_t workspace_bytes = kDefaultWorkspaceBytes);
  ~Gemm();

  // Enqueues C (=, +=) op(A) op(B). Device pointers: a and b to bf16, c to bf16 or fp32 as problem.output says; C does
  // not overlap A or B. Throws std::invalid_argument for an invalid problem, CudaError if cuBLASLt refuses it.
  void run(const GemmProblem& problem, const void* a, const void* b, void* c, cudaStream_t stream);

  // The same of doubles, the sums too; problem.output does not count. For references: its algorithm is looked up anew.
  void run_double(const GemmProblem& problem, const double* a, const double* b, double* c, cudaStream_t stream);

  std::size_t plan_count() const { return plans_.size(); }

 private:
  struct Plan;
  // A plan holds for pointers aligned at least so (bytes, powers of two up to 256).
  struct PlanKey {
    GemmProblem problem;
    std::uint32_t a_alignment = 0, b_alignment = 0, c_alignment = 0;
    auto operator<=>(const PlanKey&) const = default;
  };
  struct DestroyHandle {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };

  const Plan& plan_for(const PlanKey& key);

  std::unique_ptr<cublasLtContext, DestroyHandle> handle_;
  DeviceBuffer<std::byte> workspace_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace longhaul
