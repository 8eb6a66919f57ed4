#include "validate/device/job_transport.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::chrono::milliseconds kTimeout{120'000};

// Rows without gaps in memory of the host.
PlacedRows tight(const Rows& rows, std::byte* at) {
  return {at, nullptr, rows.type, rows.rows, rows.columns, rows.columns};
}

std::vector<std::byte> packed(const Rows& rows, const CallMember& member) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows.rows * rows.columns * element_bytes(rows.type)));
  member.device->copy(place_at(rows, member), tight(rows, bytes.data()), false, member.stream);
  member.device->synchronize(kTimeout);
  return bytes;
}

}  // namespace

void JobTransport::launch(const LoweredCall& call, const std::vector<CallMember>& members) {
  for (const CallMember& member : members) {
    if (member.device != nullptr) member.device->synchronize(kTimeout);
  }
  for (const Message& message : call.messages) move(message, members);
  for (const Reduction& reduction : call.reductions) reduce(reduction, members);
}

void JobTransport::move(const Message& message, const std::vector<CallMember>& members) {
  if (!is_local(message.to)) {
    if (is_local(message.from)) job_.send(owner(message.to), packed(message.send, member_of(members, message.from)));
    return;
  }
  const CallMember& to = member_of(members, message.to);
  std::vector<std::byte> bytes = is_local(message.from) ? packed(message.send, member_of(members, message.from))
                                                        : job_.receive(owner(message.from));
  to.device->copy(tight(message.send, bytes.data()), place_at(message.receive, to), message.accumulate, to.stream);
  to.device->synchronize(kTimeout);
}

void JobTransport::reduce(const Reduction& reduction, const std::vector<CallMember>& members) {
  std::set<int> receivers;
  for (const std::int32_t rank : reduction.to) receivers.insert(owner(rank));
  const bool receives = receivers.contains(job_.process());
  std::deque<std::vector<std::byte>> sends;
  std::vector<PlacedRows> from, to;
  for (std::size_t i = 0; i < reduction.from.size(); ++i) {
    const std::int32_t rank = reduction.from[i];
    if (is_local(rank)) {
      sends.push_back(packed(reduction.sends[i], member_of(members, rank)));
      for (const int process : receivers) {
        if (process != job_.process()) job_.send(process, sends.back());
      }
    } else if (receives) {
      sends.push_back(job_.receive(owner(rank)));
    }
    if (receives) from.push_back(tight(reduction.sends[i], sends.back().data()));
  }
  const CallMember* on = nullptr;
  for (std::size_t i = 0; i < reduction.to.size(); ++i) {
    if (!is_local(reduction.to[i])) continue;
    on = &member_of(members, reduction.to[i]);
    to.push_back(place_at(reduction.receives[i], *on));
  }
  if (on == nullptr) return;
  on->device->sum(from, to, on->stream);
  on->device->synchronize(kTimeout);
}

}  // namespace longhaul
