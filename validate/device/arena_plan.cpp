#include "validate/device/arena_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"

namespace longhaul {
namespace {

// Room for a tensor: the slack lets the columns of an optimizer state lie apart, each aligned (lowering.h).
std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kArenaSlack + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

class LifetimeReader {
 public:
  LifetimeReader(const Schedule& schedule, const Programs& programs, std::int32_t rank)
      : schedule_(schedule), ops_(programs.ranks[static_cast<std::size_t>(rank)]), rank_(rank) {}

  ArenaPlan run() {
    OpInstance outside;  // the layer offset of a resident tensor is its layer
    outside.rank = rank_;
    outside.chunk = kNoChunk;
    const ProgramId program = schedule_.ranks[static_cast<std::size_t>(rank_)].program;
    for (const TensorRef& ref : schedule_.programs[static_cast<std::size_t>(program)].resident) {
      acquire(outside, resolve(outside, ref), kBeforeStep);
    }
    plan_.resident_bytes = held_bytes_;
    std::vector<TensorId> ids;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const OpInstance& at = ops_[i].at;
      ids.clear();
      for (const TensorRef& ref : at.op->acquire) resolve_all(at, ref, ids);
      for (const TensorId& id : ids) acquire(at, id, static_cast<std::int32_t>(i));
      ids.clear();
      for (const TensorRef& ref : at.op->release) resolve_all(at, ref, ids);
      for (const TensorId& id : ids) release(at, id, static_cast<std::int32_t>(i));
    }
    for (const auto& [key, index] : held_) {
      const ArenaTensor& tensor = plan_.tensors[static_cast<std::size_t>(index)];
      if (tensor.acquired == kBeforeStep) continue;
      throw ScheduleError(fmt::format("rank {}: {} is never released", rank_, tensor_name(schedule_, tensor.id)));
    }
    return std::move(plan_);
  }

 private:
  void acquire(const OpInstance& at, const TensorId& id, std::int32_t position) {
    ArenaTensor tensor;
    tensor.id = id;
    tensor.bytes = tensor_bytes(schedule_, rank_, id);
    tensor.acquired = position;
    const auto index = static_cast<std::int32_t>(plan_.tensors.size());
    if (!held_.emplace(id.key(), index).second) {
      throw ScheduleError(fmt::format("{}: acquires {}, which is held already", place(at), tensor_name(schedule_, id)));
    }
    held_bytes_ += tensor.bytes;
    plan_.peak_bytes = std::max(plan_.peak_bytes, held_bytes_);
    plan_.by_key[id.key()].push_back(index);
    plan_.tensors.push_back(tensor);
  }

  void release(const OpInstance& at, const TensorId& id, std::int32_t position) {
    const auto found = held_.find(id.key());
    if (found == held_.end()) {
      throw ScheduleError(fmt::format("{}: releases {}, which is not held", place(at), tensor_name(schedule_, id)));
    }
    ArenaTensor& tensor = plan_.tensors[static_cast<std::size_t>(found->second)];
    tensor.released = position;
    held_bytes_ -= tensor.bytes;
    held_.erase(found);
  }

  const Schedule& schedule_;
  const std::vector<ProgramOp>& ops_;
  std::int32_t rank_;
  ArenaPlan plan_;
  std::map<std::uint64_t, std::int32_t> held_;  // key to index
  std::int64_t held_bytes_ = 0;
};

// Places the tensors in the given order; returns offsets by index and the bytes of the block.
std::pair<std::vector<std::int64_t>, std::int64_t> first_fit(const std::vector<ArenaTensor>& tensors,
                                                             const std::vector<std::size_t>& order,
                                                             const HappensBefore& before) {
  std::vector<std::int64_t> offsets(tensors.size(), 0);
  std::int64_t bytes = 0;
  std::vector<std::size_t> placed;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // [begin, end)
  for (const std::size_t index : order) {
    if (tensors[index].bytes == 0) continue;
    taken.clear();
    for (const std::size_t other : placed) {
      if (!may_meet(tensors[index], tensors[other], before)) continue;
      taken.emplace_back(offsets[other], offsets[other] + aligned(tensors[other].bytes));
    }
    std::sort(taken.begin(), taken.end());
    std::int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + aligned(tensors[index].bytes) <= begin) break;
      offset = std::max(offset, end);
    }
    offsets[index] = offset;
    bytes = std::max(bytes, offset + aligned(tensors[index].bytes));
    placed.push_back(index);
  }
  return {std::move(offsets), bytes};
}

}  // namespace

const ArenaTensor* ArenaPlan::find(const TensorId& id, std::int32_t position) const {
  const auto found = by_key.find(id.key());
  if (found == by_key.end()) return nullptr;
  for (const std::int32_t index : found->second) {
    const ArenaTensor& tensor = tensors[static_cast<std::size_t>(index)];
    if (tensor.acquired <= position && position <= tensor.released) return &tensor;
  }
  return nullptr;
}

bool may_meet(const ArenaTensor& a, const ArenaTensor& b, const HappensBefore& before) {
  const auto ends_first = [&](const ArenaTensor& one, const ArenaTensor& other) {
    return one.released != kAfterStep && other.acquired != kBeforeStep && before(one.released, other.acquired);
  };
  return !ends_first(a, b) && !ends_first(b, a);
}

ArenaPlan plan_arena(const Schedule& schedule, const Programs& programs, std::int32_t rank) {
  ArenaPlan plan = LifetimeReader(schedule, programs, rank).run();
  const HappensBefore before(programs.ranks[static_cast<std::size_t>(rank)], programs.streams);
  std::vector<std::size_t> order(plan.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto best = first_fit(plan.tensors, order, before);
  const std::vector<std::size_t> by_program = order;
  const auto steps = static_cast<std::int64_t>(programs.ranks[static_cast<std::size_t>(rank)].size());
  const auto lifetime = [&](std::size_t i) {
    const ArenaTensor& tensor = plan.tensors[i];
    return (tensor.released == kAfterStep ? steps : tensor.released) - std::max(tensor.acquired, 0) + 1;
  };
  const auto size = [&](std::size_t i) { return plan.tensors[i].bytes; };
  const auto area = [&](std::size_t i) {  // in double: bytes times ops may pass 63 bits
    return static_cast<double>(size(i)) * static_cast<double>(lifetime(i));
  };
  const auto try_falling = [&](const auto& key) {
    order = by_program;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return key(i) > key(j); });
    auto found = first_fit(plan.tensors, order, before);
    if (found.second < best.second) best = std::move(found);
  };
  try_falling(size);
  try_falling(lifetime);
  try_falling(area);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) plan.tensors[i].offset = best.first[i];
  plan.bytes = best.second;
  return plan;
}

}  // namespace longhaul
