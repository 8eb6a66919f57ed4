// Owner of one rank's NCCL communicator, and the calls that are measured through it.
//
// Not copyable. Calls only enqueue; buffers are fp32 on the rank's device and must hold what the shape or plan says.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string>

#include "validate/gpu/collective.h"
#include "validate/gpu/exchange_plan.h"

namespace longhaul {

class Communicator {
 public:
  // To be called by all ranks at once with the same id, on their devices. `max_ctas` is the most blocks a call may use
  // on a GPU (NCCL's maxCTAs); 0 leaves the choice to NCCL.
  Communicator(const ncclUniqueId& id, int ranks, int rank, int max_ctas = 0);

  void enqueue(const CollectiveShape& shape, const float* send, float* receive, cudaStream_t stream) const;
  // As one group of sends and receives.
  void enqueue_exchange(const ExchangePlan& plan, const float* send, float* receive, cudaStream_t stream) const;
  // An all-gather as one group of broadcasts.
  void enqueue_broadcasts(const ExchangePlan& plan, const float* send, float* receive, cudaStream_t stream) const;
  // Throws what went wrong in the background.
  void check_health() const;

 private:
  struct Destroy {
    void operator()(ncclComm_t comm) const { ncclCommDestroy(comm); }
  };
  std::unique_ptr<ncclComm, Destroy> comm_;
  int ranks_, rank_;
};

ncclUniqueId make_nccl_id();
// "2.28.9": of the library that is loaded, not of the header.
std::string nccl_version();

}  // namespace longhaul
