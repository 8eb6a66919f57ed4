#include "sim/executor/code.h"

#include <algorithm>
#include <map>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// `check`: the tensor must be written before the op starts; `need`: it must be held, and is written at the end.
void add_view(const Schedule& schedule, const View& view, bool check, bool need, std::size_t part, SegmentCode& code) {
  if (view.tensor.kind < 0) return;
  TensorUse use = make_use(schedule, view.tensor);
  use.part = static_cast<std::uint8_t>(part);
  if (check) code.checks.push_back(use);
  if (need) code.needs.push_back(use);
}

void add_view(const Schedule& schedule, const View& view, SegmentCode& code) {
  add_view(schedule, view, view.access != Access::kWrite, view.access != Access::kRead, 0, code);
}

bool is_listed(const Op& op) {
  const auto listed = [](const TensorRef& ref) { return ref.chunks >= 0; };
  return std::any_of(op.acquire.begin(), op.acquire.end(), listed) ||
         std::any_of(op.release.begin(), op.release.end(), listed) ||
         std::any_of(op.operands.begin(), op.operands.end(), [&](const View& v) { return listed(v.tensor); }) ||
         std::any_of(op.key_values.begin(), op.key_values.end(),
                     [](const KeyValueOperand& k) { return k.chunks >= 0; });
}

void add_parts(const Schedule& schedule, const Op& op, SegmentCode& code) {
  const bool exchange = op.collective == CollectiveKind::kExchange;
  LH_ASSERT(op.parts.size() <= 16, "`{}`: {} parts; the executor takes 16", op.label, op.parts.size());
  for (std::size_t p = 0; p < op.parts.size(); ++p) {
    const bool accumulates =
        op.collective == CollectiveKind::kAllReduce || op.parts[p].receive.access == Access::kAccumulate;
    add_view(schedule, op.parts[p].send, true, false, exchange ? p + 1 : 0, code);
    add_view(schedule, op.parts[p].receive, accumulates, true, exchange ? p + 1 : 0, code);
  }
}

SegmentCode make_segment(const Schedule& schedule, const Segment& segment) {
  SegmentCode code;
  for (const Op& op : segment.ops) {
    LH_ASSERT(op.stream >= 0 && op.stream < schedule.streams(), "`{}`: no stream {}", op.label, op.stream);
    OpCode entry;
    entry.op = &op;
    entry.acquire_begin = static_cast<std::uint32_t>(code.acquires.size());
    entry.release_begin = static_cast<std::uint32_t>(code.releases.size());
    entry.check_begin = static_cast<std::uint32_t>(code.checks.size());
    entry.need_begin = static_cast<std::uint32_t>(code.needs.size());
    entry.listed = is_listed(op);
    for (const TensorRef& ref : op.acquire) code.acquires.push_back(make_use(schedule, ref));
    for (const TensorRef& ref : op.release) code.releases.push_back(make_use(schedule, ref));
    for (const View& view : op.operands) add_view(schedule, view, code);
    for (const View* view : {&op.q, &op.o, &op.lse, &op.q_gradient, &op.o_gradient}) add_view(schedule, *view, code);
    for (const KeyValueOperand& operand : op.key_values) {
      for (const View* view : {&operand.key, &operand.value, &operand.key_gradient, &operand.value_gradient}) {
        add_view(schedule, *view, code);
      }
    }
    add_parts(schedule, op, code);
    const auto count = [&](std::size_t size, std::uint32_t begin) {
      LH_ASSERT(size - begin <= 255, "`{}` touches more than 255 tensors", op.label);
      return static_cast<std::uint8_t>(size - begin);
    };
    entry.acquires = count(code.acquires.size(), entry.acquire_begin);
    entry.releases = count(code.releases.size(), entry.release_begin);
    entry.checks = count(code.checks.size(), entry.check_begin);
    entry.needs = count(code.needs.size(), entry.need_begin);
    code.listed = code.listed || entry.listed;
    code.ops.push_back(entry);
  }
  return code;
}

bool runs(const Op& op, bool first, bool last) {
  return !(op.guard == Guard::kNotFirstIteration && first) && !(op.guard == Guard::kNotLastIteration && last);
}

// In program order, so that a wait sees the records before it.
void resolve_waits(const std::vector<Op>& ops, bool first, bool last, int streams, Variant& variant) {
  std::vector<std::uint16_t> done(static_cast<std::size_t>(streams), 0);
  std::map<EventSlot, Variant::Export> records;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    variant.wait_begin.push_back(static_cast<std::uint32_t>(variant.waits.size()));
    const Op& op = ops[i];
    if (!runs(op, first, last)) continue;
    for (const EventSlot slot : op.waits) {
      const auto found = records.find(slot);
      if (found != records.end()) {
        // Earlier in the same stream: order holds anyway.
        if (found->second.stream != op.stream)
          variant.waits.push_back({found->second.stream, false, found->second.done});
        continue;
      }
      auto import = std::find(variant.imports.begin(), variant.imports.end(), slot);
      if (import == variant.imports.end()) import = variant.imports.insert(variant.imports.end(), slot);
      variant.waits.push_back({0, true, static_cast<std::uint16_t>(import - variant.imports.begin())});
    }
    const std::uint16_t count = ++done[static_cast<std::size_t>(op.stream)];
    if (op.record != kNoEvent) records[op.record] = {op.record, op.stream, count};
  }
  variant.wait_begin.push_back(static_cast<std::uint32_t>(variant.waits.size()));
  for (const auto& [slot, record] : records) variant.exports.push_back(record);
}

