// The rules of one rank, by vector clocks over its streams in program order.
//
// An op's clock is the join of the clocks of the op before it on its stream and of the events that it waits for, one
// step further on its own stream. An earlier use (stream s, step n) happens before an op whose clock for s is at least
// n.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sim/schedule/agreement.h"
#include "sim/schedule/check_parts.h"
#include "sim/schedule/check_regions.h"

namespace longhaul {
namespace {

constexpr std::size_t kEventSlots = 128;

// A place in the order: the n-th op of a stream. Step 0 is before everything.
struct Epoch {
  std::int32_t step = 0;
  StreamId stream = 0;
};

// An op for messages.
struct Where {
  const Op* op = nullptr;  // nullptr: before the step
  std::int16_t layer = 0;
  std::int32_t chunk = 0;
};

struct EarlierUse {
  Epoch epoch;
  bool writes = false;
  TensorRegion region;
  Where where;
};

struct TensorState {
  TensorId id;
  bool held = false, resident = false;
  bool full = false;  // every element has been written
  std::int64_t rows = 0, columns = 0;
  Epoch acquired, released;
  Where acquired_by, released_by;
  std::vector<TensorRegion> written;  // while not full
  std::vector<EarlierUse> uses;
};

class RankCheck {
 public:
  RankCheck(const Schedule& schedule, int rank, Violations& violations)
      : schedule_(schedule),
        rank_(rank),
        violations_(violations),
        streams_(static_cast<std::size_t>(schedule.streams())),
        clocks_(streams_ * streams_, 0),
        events_(kEventSlots * streams_, 0),
        last_(schedule.tensors.size(), {0, -1}),
        regions_(schedule.shapes.size()) {}

  void run() {
    hold_resident();
    Cursor cursor(rank_);
    OpInstance at;
    while (cursor.next(schedule_, at)) {
      violations_.count_op();
      step(at);
    }
    for (const TensorState& tensor : tensors_) {
      if (tensor.held == tensor.resident) continue;
      violations_.add([&] {
        const char* what = tensor.held ? "{} is never released" : "resident {} was released";
        return fmt::format("rank {}: ", rank_) + fmt::format(fmt::runtime(what), tensor_name(schedule_, tensor.id));
      });
    }
  }

 private:
  void hold_resident() {
    OpInstance outside;
    outside.rank = rank_;
    outside.chunk = kNoChunk;
    const ProgramId program = schedule_.ranks[static_cast<std::size_t>(rank_)].program;
    for (const TensorRef& ref : schedule_.programs[static_cast<std::size_t>(program)].resident) {
      TensorState& tensor = state(resolve(outside, ref));
      if (tensor.held) {
        violations_.add(
            [&] { return fmt::format("rank {}: resident {} twice", rank_, tensor_name(schedule_, tensor.id)); });
      }
      hold(tensor);
      tensor.resident = tensor.full = true;
    }
  }

  TensorState& state(const TensorId& id) {
    const std::uint64_t key = id.key();
    auto& [last_key, last_index] = last_[static_cast<std::size_t>(id.kind)];  // ops in a row name the same tensor
    if (last_index < 0 || last_key != key) {
      const auto [found, is_new] = index_.try_emplace(key, static_cast<std::int32_t>(tensors_.size()));
      if (is_new) {
        tensors_.emplace_back();
        tensors_.back().id = id;
      }
      last_key = key;
      last_index = found->second;
    }
    return tensors_[static_cast<std::size_t>(last_index)];
  }

  void hold(TensorState& tensor) {
    const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(tensor.id.kind)];
    tensor.held = true;
    tensor.full = false;
    const bool flat = kind.rows == kFlat;
    tensor.rows = flat ? 1 : tensor_rows(schedule_, rank_, tensor.id);
    tensor.columns = flat ? kind.flat_rows * kind.columns : kind.columns;
    if (tensor.rows * tensor.columns == 0) tensor.full = true;
    tensor.written.clear();
    tensor.uses.clear();
  }

  ShapeRegions* shape_regions(const OpInstance& at) {
    if (at.shape == nullptr) return nullptr;
    const RankInfo& info = schedule_.ranks[static_cast<std::size_t>(rank_)];
    auto& regions = regions_[static_cast<std::size_t>(info.shapes[static_cast<std::size_t>(at.chunk)])];
    if (regions == nullptr) regions = std::make_unique<ShapeRegions>(*at.shape);
    return regions.get();
  }

  bool before(const Epoch& epoch) const { return now_[epoch.stream] >= epoch.step; }
  static Where where(const OpInstance& at) { return {at.op, at.layer, at.chunk}; }
  static std::string text(const Where& at) {
    if (at.op == nullptr) return "the start of the step";
    return fmt::format("`{}` ({}, layer {}, chunk {})", at.op->label, to_string(at.op->pass), at.layer, at.chunk);
  }
  void fault(const OpInstance& at, const TensorState& tensor, const char* what, const Where* other = nullptr) {
    violations_.add([&] {
      const std::string name = tensor_name(schedule_, tensor.id);
      return place(at) + ": " +
             (other == nullptr ? fmt::format(fmt::runtime(what), name)
                               : fmt::format(fmt::runtime(what), name, text(*other)));
    });
  }

