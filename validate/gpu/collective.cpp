#include "validate/gpu/collective.h"

#include <algorithm>
#include <array>
#include <utility>

namespace longhaul {
namespace {

constexpr std::int64_t kPartBytes = 16;

constexpr std::array<std::pair<MeasuredCollective, std::string_view>, 6> kNames = {{
    {MeasuredCollective::kAllReduce, "all_reduce"},
    {MeasuredCollective::kAllGather, "all_gather"},
    {MeasuredCollective::kReduceScatter, "reduce_scatter"},
    {MeasuredCollective::kAllToAll, "alltoall"},
    {MeasuredCollective::kSendRecv, "sendrecv"},
    {MeasuredCollective::kBroadcast, "broadcast"},
}};

// Whether the buffer is made of one part a rank.
bool has_parts(MeasuredCollective collective) {
  return collective == MeasuredCollective::kAllGather || collective == MeasuredCollective::kReduceScatter ||
         collective == MeasuredCollective::kAllToAll;
}

}  // namespace

std::string_view collective_name(MeasuredCollective collective) {
  return kNames.at(static_cast<std::size_t>(collective)).second;
}

std::optional<MeasuredCollective> parse_collective(std::string_view name) {
  for (const auto& [collective, known] : kNames) {
    if (known == name) return collective;
  }
  return std::nullopt;
}

const std::vector<MeasuredCollective>& measured_collectives() {
  static const std::vector<MeasuredCollective> kAll = [] {
    std::vector<MeasuredCollective> all;
    for (const auto& [collective, name] : kNames) all.push_back(collective);
    return all;
  }();
  return kAll;
}

std::vector<std::string> measured_collective_names() {
  std::vector<std::string> names;
  for (const auto& [collective, name] : kNames) names.emplace_back(name);
  return names;
}

std::int64_t CollectiveShape::size_bytes() const { return std::max(send_count, receive_count) * kElementBytes; }

std::optional<CollectiveShape> shape_of(MeasuredCollective collective, int ranks, std::int64_t bytes) {
  const std::int64_t parts = has_parts(collective) ? ranks : 1;
  const std::int64_t count = bytes / parts / kPartBytes * kPartBytes / kElementBytes;
  if (count == 0) return std::nullopt;
  CollectiveShape shape{collective, ranks, count, count, count};
  if (collective == MeasuredCollective::kAllGather || collective == MeasuredCollective::kAllToAll) {
    shape.receive_count = count * ranks;
  }
  if (collective == MeasuredCollective::kReduceScatter || collective == MeasuredCollective::kAllToAll) {
    shape.send_count = count * ranks;
  }
  return shape;
}

double bus_factor(MeasuredCollective collective, int ranks) {
  const double n = ranks;
  if (collective == MeasuredCollective::kAllReduce) return 2 * (n - 1) / n;
  return has_parts(collective) ? (n - 1) / n : 1.0;
}

std::vector<ReceivedRun> received_runs(const CollectiveShape& shape, int rank) {
  const std::int64_t count = shape.count;
  switch (shape.collective) {
    case MeasuredCollective::kAllReduce:
      return {{ReceivedRun::kSumOfAll, 0, 0, count}};
    case MeasuredCollective::kReduceScatter:
      return {{ReceivedRun::kSumOfAll, rank * count, 0, count}};
    case MeasuredCollective::kSendRecv:
      return {{(rank + shape.ranks - 1) % shape.ranks, 0, 0, count}};
    case MeasuredCollective::kBroadcast:
      return {{0, 0, 0, count}};
    case MeasuredCollective::kAllGather:
    case MeasuredCollective::kAllToAll:
      break;
  }
  std::vector<ReceivedRun> runs;
  for (int source = 0; source < shape.ranks; ++source) {
    const std::int64_t from = shape.collective == MeasuredCollective::kAllToAll ? rank * count : 0;
    runs.push_back({source, from, source * count, count});
  }
  return runs;
}

}  // namespace longhaul