std::unique_ptr<const Variant> make_variant(const Schedule& schedule, const Segment& segment, bool first, bool last) {
  auto variant = std::make_unique<Variant>();
  LH_ASSERT(segment.ops.size() < UINT16_MAX, "segment {} has {} ops", segment.name, segment.ops.size());
  for (int stream = 0; stream < schedule.streams(); ++stream) {
    variant->stream_begin.push_back(static_cast<std::uint32_t>(variant->order.size()));
    for (std::size_t i = 0; i < segment.ops.size(); ++i) {
      if (segment.ops[i].stream != stream || !runs(segment.ops[i], first, last)) continue;
      variant->order.push_back(static_cast<std::uint16_t>(i));
      variant->stream_mask |= std::uint64_t{1} << stream;
    }
  }
  variant->stream_begin.push_back(static_cast<std::uint32_t>(variant->order.size()));
  variant->op_count = static_cast<std::int32_t>(variant->order.size());
  for (std::size_t i = 0; i < segment.ops.size(); ++i) {
    if (!runs(segment.ops[i], first, last)) variant->skipped.push_back(static_cast<std::uint16_t>(i));
  }
  resolve_waits(segment.ops, first, last, schedule.streams(), *variant);
  return variant;
}

void set_exchange_parts(const OpInstance& at, OpCost& cost) {
  for (std::size_t p = 0; p < at.op->parts.size(); ++p) {
    const ExchangeSlot slot = at.op->parts[p].exchange;
    LH_ASSERT(slot >= 0, "`{}`: an exchange part without peers", at.op->label);
    const ExchangeListPtr& list = at.shape->exchanges[static_cast<std::size_t>(slot)];
    if (list == nullptr) continue;
    const auto bit = static_cast<std::uint16_t>(1U << p);
    for (const PeerExchange& peer : *list) {
      if (peer.send_rows && peer.send_rows->rows > 0) cost.send_parts |= bit;
      if (peer.receive_rows && peer.receive_rows->rows > 0) cost.receive_parts |= bit;
    }
  }
}

}  // namespace

TensorUse make_use(const Schedule& schedule, const TensorRef& ref) {
  TensorUse use;
  LH_ASSERT(ref.kind >= 0 && static_cast<std::size_t>(ref.kind) < schedule.tensors.size() && ref.kind < (1 << 12),
            "no tensor kind {}", ref.kind);
  use.base = (static_cast<std::uint64_t>(ref.kind) << 48) ^ (static_cast<std::uint64_t>(ref.instance) << 40);
  use.layer_offset = ref.layer_offset;
  use.has_layer = ref.has_layer;
  use.has_chunk = ref.has_chunk;
  use.kind = ref.kind;
  use.category = static_cast<std::uint8_t>(schedule.tensors[static_cast<std::size_t>(ref.kind)].category);
  return use;
}

CodeCache::CodeCache(const Schedule& schedule, const OpDurations& durations)
    : schedule_(&schedule), durations_(&durations), variants_(schedule.segments.size()) {
  LH_ASSERT(schedule.streams() <= 32, "{} streams a rank; the executor takes 32", schedule.streams());
  for (const Segment& segment : schedule.segments) {
    segments_.push_back(make_segment(schedule, segment));
    for (const Op& op : segment.ops) {
      event_slots_ = std::max(event_slots_, op.record + 1);
      for (const EventSlot slot : op.waits) event_slots_ = std::max(event_slots_, slot + 1);
    }
  }
  std::map<std::vector<ShapeId>, std::int32_t> seen;
  for (const RankInfo& rank : schedule.ranks) {
    const auto next = static_cast<std::int32_t>(seen.size());
    shapes_of_rank_.push_back(seen.emplace(rank.shapes, next).first->second);
  }
}

const Variant& CodeCache::variant(SegmentId segment, bool first, bool last) {
  const auto id = static_cast<std::size_t>(segment);
  std::unique_ptr<const Variant>& entry = variants_[id].by_place[(first ? 1 : 0) + (last ? 2 : 0)];
  if (!entry) entry = make_variant(*schedule_, schedule_->segments[id], first, last);
  return *entry;
}

