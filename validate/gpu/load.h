// Work that is enqueued again and again while overlap is measured: compute kernels and their neighbours.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "kernels/gemm/gemm.h"
#include "validate/gpu/communicator.h"

namespace longhaul {

struct Load {
  std::string name;
  std::int64_t bytes = 0;  // that a neighbour moves, as nccl-tests or a copy counts them; 0 for compute
  int max_ctas = 0;        // NCCL's limit of blocks, 0 where there is none
  Stream::Priority priority = Stream::Priority::kNormal;
  std::function<void(cudaStream_t)> enqueue;
  // Elements of the last call's result that are wrong, over the given ranks; empty where nothing is checked.
  std::function<std::int64_t()> count_wrong;
};

// The compute kernels on the current device, on random data. Owns their operands; use from one thread.
class ComputeLoads {
 public:
  ComputeLoads();
  ComputeLoads(const ComputeLoads&) = delete;  // its loads point to it
  ComputeLoads& operator=(const ComputeLoads&) = delete;
  const std::vector<Load>& loads() const { return loads_; }

 private:
  void add_gemm(std::int64_t m, std::int64_t n, std::int64_t k);
  void add_cast();

  Gemm gemm_;
  DeviceBuffer<Bf16> a_, b_, c_;
  DeviceBuffer<float> wide_;
  DeviceBuffer<Bf16> narrow_;
  std::vector<Load> loads_;
};

// What runs beside them. Owns communicators and buffers.
class NeighbourLoads {
 public:
  // Collectives of each size and block limit at both priorities, and copies to the next GPU. All ranks at once; `ids`
  // holds one id a block limit.
  static NeighbourLoads among_gpus(int ranks, int rank, const std::vector<ncclUniqueId>& ids,
                                   const std::vector<int>& max_ctas, const std::vector<std::int64_t>& sizes);
  // Collectives that last for tens of milliseconds (12 GiB, less where few blocks move them), at normal priority,
  // and one such copy to the next GPU.
  static NeighbourLoads long_calls(int ranks, int rank, const std::vector<ncclUniqueId>& ids,
                                   const std::vector<int>& max_ctas);
  // Copies within the device and to and from pinned host memory, and the elementwise kernel. One GPU.
  static NeighbourLoads on_one_gpu(const std::vector<std::int64_t>& sizes);

  const std::vector<Load>& loads() const { return loads_; }

 private:
  struct State;
  explicit NeighbourLoads(std::int64_t buffer_bytes);
  // Ready to send, with one communicator a block limit.
  NeighbourLoads(std::int64_t buffer_bytes, int ranks, int rank, const std::vector<ncclUniqueId>& ids,
                 const std::vector<int>& max_ctas);
  void add_collectives(int ranks, int rank, std::size_t comm, int max_ctas, std::int64_t bytes,
                       const std::vector<Stream::Priority>& priorities);
  void add_peer_copies(int ranks, int rank, const std::vector<std::int64_t>& sizes);

  std::shared_ptr<State> state_;
  std::vector<Load> loads_;
};

}  // namespace longhaul
