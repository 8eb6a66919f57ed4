// Everything about a run that can be known without a device: programs, launch order, arenas, kernel calls, memory.
//
// Made once, walked any number of times. A pure function of the schedule. Not copyable: its parts refer to each other.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "validate/device/launch_order.h"
#include "validate/device/lowering.h"

namespace longhaul {

struct RankNeed {
  std::int64_t arena_bytes = 0, constant_bytes = 0, loss_bytes = 0;
  std::vector<std::int64_t> scratch_bytes;  // by stream
  std::int64_t total() const;
  std::int64_t beside_arena() const { return total() - arena_bytes; }
};

class DevicePlan {
 public:
  // `schedule` must outlive the plan. Throws ScheduleError, DeadlockError, DeviceFault (kUnsupported), LimitError.
  explicit DevicePlan(const Schedule& schedule);
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  const Schedule& schedule() const { return schedule_; }
  std::int32_t ranks() const { return static_cast<std::int32_t>(programs_.ranks.size()); }
  const Programs& programs() const { return programs_; }
  const std::vector<Launch>& order() const { return order_; }
  const ArenaPlan& arena(std::int32_t rank) const { return arenas_[static_cast<std::size_t>(rank)]; }
  // Of a collective or an empty op: no calls.
  const LoweredOp& op(std::int32_t rank, std::int32_t position) const {
    return ops_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position)];
  }
  // Without anything in it if nobody launches it.
  const LoweredCall& call(std::int32_t index) const { return calls_[static_cast<std::size_t>(index)]; }
  std::int32_t calls() const { return static_cast<std::int32_t>(calls_.size()); }
  const std::vector<std::int32_t>& constants(std::int32_t rank) const {
    return lowerings_[static_cast<std::size_t>(rank)].constants().values();
  }
  std::int64_t loss_rows(std::int32_t rank) const { return lowerings_[static_cast<std::size_t>(rank)].loss_rows(); }
  RankNeed need(std::int32_t rank) const;

 private:
  const Schedule& schedule_;
  Programs programs_;
  std::vector<Launch> order_;
  std::vector<ArenaPlan> arenas_;
  std::deque<RankLowering> lowerings_;
  std::vector<std::vector<LoweredOp>> ops_;  // by rank, position
  std::vector<LoweredCall> calls_;           // by call
};

}  // namespace longhaul
