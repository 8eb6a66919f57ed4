// Attention calls of one stream of one GPU, with the plans that they need kept by piece list.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "validate/device/device.h"

namespace longhaul {

// Whether one call of cuDNN computes these pieces: a build with cuDNN, a mask that it has, no row shared.
bool runs_on_cudnn(const AttentionForwardCall& call);
bool runs_on_cudnn(const AttentionBackwardCall& call);

// Device memory that a stream holds for such a call beside its operands, at most: what kernels/attention and
// kernels/cudnn keep; cuDNN's own workspace is known to it alone and taken as nothing. `may_use_cudnn`: as below.
std::int64_t attention_workspace(const AttentionForwardCall& call, bool may_use_cudnn);
std::int64_t attention_workspace(const AttentionBackwardCall& call, bool may_use_cudnn);

class AttentionRunner {
 public:
  explicit AttentionRunner(bool may_use_cudnn);
  ~AttentionRunner();

  void forward(const AttentionForwardCall& call, const DeviceArena& memory, StreamId scratch_stream,
               cudaStream_t stream);
  void backward(const AttentionBackwardCall& call, const DeviceArena& memory, StreamId scratch_stream,
                cudaStream_t stream);

 private:
  struct Libraries;
  std::unique_ptr<Libraries> libraries_;
};

}  // namespace longhaul
