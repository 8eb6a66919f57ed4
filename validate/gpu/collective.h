// What a measured collective is, without a GPU: its buffers as nccl-tests counts them, its bus bandwidth, and what
// every rank must hold afterwards. Needs no CUDA.
//
// Sizes follow nccl-tests: all-reduce and broadcast the buffer, all-gather the gathered buffer, reduce-scatter the
// input buffer, all-to-all the send buffer of a rank (its own part included), sendrecv the message. Elements are fp32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

inline constexpr std::int64_t kElementBytes = 4;  // fp32

enum class MeasuredCollective : std::uint8_t {
  kAllReduce,  // sum
  kAllGather,
  kReduceScatter,  // sum
  kAllToAll,       // grouped sends and receives
  kSendRecv,       // to the next rank of the ring, from the one before
  kBroadcast,      // from rank 0
};

// As the tables spell it: "all_reduce", ...
std::string_view collective_name(MeasuredCollective collective);
std::optional<MeasuredCollective> parse_collective(std::string_view name);
const std::vector<MeasuredCollective>& measured_collectives();
// Their names, in the same order.
std::vector<std::string> measured_collective_names();

// Buffers of one call on `ranks` ranks.
struct CollectiveShape {
  MeasuredCollective collective = MeasuredCollective::kAllReduce;
  int ranks = 1;
  std::int64_t count = 0;       // as nccl-tests prints it: elements of a rank's (all-to-all: a pair's) part
  std::int64_t send_count = 0;  // elements of a rank's send buffer
  std::int64_t receive_count = 0;

  std::int64_t size_bytes() const;  // the larger buffer
};

// The largest call of at most `bytes` (size as above): parts of a rank are multiples of 16 bytes, as in nccl-tests.
// nullopt if a part would be empty.
std::optional<CollectiveShape> shape_of(MeasuredCollective collective, int ranks, std::int64_t bytes);

// Bus bandwidth over size / time: 2 (n - 1) / n for all-reduce, (n - 1) / n for gather, scatter and all-to-all, else 1
// (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(MeasuredCollective collective, int ranks);

// A run of a rank's receive buffer and where it comes from.
struct ReceivedRun {
  // Rank whose send buffer it is a copy of; kSumOfAll: the element-wise sum over all ranks.
  static constexpr int kSumOfAll = -1;
  int source = 0;
  std::int64_t source_offset = 0;  // elements
  std::int64_t offset = 0;         // in the receive buffer
  std::int64_t count = 0;

  bool operator==(const ReceivedRun&) const = default;
};

// What `rank` receives. The runs cover the receive buffer, in order, without overlap.
std::vector<ReceivedRun> received_runs(const CollectiveShape& shape, int rank);

}  // namespace longhaul
