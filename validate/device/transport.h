// How collectives move bytes between the memories of ranks, behind one interface: copies on one device (virtual ranks),
// or NCCL between devices (nccl_transport.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "validate/device/device.h"
#include "validate/device/lowering.h"

namespace longhaul {

// One member of a group at a call.
struct CallMember {
  std::int32_t rank = 0;
  bool takes_part = false;  // false: the call is empty for it
  Device* device = nullptr;
  const DeviceArena* memory = nullptr;
  StreamId schedule_stream = 0;
  StreamHandle stream = -1;
};

// The member of that rank, which must be there.
const CallMember& member_of(const std::vector<CallMember>& members, std::int32_t rank);
// Rows in the memory of a member.
PlacedRows place_at(const Rows& rows, const CallMember& member);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string label(CollectiveKind kind) const = 0;
  // Enqueues the call for every member that takes part, in member order, on the members' streams. Throws DeviceFault.
  virtual void launch(const LoweredCall& call, const std::vector<CallMember>& members) = 0;
  // Throws a DeviceFault for what went wrong since it was launched.
  virtual void check() {}
  // Bytes of device memory that a rank's calls need beside the arena, known once all calls were announced.
  virtual void announce(const LoweredCall& call) { (void)call; }
  virtual std::int64_t scratch_bytes(std::int32_t rank) const {
    (void)rank;
    return 0;
  }
  // Whether processes that wait for this one come back after a fault here: by their watchdogs, where devices wait.
  virtual bool survives_faults() const { return true; }
  // Ends transfers that hang, so that devices can be freed. True if that is possible.
  virtual bool abort() { return false; }
};

// All ranks on one device: the members' streams meet, the copies run on the first member's, and all go on.
class VirtualTransport : public Transport {
 public:
  std::string label(CollectiveKind) const override { return "device copies"; }
  void launch(const LoweredCall& call, const std::vector<CallMember>& members) override;

 private:
  EventHandle event_of(Device& device, StreamHandle stream);
  std::map<StreamHandle, EventHandle> events_;
};

// What stands in for a call where one rank runs alone: its received rows become noise (Device::noise).
void launch_stand_in(const LoweredCall& call, const CallMember& member);

}  // namespace longhaul
