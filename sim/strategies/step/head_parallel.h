// Attention over whole sequences with the heads split over a group: Ulysses, BASP, the stages of a pipeline, and plain
// data parallelism (group of one).
//
// Forward: Q, K and V are repacked by destination and exchanged one after another (three all-to-alls, as DeepSpeed
// does; basp.md 2.5), attention runs on all rows of the group for 1/P of the heads, and the output is exchanged back.
// Backward mirrors it: dO in, dQ, dK and dV out. KV heads are repeated where P exceeds them.
//
// With `framework` the copies of MagiAttention's benchmark around FlashAttention-3 are charged too (github SandAI-org/
// MagiAttention @2c64135, exps/dist_attn/baselines/ulysess.py, utils_cp.py): what an exchange brought is copied once
// more, heads behind rows, and so are gradients before they leave (nothing to do where a rank has one head); these and
// the packs change the order of rows and heads, a kernel of its own in PyTorch; every operand of a call is gathered
// from padded rows, every result put back into zeros, padding or not. Copies are written beside, their readers read in
// place: bytes and launches are the code's. Each exchange waits for the copy after the one before. Copies of
// log-sum-exps are not modelled.
//
// Pipelines with slices: the K and V of a chunk stay (instance 0) for the later slices of its sequence, whose attention
// reads them as further operands; their gradients appear when the last slice runs backward and grow until the chunk's
// own backward pass sends them home (dpp.md 2.3).
#pragma once

#include <string>

#include "sim/strategies/step/attention_scheme.h"

namespace longhaul {

// What a strategy sets for each (rank, chunk).
struct HeadParallelShape {
  RowMapPtr group_rows;  // rows of all members in the order in which attention sees them
  // By member: where its rows stand in group_rows. Its own rows are in local order.
  std::vector<RowListPtr> member_rows;
  PieceListPtr pieces;
  // Slices: chunks that hold earlier slices of the sequence, in order; the chunk itself is added as the last operand.
  std::vector<std::int32_t> context_chunks;
  // Set on the last slice of a sequence: every chunk (this one too) whose K and V gradients appear now. For a chunk
  // whose sequence has no other slice: the chunk itself.
  std::vector<std::int32_t> first_touched;
  // Peer lists, the same for all members: filled by HeadParallelScheme::prepare.
  ExchangeListPtr q_to_heads, kv_to_heads, q_to_tokens, kv_to_tokens;
};

class HeadParallelScheme : public AttentionScheme {
 public:
  // `group_size` P ranks share a sequence; P divides the query heads and the KV heads or is a multiple of them.
  // `context`: some chunks are slices that later chunks attend to.
  // `framework`: without `context`.
  HeadParallelScheme(int group_size, bool context, bool framework = false);

  void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) override;
  void forward(SegmentWriter& writer, const ForwardMode& mode) override;
  void backward(SegmentWriter& writer, const ForwardMode& mode) override;

  GroupRole role() const { return role_; }
  // Completes what the members of a group share. `local_rows`: rows that each member holds (all equal).
  void prepare(HeadParallelShape& spec, std::int64_t local_rows) const;
  void set_shape(ShapeSet& shape, std::int32_t chunk, std::int64_t local_rows, const HeadParallelShape& spec) const;

 private:
  bool exchanged() const { return group_size_ > 1; }
  bool direct() const { return group_size_ == 1 && !context_; }     // attention reads the projection's output in place
  View part(const TensorRef& qkv, Access access, int which) const;  // 0 Q, 1 K, 2 V columns of a qkv-shaped tensor
  View heads(const TensorRef& ref, Access access) const { return builder_->whole(ref, access); }
  Op attention_op(const ForwardMode& mode, bool backward) const;
  void bring(SegmentWriter& writer, const ForwardMode& mode, bool keys) const;
  void send_home(SegmentWriter& writer, const TensorRef& gradient, int which, bool first) const;
  bool copied() const { return framework_ && exchanged(); }
  // With one head on a rank, an exchange brings what is in order already.
  bool permuted(int which) const { return copied() && (which == 0 ? q_heads_ : kv_heads_) > 1; }
  EagerKernel permutation() const { return copied() ? EagerKernel::kPermutedRows : EagerKernel::kNone; }
  // Of a tensor as wide as Q's heads (0), or K's and V's.
  void copy_beside(SegmentWriter& writer, const std::string& label, const TensorRef& from, int which) const;
  void put_beside(SegmentWriter& writer, const std::string& label, const TensorRef& from, int which) const;
  void take_operands(SegmentWriter& writer, const ForwardMode& mode, bool backward) const;

  int group_size_;
  bool context_, framework_;
  ScheduleBuilder* builder_ = nullptr;
  ModelShape model_;
  AttentionTensors tensors_;
  std::int64_t q_heads_ = 0, kv_heads_ = 0;  // on one rank
  GroupRole role_ = -1;
  RowMapSlot group_rows_ = 0, blocked_rows_ = 0;
  PieceSlot pieces_ = 0;
  ChunkListSlot context_list_ = -1, first_touched_ = -1;
  ExchangeSlot q_to_heads_ = -1, kv_to_heads_ = -1, q_to_tokens_ = -1, kv_to_tokens_ = -1;
  TensorKindId in_heads_[3] = {-1, -1, -1};  // q, k, v with this rank's heads
  TensorKindId in_heads_grad_[3] = {-1, -1, -1};
  TensorKindId output_ = -1, output_grad_ = -1, lse_ = -1;
  TensorKindId q_copy_ = -1, kv_copy_ = -1;               // framework: where copies go
  TensorKindId q_blocks_ = -1, kv_blocks_[2] = {-1, -1};  // rows repacked by member: send and receive buffers
  EventSlot packed_ = kNoEvent, arrived_ = kNoEvent, attended_ = kNoEvent;
};

}  // namespace longhaul
