// One phase of a collective, ready for the flow solver: how many bytes it puts on which directed links, and how long it
// takes when nobody else uses them.
//
// Invariants: `loads` sorted by link, each link once, bytes > 0; alone = latency + from_seconds(byte_seconds);
// byte_seconds >= bytes / bandwidth on every link; sent and received bytes of `members` sum to the same total.
// Immutable once built: executors share one Transfer between all its runs.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/sim_time.h"

namespace longhaul {

struct LinkLoad {
  LinkId link = 0;
  std::int64_t bytes = 0;  // exact, all members together
  bool operator==(const LinkLoad&) const = default;
};

// What one member puts out and takes in; its own part (a local copy) is not counted.
struct MemberTraffic {
  int rank = 0;
  std::int64_t sent_intra_node = 0;
  std::int64_t sent_inter_node = 0;
  std::int64_t received = 0;
};

enum class Algorithm : std::uint8_t { kNone, kRing, kTree, kDirect };
enum class Protocol : std::uint8_t { kSimple, kLl128, kLl };

struct Transfer {
  std::vector<LinkLoad> loads;
  Time latency;             // fixed part, before bytes move: start-up and per-step latencies, local copies
  double byte_seconds = 0;  // the byte phase alone: max over links of bytes / (bandwidth x protocol efficiency)
  Time alone;               // latency + byte phase
  double weight = 1;        // of its share where links are contended: n counts as n equal transfers of weight 1
  std::int64_t intra_node_bytes = 0;  // sent, sum over members
  std::int64_t inter_node_bytes = 0;
  std::vector<MemberTraffic> members;  // collectives: in the order given; exchange: by rank
  Algorithm algorithm = Algorithm::kNone;
  Protocol protocol = Protocol::kSimple;
  int channels = 0;  // blocks of a member's GPU that the call occupies; 0: nothing moves
};

}  // namespace longhaul
