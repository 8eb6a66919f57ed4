// Attention through cuDNN: forward with log-sum-exp, and backward, one call a list of sequences.
//
// A CudnnAttention belongs to the device that was current when it was made and to one stream at a time: calls share its
// workspace and scratch. Plans are kept by shape, so that a repeated shape costs only the launch (building one takes
// 0.05 to 1 s). Rows that no sequence names are not written.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <map>
#include <memory>

#include "kernels/common/bf16.h"
#include "kernels/common/device_buffer.h"
#include "kernels/cudnn/attention_graph.h"
#include "kernels/cudnn/attention_problem.h"

namespace longhaul {

// A problem with its offsets and lengths in device memory: good for any number of calls of that shape.
class CudnnBatch {
 public:
  // Throws std::invalid_argument with every refusal of a forward call.
  CudnnBatch(const CudnnAttentionProblem& problem, cudaStream_t stream);

  const CudnnAttentionProblem& problem() const { return problem_; }
  const AttentionGraphShape& shape() const { return shape_; }

 private:
  friend class CudnnAttention;
  CudnnAttentionProblem problem_;
  AttentionGraphShape shape_;
  std::int64_t q_rows_ = 0, k_rows_ = 0;  // that scratch must hold
  DeviceBuffer<std::int64_t> q_offsets_, k_offsets_, lse_offsets_;
  DeviceBuffer<std::int32_t> q_lengths_, k_lengths_;
};

class CudnnAttention {
 public:
  CudnnAttention();

  // Device pointers to the first row of each tensor, 16-byte aligned.
  struct Inputs {
    const Bf16 *q = nullptr, *k = nullptr, *v = nullptr;
  };
  // Enqueues o and lse. Throws CudaError that names the call and what cuDNN said of it.
  void forward(const CudnnBatch& batch, const Inputs& in, Bf16* o, float* lse, cudaStream_t stream);

  struct Gradients {
    Bf16 *q = nullptr, *k = nullptr, *v = nullptr;
  };
  // Enqueues the gradients; o and lse as forward wrote them (or merged). Throws std::invalid_argument with every
  // refusal of a backward call.
  void backward(const CudnnBatch& batch, const Inputs& in, const Bf16* o, const float* lse, const Bf16* d_o,
                const Gradients& out, cudaStream_t stream);

  std::size_t plan_count() const { return plans_.size(); }

 private:
  struct Plan {
    AttentionGraphTensors tensors;
    CudnnPlan plan;
  };
  struct DestroyHandle {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };
  using Pointers = std::map<CudnnTensor, const void*>;

  const Plan& plan_for(const AttentionGraphShape& shape, bool backward);
  void add_common(const CudnnBatch& batch, const AttentionGraphTensors& tensors, const Inputs& in, const Bf16* o,
                  const float* lse, Pointers& pointers) const;
  // Memory that outlives the call's work: grown when needed, never shrunk.
  std::byte* scratch(DeviceBuffer<std::byte>& buffer, std::int64_t bytes, cudaStream_t stream) const;

  std::unique_ptr<cudnnContext, DestroyHandle> handle_;
  std::map<std::pair<AttentionGraphShape, bool>, Plan> plans_;
  DeviceBuffer<std::byte> workspace_{0}, row_sums_{0}, d_q_sum_{0}, d_k_heads_{0}, d_v_heads_{0};
};

}  // namespace longhaul
