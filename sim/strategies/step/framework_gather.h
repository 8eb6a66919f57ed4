// Attention over gathered keys and values as an eager framework runs it: a copy op for every cat, slice, zeros and +=.
//
// Follows WLB-LLM's public code op by op (github hao-ai-lab/DistCA @2afd219, baseline/wlbllm_original/wlbllm/
// per_seq_cp_attn.py and per_doc_cp_attn.py; flashcp.md 2.1, 2.2), where GatherScheme stands for fused kernels that do
// without most of it:
//   forward: pack, all-gather; `listed`: a copy of the flat buffer into a list; K and V each copied into token order,
//   slice by slice; two calls, front and back chunks; `sliced`: each call's K and V copied together out of prefixes of
//   documents (otherwise its keys are a run of the ordered rows, a view); outputs copied together.
//   backward: zeros for dQ, dK and dV of all rows; each call: zeros for its dQ, dK, dV, attention, dQ copied, its dK
//   and dV added to those of all rows, slice by slice; dK and dV copied into gathered order, slice by slice;
//   reduce-scatter.
// Own rows (`own_rows`, for FlashCP, whose code is not public): ordered rows hold own rows too, whose gradients stay
// here; the gathered gradient begins as zeros and holds other ranks' rows alone.
//
// `padded` is Transformer Engine's all-gather as MagiAttention's benchmark runs it (github SandAI-org/MagiAttention
// @2c64135, exps/dist_attn/baselines/ring_attn.py, utils_cp.py): K and V are put into token order, and every operand of
// a call is taken from padded rows, by gathers with one index a row; a call's output and dQ are put back into zeros and
// from there among all rows; its dK and dV are put into zeros of all rows and added whole. With `regather` the backward
// pass gathers K and V again.
//
// Slice by slice: a launch a slice and tensor of +=, at most kMostSliceLaunches of them, the last of which takes the
// slices that are left. A cat is one op, whose kernels begin when the host has made all its slices (op.h); so are, for
// `own_rows`, packing and unpacking.
// Everything is bf16, as there. The longest lengths of a call lie on the device and are read back before it (a stall).
// Ignores the interpreter's other time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/strategies/step/attention_scheme.h"

namespace longhaul {

inline constexpr int kFrameworkCalls = 2;
inline constexpr std::size_t kMostSliceLaunches = 4096;

struct FrameworkGatherConfig {
  bool packed = false;    // K and V in one collective; otherwise one each
  bool listed = false;    // all-gather into a list of tensors
  bool sliced = true;     // a call's keys and values are copied together
  bool own_rows = false;  // of the ordered rows, own ones come from here
  bool padded = false;
  bool regather = false;
  std::size_t call_slices = 1;  // most of a call on any rank and micro-batch
};

struct SliceCopy {
  RowSpan from, to;  // of equal rows
};

struct FrameworkCallShape {
  RowListPtr query_rows;        // own rows; those of the calls are disjoint and together all rows
  PieceListPtr pieces;          // keys count within the slices, one after the other
  std::vector<RowSpan> slices;  // of the ordered rows, disjoint
};

struct FrameworkGatherShape {
  RowListPtr send_rows;          // local rows that are sent, in order
  std::int64_t padded_rows = 0;  // of every rank's send buffer
  RowMapPtr gathered_rows;       // members x padded_rows
  RowMapPtr ordered_rows;
  std::vector<SliceCopy> gathered;  // gathered rows -> ordered rows
  std::vector<SliceCopy> local;     // own rows -> ordered rows; `own_rows` only: all own tokens
  RowListPtr gathered_zero;         // gathered rows whose gradient begins as zeros: `own_rows` all, otherwise padding
  FrameworkCallShape calls[kFrameworkCalls];
};

class FrameworkGatherScheme : public AttentionScheme {
 public:
  explicit FrameworkGatherScheme(const FrameworkGatherConfig& config);

  void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) override;
  void forward(SegmentWriter& writer, const ForwardMode& mode) override;
  void backward(SegmentWriter& writer, const ForwardMode& mode) override;

