#include "validate/device/transport.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {

const CallMember& member_of(const std::vector<CallMember>& members, std::int32_t rank) {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const CallMember& member) { return member.rank == rank; });
  LH_ASSERT(found != members.end(), "rank {} is no member of the call", rank);
  return *found;
}

PlacedRows place_at(const Rows& rows, const CallMember& member) {
  return placed(rows, *member.memory, member.schedule_stream);
}

EventHandle VirtualTransport::event_of(Device& device, StreamHandle stream) {
  const auto found = events_.find(stream);
  if (found != events_.end()) return found->second;
  return events_.emplace(stream, device.make_event(false)).first->second;
}

void VirtualTransport::launch(const LoweredCall& call, const std::vector<CallMember>& members) {
  const auto lead = std::find_if(members.begin(), members.end(), [](const CallMember& m) { return m.takes_part; });
  LH_ASSERT(lead != members.end(), "a call without members");
  Device& device = *lead->device;
  for (const CallMember& member : members) {
    if (!member.takes_part || &member == &*lead) continue;
    const EventHandle arrived = event_of(device, member.stream);
    device.record(arrived, member.stream);
    device.wait(lead->stream, arrived);
  }
  for (const Message& message : call.messages) {
    device.copy(place_at(message.send, member_of(members, message.from)),
                place_at(message.receive, member_of(members, message.to)), message.accumulate, lead->stream);
  }
  for (const Reduction& reduction : call.reductions) {
    std::vector<PlacedRows> from, to;
    for (std::size_t i = 0; i < reduction.from.size(); ++i) {
      from.push_back(place_at(reduction.sends[i], member_of(members, reduction.from[i])));
    }
    for (std::size_t i = 0; i < reduction.to.size(); ++i) {
      to.push_back(place_at(reduction.receives[i], member_of(members, reduction.to[i])));
    }
    device.sum(from, to, lead->stream);
  }
  const EventHandle done = event_of(device, lead->stream);
  device.record(done, lead->stream);
  for (const CallMember& member : members) {
    if (member.takes_part && &member != &*lead) device.wait(member.stream, done);
  }
}

void launch_stand_in(const LoweredCall& call, const CallMember& member) {
  std::uint32_t seed = static_cast<std::uint32_t>(member.rank);
  for (const Message& message : call.messages) {
    if (message.to == member.rank) member.device->noise(place_at(message.receive, member), ++seed, member.stream);
  }
  for (const Reduction& reduction : call.reductions) {
    for (std::size_t i = 0; i < reduction.to.size(); ++i) {
      if (reduction.to[i] != member.rank) continue;
      member.device->noise(place_at(reduction.receives[i], member), ++seed, member.stream);
    }
  }
}

}  // namespace longhaul
