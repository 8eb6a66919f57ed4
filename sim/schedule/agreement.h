// What the members of a group must agree on before a collective starts.
//
// Ring collectives: the same kind, parts, columns and element types, and rows that fit (op.h, CollectivePart).
// Exchange: for every ordered pair of members the sends of the one, in order of parts and list entries, meet the
// receives of the other one by one, as NCCL matches them; each pair is equal in elements and type.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

// One send or receive of an exchange.
struct PeerTransfer {
  std::int16_t part = 0;
  const PeerExchange* entry = nullptr;
};
// By sender x receiver (row-major over members): what the sender sends, what the receiver receives.
struct ExchangeTransfers {
  std::vector<std::vector<PeerTransfer>> sends;
  std::vector<std::vector<PeerTransfer>> receives;
};
// `calls`: the call of every member, in member order.
ExchangeTransfers exchange_transfers(const std::vector<OpInstance>& calls);

// The k-th calls of all members of a group, in member order. Empty if they agree, else one line a difference.
std::vector<std::string> collective_differences(const Schedule& schedule, const std::vector<OpInstance>& calls);

// "rank 3 `label` (forward, layer 1, chunk 0)".
std::string place(const OpInstance& at);
// "kind[layer 1, chunk 0, instance 2]".
std::string tensor_name(const Schedule& schedule, const TensorId& id);

}  // namespace longhaul
