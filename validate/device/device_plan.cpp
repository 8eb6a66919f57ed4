#include "validate/device/device_plan.h"

#include <numeric>

namespace longhaul {

std::int64_t RankNeed::total() const {
  return arena_bytes + constant_bytes + loss_bytes +
         std::accumulate(scratch_bytes.begin(), scratch_bytes.end(), std::int64_t{0});
}

DevicePlan::DevicePlan(const Schedule& schedule)
    : schedule_(schedule), programs_(unroll(schedule)), order_(launch_order(schedule, programs_)) {
  arenas_.reserve(programs_.ranks.size());
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    arenas_.push_back(plan_arena(schedule, programs_, rank));
    lowerings_.emplace_back(schedule, programs_, arenas_.back(), rank);
    std::vector<LoweredOp>& ops = ops_.emplace_back();
    const std::vector<ProgramOp>& program = programs_.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < program.size(); ++i) {
      const auto position = static_cast<std::int32_t>(i);
      const MappedKernel kernel = require_kernel(*program[i].at.op, rank, position);
      if (program[i].empty || kernel == MappedKernel::kTransport) {
        ops.push_back({kernel, {}});
      } else {
        ops.push_back(lowerings_.back().lower(position));
      }
    }
  }
  calls_.resize(programs_.calls.size());
  for (const Launch& launch : order_) {  // calls that are empty for all members are never launched
    if (launch.call < 0) continue;
    calls_[static_cast<std::size_t>(launch.call)] = lower_call(schedule, programs_, launch.call, lowerings_);
  }
}

RankNeed DevicePlan::need(std::int32_t rank) const {
  const RankLowering& lowering = lowerings_[static_cast<std::size_t>(rank)];
  RankNeed need;
  need.arena_bytes = arenas_[static_cast<std::size_t>(rank)].bytes;
  need.constant_bytes = lowering.constants().bytes();
  need.loss_bytes = lowering.loss_rows() * 4;
  for (std::int32_t stream = 0; stream < programs_.streams; ++stream) {
    need.scratch_bytes.push_back(lowering.scratch_bytes(static_cast<StreamId>(stream)));
  }
  return need;
}

}  // namespace longhaul
