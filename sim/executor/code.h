// Segments of a schedule, compiled once into flat tables that the engine walks without following pointers.
//
// * SegmentCode: what all places of a segment share: stream, accesses to tensors.
// * Variant: a segment in its first, middle, last or only iteration: which ops run (guards), in stream order, and every
//   wait resolved to "stream s has done n ops", counted from the beginning of the pass, or to an import: the latest
//   record of that event slot in an earlier pass.
// * SegmentCosts: what depends on the shapes: durations, emptiness, bytes. One a (shape, segment).
//
// Ignores: layers and chunks, which the engine adds when it forms a tensor's key.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/executor/models.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

// A tensor that an op touches, as a key with the layer and chunk left out.
struct TensorUse {
  std::uint64_t base = 0;
  std::int16_t layer_offset = 0;
  bool has_layer = true;
  bool has_chunk = true;
  std::uint8_t category = 0;
  std::uint8_t part = 0;  // collectives: 1 + index of the part if the exchange decides whether it is touched
  TensorKindId kind = 0;

  std::uint64_t key(std::int16_t layer, std::int32_t chunk) const {
    const auto at = static_cast<std::uint16_t>(has_layer ? layer + layer_offset : kNoLayer);
    const std::uint32_t which = static_cast<std::uint32_t>(has_chunk ? chunk : kNoChunk) & 0xffffffU;
    return base ^ (static_cast<std::uint64_t>(at) << 24) ^ which;
  }
};
TensorUse make_use(const Schedule& schedule, const TensorRef& ref);

struct OpCode {
  const Op* op = nullptr;
  std::uint32_t acquire_begin = 0;  // into SegmentCode::acquires and SegmentCosts::acquire_bytes
  std::uint32_t release_begin = 0;
  std::uint32_t check_begin = 0;  // tensors that must be written when the op starts
  std::uint32_t need_begin = 0;   // tensors that must be acquired when the op starts, and are written when it ends
  std::uint8_t acquires = 0, releases = 0, checks = 0, needs = 0;
  bool listed = false;  // some tensor stands for a chunk list: take the general path
};

struct SegmentCode {
  std::vector<OpCode> ops;
  std::vector<TensorUse> acquires, releases, checks, needs;
  bool listed = false;  // any op is
};

struct CodeWait {
  std::int8_t stream = 0;
  bool imported = false;
  std::uint16_t value = 0;  // ops done in this pass, or index of the import
};

struct Variant {
  struct Export {
    EventSlot slot;
    std::int8_t stream;
    std::uint16_t done;  // of that stream in this pass
  };
  std::vector<std::uint32_t> stream_begin;  // by stream, and one past the end: range in `order`
  std::vector<std::uint16_t> order;         // op indices by stream
  std::vector<std::uint32_t> wait_begin;    // by op index, and one past the end
  std::vector<CodeWait> waits;
  std::vector<EventSlot> imports;
  std::vector<Export> exports;         // the last record of each slot
  std::vector<std::uint16_t> skipped;  // op indices that the guards leave out, rising
  std::uint64_t stream_mask = 0;       // streams that have ops
  std::int32_t op_count = 0;
};

struct OpCost {
  // Duration in ps; of a ring collective its buffer's bytes; of an exchange the number of its peer lists and sizes:
  // equal numbers, equal messages.
  std::int64_t value = 0;
  std::int64_t below = 0;  // of a kernel, ps: its interval begins so much before `value`, ends so much above
  std::int64_t above = 0;
  std::int64_t tiles = 0;        // of a GEMM
  std::int64_t last_wave = 0;    // of a kernel, ps: so long before its end a collective that it holds goes on
  std::int64_t issue = 0;        // host time of this op's launch, ps; 0 if it is empty
  std::int64_t issued = 0;       // of the segment up to and including this op, guards ignored
  std::int64_t stall = -1;       // the host waits for the op's stream, then works so long, ps; -1: it does not wait
  std::uint16_t send_parts = 0;  // exchanges: bit p: part p sends to (receives from) somebody
  std::uint16_t receive_parts = 0;
  KernelKind kernel = KernelKind::kElementwise;
  bool empty = false;
  bool takes_device_at_once = false;
};

struct SegmentCosts {
  std::int32_t id = 0;
  std::vector<OpCost> ops;
  std::vector<MemberExchange> exchanges;                   // by op; empty if no op is one
  std::vector<std::int64_t> acquire_bytes, release_bytes;  // beside SegmentCode's lists
  std::vector<std::uint16_t> stalls;                       // ops that the host waits for, rising

  // Host time in ps to issue a whole pass, or its ops up to and including `index`.
  std::int64_t issued(const Variant& variant, std::size_t index) const {
    std::int64_t time = ops[index].issued;
    for (const std::uint16_t skip : variant.skipped) {
      if (skip > index) break;
      time -= ops[skip].issue;
    }
    return time;
  }
  std::int64_t issued(const Variant& variant) const { return issued(variant, ops.size() - 1); }
};

// Compiles and keeps the segments and costs of one schedule. Pointers stay valid.
class CodeCache {
 public:
  CodeCache(const Schedule& schedule, const OpDurations& durations);

  const SegmentCode& segment(SegmentId segment) const { return segments_[static_cast<std::size_t>(segment)]; }
  const Variant& variant(SegmentId segment, bool first, bool last);
  const SegmentCosts& costs(int rank, const Block& block);
  int event_slots() const { return event_slots_; }
  // Upper bound of the imports of any variant.
  int most_imports() const { return event_slots_; }

 private:
  struct VariantSet {
    std::unique_ptr<const Variant> by_place[4];
  };
  std::unique_ptr<const SegmentCosts> make_costs(int rank, const Block& block);
  std::int64_t content_of(const OpInstance& at);

  const Schedule* schedule_;
  const OpDurations* durations_;
  std::vector<SegmentCode> segments_;
  std::vector<VariantSet> variants_;
  std::vector<std::int32_t> shapes_of_rank_;  // equal for ranks with equal shapes everywhere
  std::unordered_map<std::uint64_t, std::unique_ptr<const SegmentCosts>> costs_;  // unordered: looked up only
  // Peer lists by address, with element sizes; looked up only.
  std::map<std::vector<std::uintptr_t>, std::int64_t> exchange_contents_;
  int event_slots_ = 0;
};

}  // namespace longhaul
