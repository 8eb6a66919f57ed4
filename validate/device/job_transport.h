// Collectives between devices on the CPU of several processes (`--device host` under mpirun): messages of the job.
//
// What every call moves and the order of every sum are those of VirtualTransport, so that numbers are the same to the
// bit. A call waits for all work before it and is done when `launch` returns: nothing overlaps, and times mean nothing.
// Processes meet all calls in the common launch order and all messages of a call in its order, which leaves no circle
// of processes that wait for each other.
#pragma once

#include <cstdint>
#include <vector>

#include "validate/device/process_job.h"
#include "validate/device/transport.h"

namespace longhaul {

class JobTransport : public Transport {
 public:
  // `ranks_each`: ranks of a process. The devices must be HostDevices, one a rank.
  JobTransport(ProcessJob& job, std::int32_t ranks_each) : job_(job), ranks_each_(ranks_each) {}

  std::string label(CollectiveKind) const override { return "messages of the job"; }
  void launch(const LoweredCall& call, const std::vector<CallMember>& members) override;
  bool survives_faults() const override { return false; }  // hosts wait in a message

 private:
  int owner(std::int32_t rank) const { return rank / ranks_each_; }
  bool is_local(std::int32_t rank) const { return owner(rank) == job_.process(); }
  void move(const Message& message, const std::vector<CallMember>& members);
  void reduce(const Reduction& reduction, const std::vector<CallMember>& members);

  ProcessJob& job_;
  std::int32_t ranks_each_;
};

}  // namespace longhaul
