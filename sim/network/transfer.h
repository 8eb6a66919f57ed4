// One phase of a collective, ready for the flow solver: how many bytes it puts on which directed links, and how long it
// takes when nobody else uses them.
//
// Bytes are payload: a protocol's flags (half of what LL puts on the wire, a sixteenth of LL128) are no bytes but a
// lower part of the bandwidth that the protocol reaches.
// Invariants: `loads` sorted by link, each link once, bytes > 0; alone = latency + from_seconds(byte_seconds);
// byte_seconds >= bytes / bandwidth on every link; over all members sent + copied_bytes = received + merged_bytes.
// Immutable once built: executors share one Transfer between all its runs.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/sim_time.h"
#include "sim/network/nccl/model.h"

namespace longhaul {

struct LinkLoad {
  LinkId link = 0;
  std::int64_t bytes = 0;  // exact, all members together
  bool operator==(const LinkLoad&) const = default;
};

// What one member puts out and takes in; its own part (a local copy) is not counted, unless it goes through a switch
// that reduces or multicasts.
struct MemberTraffic {
  int rank = 0;
  std::int64_t sent_intra_node = 0;  // to members of its NVLink domain: a node, or a rack of several (NVL72)
  std::int64_t sent_inter_node = 0;  // over the network, whichever GPU of its domain hands it to a NIC
  std::int64_t received = 0;
};

struct Transfer {
  std::vector<LinkLoad> loads;
  Time latency;             // fixed part, before bytes move: start-up and per-step latencies, synchronisation
  double byte_seconds = 0;  // the byte phase alone: what NCCL needs for the bytes, and the tightest link
  Time alone;               // latency + byte phase
  double weight = 1;        // of its share where links are contended: n counts as n equal transfers of weight 1
  std::int64_t intra_node_bytes = 0;  // sent, sum over members
  std::int64_t inter_node_bytes = 0;
  std::int64_t copied_bytes = 0;       // made in switches by multicast: copies beyond the first
  std::int64_t merged_bytes = 0;       // taken in by switches that reduce: operands beyond the first
  std::vector<MemberTraffic> members;  // collectives: in the order given; exchange: by rank
  NcclAlgorithm algorithm = NcclAlgorithm::kDirect;
  NcclProtocol protocol = NcclProtocol::kSimple;
  int channels = 0;  // blocks of a member's GPU; of an exchange those of its largest message; 0: nothing moves
};

}  // namespace longhaul
