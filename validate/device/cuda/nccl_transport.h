// Collectives between GPUs by NCCL: one process with all GPUs of a host, or several processes that share a bootstrap.
//
// One communicator for every group of the schedule with a local member, made in the order of the groups on every
// process. Ring collectives of tight rows are NCCL's own; exchanges are one group of sends and receives, a message
// each; rows with gaps are packed into scratch memory on the way out and unpacked on the way in. A message to the rank
// itself is a copy. bf16 sums round as NCCL's do.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "validate/device/cuda/cuda_device.h"
#include "validate/device/transport.h"

namespace longhaul {

// How processes share the id of a new communicator: called by every process of a group, in the same order; the process
// of the group's first rank gives it, the others get it. In one process the identity.
using ShareNcclId = std::function<ncclUniqueId(GroupId group, const std::vector<std::int32_t>& members)>;
ShareNcclId within_one_process();

class NcclTransport : public Transport {
 public:
  // `devices`: by rank; nullptr for ranks of other processes. Throws DeviceFault (kNccl; kHang once `patience`, unless
  // it is zero, is over).
  NcclTransport(const Schedule& schedule, std::vector<CudaDevice*> devices, const ShareNcclId& share,
                std::chrono::milliseconds patience);
  ~NcclTransport() override;

  std::string label(CollectiveKind kind) const override;
  void announce(const LoweredCall& call) override;
  std::int64_t scratch_bytes(std::int32_t rank) const override;
  void launch(const LoweredCall& call, const std::vector<CallMember>& members) override;
  void check() override;
  bool abort() override;

 private:
  struct CommunicatorOwner {
    void operator()(ncclComm_t communicator) const { ncclCommDestroy(communicator); }
  };
  using Communicator = std::unique_ptr<ncclComm, CommunicatorOwner>;

  void join(GroupId group, const std::vector<std::int32_t>& members, const ShareNcclId& share);
  // Until what was asked of the group's communicators is done or under way; at once where calls block.
  void settle(GroupId group, const char* call);
  ncclComm_t communicator(GroupId group, std::int32_t rank) const;
  std::byte* buffer(std::int32_t rank, GroupId group, bool sends);
  void ring(const LoweredCall& call, const std::vector<CallMember>& members);
  void exchange(const LoweredCall& call, const std::vector<CallMember>& members);

  std::vector<CudaDevice*> devices_;
  std::chrono::milliseconds patience_;
  std::map<std::pair<GroupId, std::int32_t>, Communicator> communicators_;  // by group, rank
  // Bytes for packed rows by (rank, group), and the memory once it was first needed.
  struct Buffers {
    std::int64_t send_bytes = 0, receive_bytes = 0;
    std::byte *send = nullptr, *receive = nullptr;
  };
  std::map<std::pair<std::int32_t, GroupId>, Buffers> buffers_;
};

// "2.28.9": of the library that is loaded.
std::string loaded_nccl_version();

}  // namespace longhaul