  GroupRole role() const { return role_; }
  void set_shape(ShapeSet& shape, const FrameworkGatherShape& spec) const;

 private:
  struct Slices {
    RowListSlot from = -1, to = -1;
  };
  struct Call {
    PieceSlot pieces = -1;
    RowListSlot query_rows = -1;
    RowListSlot slices = -1;    // of the ordered rows, all
    RowMapSlot keys = -1;       // rows of the copied slices
    std::vector<Slices> added;  // by launch: rows of the call's gradient -> rows of the ordered gradient
    TensorKindId copy[2] = {-1, -1}, grad[2] = {-1, -1};  // K, V
  };

  int buffers() const { return config_.packed ? 1 : 2; }
  const Call& call(int index) const { return calls_[index]; }
  View own_columns(const TensorRef& qkv, Access access, int which, RowListSlot rows = kAllRows) const;
  View buffer_columns(const TensorKindId (&kinds)[2], std::uint8_t instance, bool layered, Access access, int which,
                      RowListSlot rows = kAllRows) const;
  View whole_of(TensorKindId kind, std::uint8_t instance, bool layered, Access access,
                RowListSlot rows = kAllRows) const;
  void send(SegmentWriter& writer, std::uint8_t instance) const;
  void order(SegmentWriter& writer, std::uint8_t instance) const;
  Op attention_op(int index, std::uint8_t instance) const;
  void attend(SegmentWriter& writer, int index, const ForwardMode& mode) const;
  void attend_backward(SegmentWriter& writer, int index, const ForwardMode& mode) const;
  void copy_keys(SegmentWriter& writer, int index, std::uint8_t instance) const;
  void take_rows(SegmentWriter& writer, const char* label, const TensorRef& from, int index) const;
  void put_rows(SegmentWriter& writer, const char* label, TensorKindId from, int index) const;
  void add_padded(SegmentWriter& writer, int index) const;
  // The longest lengths of a call lie on the device; the benchmark of `padded` has them on the host.
  HostStall longest_stall() const { return config_.padded ? HostStall::kNone : HostStall::kReadValues; }
  // A gather by an index is as fast as a copy.
  EagerKernel slice_kernel() const { return config_.padded ? EagerKernel::kNone : EagerKernel::kJoinedSlices; }
  // Rows that are sent are slices of the own ones; without `own_rows` they are all, as they lie.
  EagerKernel pack_kernel() const { return config_.own_rows ? slice_kernel() : EagerKernel::kNone; }
  void add_slices(SegmentWriter& writer, int index) const;
  Slices declare_slices() const;
  void set_slices(ShapeSet& shape, const Slices& slots, std::span<const SliceCopy> copies) const;
  void return_gradients(SegmentWriter& writer) const;
  void set_call(ShapeSet& shape, int index, const FrameworkCallShape& spec, const RowMap& ordered) const;

  FrameworkGatherConfig config_;
  ScheduleBuilder* builder_ = nullptr;
  ModelShape model_;
  AttentionTensors tensors_;
  GroupRole role_ = -1;
  RowMapSlot send_map_ = -1, gathered_map_ = -1, ordered_map_ = -1;
  RowListSlot send_rows_ = -1, sent_part_ = -1, padding_part_ = -1;
  RowListSlot gathered_zero_ = -1;
  Slices gathered_slices_, local_slices_;
  TensorKindId send_[2] = {-1, -1}, gathered_[2] = {-1, -1}, listed_[2] = {-1, -1}, ordered_[2] = {-1, -1};
  TensorKindId ordered_grad_[2] = {-1, -1}, gathered_grad_[2] = {-1, -1}, returned_[2] = {-1, -1};
  TensorKindId lse_ = -1, output_parts_ = -1, dq_parts_ = -1;
  TensorKindId row_copy_ = -1, padded_grad_[2] = {-1, -1};  // `padded` only
  EventSlot packed_ = kNoEvent, arrived_ = kNoEvent, returned_event_ = kNoEvent;
  Call calls_[kFrameworkCalls];
};

}  // namespace longhaul