  void step(const OpInstance& at) {
    const Op& op = *at.op;
    if (op.stream < 0 || static_cast<std::size_t>(op.stream) >= streams_) {
      violations_.add([&] { return fmt::format("{}: no stream {}", place(at), op.stream); });
      return;
    }
    now_ = clocks_.data() + static_cast<std::size_t>(op.stream) * streams_;
    for (const EventSlot slot : op.waits) {
      const std::int32_t* event = events_.data() + static_cast<std::size_t>(slot) * streams_;
      for (std::size_t s = 0; s < streams_; ++s) now_[s] = std::max(now_[s], event[s]);
    }
    epoch_ = {++now_[op.stream], op.stream};
    acquire(at);
    if (!is_empty(schedule_, at) || op.function == Function::kGiven) use(at);
    release(at);
    if (op.record != kNoEvent) {
      std::copy_n(now_, streams_, events_.data() + static_cast<std::size_t>(op.record) * streams_);
    }
  }

  void acquire(const OpInstance& at) {
    ids_.clear();
    for (const TensorRef& ref : at.op->acquire) resolve_all(at, ref, ids_);
    for (const TensorId& id : ids_) {
      TensorState& tensor = state(id);
      if (tensor.held) {
        fault(at, tensor, "acquires {}, which is held already");
        continue;
      }
      if (!before(tensor.released)) {
        fault(at, tensor, "acquires {} without order after its release by {}", &tensor.released_by);
      }
      hold(tensor);
      tensor.acquired = epoch_;
      tensor.acquired_by = where(at);
    }
  }

  void release(const OpInstance& at) {
    ids_.clear();
    for (const TensorRef& ref : at.op->release) resolve_all(at, ref, ids_);
    for (const TensorId& id : ids_) {
      TensorState& tensor = state(id);
      if (!tensor.held) {
        fault(at, tensor, "releases {}, which is not held");
        continue;
      }
      if (!before(tensor.acquired)) {
        fault(at, tensor, "releases {} without order after its acquire by {}", &tensor.acquired_by);
      }
      for (const EarlierUse& earlier : tensor.uses) {
        if (!before(earlier.epoch)) fault(at, tensor, "releases {} without order after its use by {}", &earlier.where);
      }
      tensor.held = false;
      tensor.released = epoch_;
      tensor.released_by = where(at);
    }
  }

  void use(const OpInstance& at) {
    uses_.clear();
    list_uses(schedule_, at, shape_regions(at), uses_);
    for (const Use& use : uses_) {
      if (use.access == Access::kRead) touch(at, use);
    }
    for (const Use& use : uses_) {
      if (use.access != Access::kRead) touch(at, use);
    }
  }

  void touch(const OpInstance& at, const Use& use) {
    TensorState& tensor = state(use.tensor);
    const TensorRegion& region = use.region;
    if (!tensor.held) return fault(at, tensor, "uses {}, which is not held");
    const bool inside =
        region.column_begin >= 0 && region.column_end <= tensor.columns &&
        (region.rows == nullptr || region.rows->back().begin + region.rows->back().count <= tensor.rows);
    if (!inside) return fault(at, tensor, "a view leaves {}");
    if (!before(tensor.acquired)) {
      fault(at, tensor, "uses {} without order after its acquire by {}", &tensor.acquired_by);
    }
    const bool writes = use.access != Access::kRead;
    if (use.access != Access::kWrite && !tensor.full && !covered(region, tensor.written, tensor.rows)) {
      fault(at, tensor,
            writes ? "accumulates into {}, which is not all written" : "reads {}, which is not all written");
    }
    compare(at, tensor, region, writes);
    tensor.uses.push_back({epoch_, writes, region, where(at)});
    if (!writes || tensor.full) return;
    if (covers(region, {nullptr, 0, tensor.columns})) {
      tensor.full = true;
    } else if (std::none_of(tensor.written.begin(), tensor.written.end(),
                            [&](const TensorRegion& part) { return covers(part, region); })) {
      tensor.written.push_back(region);
      tensor.full = covered({nullptr, 0, tensor.columns}, tensor.written, tensor.rows);
    }
  }

  // Against the earlier uses: those that may run at the same time must not meet a write. What the new use makes
  // superfluous goes: whatever is ordered after it is ordered after them as well.
  void compare(const OpInstance& at, TensorState& tensor, const TensorRegion& region, bool writes) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tensor.uses.size(); ++i) {
      EarlierUse& earlier = tensor.uses[i];
      const bool ordered = before(earlier.epoch);
      if (!ordered && (writes || earlier.writes) && overlap(region, earlier.region)) {
        const char* what = !writes          ? "reads {} without order after its write by {}"
                           : earlier.writes ? "writes {} without order after its write by {}"
                                            : "writes {} without order after its read by {}";
        fault(at, tensor, what, &earlier.where);
      }
      if (ordered && (writes || !earlier.writes) && covers(region, earlier.region)) continue;
      if (kept != i) tensor.uses[kept] = earlier;
      ++kept;
    }
    tensor.uses.resize(kept);
  }

  const Schedule& schedule_;
  int rank_;
  Violations& violations_;
  std::size_t streams_;
  std::vector<std::int32_t> clocks_;  // by stream: the clock after its last op
  std::vector<std::int32_t> events_;  // by slot: the clock at its last record; zero: done
  std::int32_t* now_ = nullptr;       // clock of the op at hand
  Epoch epoch_;
  std::vector<TensorState> tensors_;                          // in order of first mention
  std::unordered_map<std::uint64_t, std::int32_t> index_;     // unordered: looked up by key, never walked
  std::vector<std::pair<std::uint64_t, std::int32_t>> last_;  // by kind: the tensor mentioned last
  std::vector<std::unique_ptr<ShapeRegions>> regions_;        // by shape
  std::vector<TensorId> ids_;
  std::vector<Use> uses_;
};

}  // namespace

void check_rank(const Schedule& schedule, int rank, Violations& violations) {
  RankCheck(schedule, rank, violations).run();
}

}  // namespace longhaul