const SegmentCosts& CodeCache::costs(int rank, const Block& block) {
  // Ops over chunk lists depend on the shapes of other chunks too.
  const RankInfo& info = schedule_->ranks[static_cast<std::size_t>(rank)];
  const ShapeId shape = block.chunk < 0 ? -1 : info.shapes[static_cast<std::size_t>(block.chunk)];
  const bool listed = segments_[static_cast<std::size_t>(block.segment)].listed;
  LH_ASSERT(block.chunk < (1 << 24) - 1, "chunk {} is beyond 2^24", block.chunk);
  std::uint64_t key = static_cast<std::uint64_t>(block.segment) << 32;
  if (listed) {
    const std::int32_t shapes = shapes_of_rank_[static_cast<std::size_t>(rank)];
    LH_ASSERT(shapes < (1 << 23), "{} distinct shape lists", shapes);
    key = (std::uint64_t{1} << 63) ^ (static_cast<std::uint64_t>(block.segment) << 48) ^
          (static_cast<std::uint64_t>(shapes) << 24) ^ static_cast<std::uint32_t>(block.chunk + 1);
  } else {
    key ^= static_cast<std::uint32_t>(shape);
  }
  std::unique_ptr<const SegmentCosts>& entry = costs_[key];
  if (!entry) {
    auto made = make_costs(rank, block);
    entry = std::move(made);
  }
  return *entry;
}

// Layers, passes and pipeline stages repeat the same peer lists, so a list's address and the element sizes say which
// messages a member exchanges.
std::int64_t CodeCache::content_of(const OpInstance& at) {
  std::vector<std::uintptr_t> lists;
  const auto size = [&](const View& view) -> std::uintptr_t {
    if (view.tensor.kind < 0) return 0;
    return static_cast<std::uintptr_t>(
        element_bytes(schedule_->tensors[static_cast<std::size_t>(view.tensor.kind)].type));
  };
  for (const CollectivePart& part : at.op->parts) {
    const ExchangeListPtr& list = at.shape->exchanges[static_cast<std::size_t>(part.exchange)];
    lists.push_back(reinterpret_cast<std::uintptr_t>(list.get()));
    lists.push_back(size(part.send) << 8 | size(part.receive));
  }
  const auto next = static_cast<std::int64_t>(exchange_contents_.size());
  return exchange_contents_.try_emplace(std::move(lists), next).first->second;
}

std::unique_ptr<const SegmentCosts> CodeCache::make_costs(int rank, const Block& block) {
  auto costs = std::make_unique<SegmentCosts>();
  costs->id = static_cast<std::int32_t>(costs_.size());
  const std::vector<Op>& ops = schedule_->segments[static_cast<std::size_t>(block.segment)].ops;
  OpInstance at;
  at.shape = block.chunk < 0 ? nullptr : &schedule_->shape(rank, block.chunk);
  at.rank = rank;
  at.chunk = block.chunk;
  at.layer = block.first_layer;
  at.segment = block.segment;
  std::int64_t issued = 0;
  const std::int64_t launch = durations_->launch().ps();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    at.op = &op;
    at.index = static_cast<std::int16_t>(i);
    OpCost cost;
    cost.empty = is_empty(*schedule_, at);
    if (!cost.empty) cost.issue = launch;
    if (!cost.empty && op.kind == OpKind::kCollective) {
      if (op.collective == CollectiveKind::kExchange) {
        set_exchange_parts(at, cost);
        cost.value = content_of(at);
        costs->exchanges.resize(ops.size());
        costs->exchanges[i] = member_exchange(*schedule_, at);
      } else {
        cost.value = collective_buffer_bytes(*schedule_, at);
      }
    } else if (!cost.empty) {
      const OpDuration duration = durations_->duration(*schedule_, at);
      LH_ASSERT(duration.time >= Time::zero(), "`{}` takes {} ps", op.label, duration.time.ps());
      cost.value = duration.time.ps();
      cost.below = duration.below.ps();
      cost.above = duration.above.ps();
      cost.kernel = duration.kernel;
      cost.tiles = duration.tiles;
      cost.takes_device_at_once = duration.takes_device_at_once;
      LH_ASSERT(duration.last_wave >= 0 && duration.last_wave <= 1, "`{}`: last wave of {}", op.label,
                duration.last_wave);
      cost.last_wave = static_cast<std::int64_t>(static_cast<double>(cost.value) * duration.last_wave);
      if (duration.issue) cost.issue = duration.issue->ps();
      if (duration.stall) {
        cost.stall = duration.stall->ps();
        costs->stalls.push_back(static_cast<std::uint16_t>(i));
      }
    }
    issued += cost.issue;
    cost.issued = issued;
    costs->ops.push_back(cost);
    const auto bytes = [&](const TensorRef& ref) {
      return ref.chunks >= 0 ? 0 : tensor_bytes(*schedule_, rank, resolve(at, ref));
    };
    for (const TensorRef& ref : op.acquire) costs->acquire_bytes.push_back(bytes(ref));
    for (const TensorRef& ref : op.release) costs->release_bytes.push_back(bytes(ref));
  }
  return costs;
}

}  // namespace longhaul
