// Ring attention of a context-parallel group of N ranks: each rank keeps its queries, blocks of keys and values go
// round (zhuzilin's ring-flash-attention and Transformer Engine's p2p; flashcp.md 2.3, basp.md 3.3).
//
// Step t = 0 .. N-1 of member i works on the block of member (i - t) mod N. A hop is one exchange: the block at hand
// goes to (i + 1) mod N while the next comes from (i - 1) mod N, posted before the attention of the block at hand. K
// and V stand side by side in one block, so that a hop is one message to one peer. M = rows x 2 kv_width x 2 bytes:
//   forward   N - 1 hops of K, V                                         sends (N - 1) M a rank and layer
//   backward  N - 1 hops of K, V, N hops of dK, dV (the last one home)     sends (2 N - 1) M
// A full recompute repeats the forward pass. dK and dV travel in bf16 (the open code carries them in fp32: twice the
// bytes of those N hops; flashcp.md 2.0 has both, its bf16 row with N - 1 hops).
//
// Hop t + 2 starts only after the attention of step t, as with two receive buffers: at most the block in use and the
// one on its way are held. With A an attention and H a hop, the forward pass of a layer takes (N - 1) max(A, H) + A.
// Own K and V are read in place at step 0 and packed once into the first send block. Steps t > 0 attend only with the
// query rows that see a key of the block, and read only the keys that some query sees (the halves of zigzag); partial
// results are merged on those rows. The copies with which open code makes such halves contiguous are not modelled. The
// backward pass writes dK, dV of a step apart and adds them to the sum that arrives from the left.
// N = 1: attention in place, no communication.
//
// Transformer Engine's p2p (context_parallel.py; flashcp.md 2.4) differs so:
//   forward   a buffer a step: all N blocks of a layer live until its end, hop t + 1 waits for the attention of t - 1
//   backward  starts with the block of the last forward step, which is kept, and sends blocks to (i - 1) mod N, so that
//             the last block is the rank's own: N - 1 hops of K, V and N - 1 of dK, dV, hop t carrying the block of
//             step t + 1 and the gradients that step t - 1 completed in one message; sends 2 (N - 1) M
// kFramework follows the open code op by op (github zhuzilin/ring-flash-attention @8996282, zigzag_ring_flash_attn_
// varlen.py, utils.py): outputs, dQ, dK and dV summed in fp32 and cast at the ends, dK and dV on the wire in fp32 (3 N
// - 1 times M backward); index copies of half the queries once a pass, of half the keys a step, of half the sums before
// and after each addition. An index copy is written beside, its reader reads in place: the bytes and launches are the
// same. Its update of outputs is one fused kernel, as its TorchScript makes it. Masks of halves are made in every
// forward pass on the host from bounds that lie on the device, log-sum-exps of halves are copied document by document
// in the backward pass: stalls that grow with the documents; each tensor that a mask indexes makes the host wait, keys
// and values, outputs and log-sum-exps apart. A single document is halved by slices: its halves are read in place,
// without masks.
//
// kPadded is Transformer Engine's ring as MagiAttention's benchmark runs it around FlashAttention-3 (github SandAI-org/
// MagiAttention @2c64135, exps/dist_attn/baselines/ring_attn.py, utils_cp.py), op by op. Each step: halves of queries
// or keys and values are copied out; every operand of the call is gathered from its padded rows; the call's output is
// put back into zeros; the backward pass does the same with O, dO, dQ, dK and dV, adds dQ apart and joins dK and dV.
// Gathers and puts work on whole rows even where nothing is padded. Copies of log-sum-exps are not modelled.
//
// Transformer Engine's forward alternates two streams, so that merging a step overlaps the next one's attention; here
// it follows.
#pragma once

#include <string>
#include <vector>

#include "sim/strategies/step/attention_scheme.h"

namespace longhaul {

// Three tensor kinds a step must fit in their 2^12.
constexpr int kMostRingRanks = 1024;

enum class RingFlavor : std::uint8_t {
  kRingFlashAttention,
  kTransformerEngine,
  kFramework,  // ring-flash-attention with the copies of its eager code (ring_framework.cpp)
  kPadded,     // kTransformerEngine with the copies of MagiAttention's benchmark (ring_padded.cpp)
};

// What one member does at one step.
struct RingStepShape {
  RowMapPtr block_rows;   // rows of the block at hand; equal in number on all members
  RowListPtr query_rows;  // own rows that see the block (step 0: all)
  RowListPtr key_rows;    // rows of the block that own queries see (step 0: all)
  PieceListPtr pieces;    // rows count within query_rows and key_rows
};

class RingScheme : public AttentionScheme {
 public:
  // `group_size` N, 1 to kMostRingRanks.
  // `masks`: kFramework takes halves by masks; otherwise, of single documents, by slices. `role_name`: of its group.
  explicit RingScheme(int group_size, RingFlavor flavor = RingFlavor::kRingFlashAttention, bool masks = true,
                      std::string role_name = "context");

  void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) override;
  void forward(SegmentWriter& writer, const ForwardMode& mode) override;
  void backward(SegmentWriter& writer, const ForwardMode& mode) override;

  GroupRole role() const { return role_; }
  // `steps`: of member `member`, one for each t.
  void set_shape(ShapeSet& shape, int member, const std::vector<RingStepShape>& steps) const;

 private:
  // Instance of the travelling blocks in the backward pass; forward and recompute have their mode's (0 and 1).
  static constexpr std::uint8_t kBackwardInstance = 2;

  // Slots and tensors of one step. Step 0 has the slots of the rank's own rows.
  struct Step {
    RowMapSlot block_map = 0;
    RowListSlot query_rows = kAllRows, key_rows = kAllRows;
    RowListSlot half_queries = -1, half_keys = -1;  // with copies: the same rows where they are not all, else none
    PieceSlot pieces = -1;
    TensorKindId block = -1;       // K, V
    TensorKindId block_grad = -1;  // dK, dV of this step alone; kRingFlashAttention: not at step 0
    TensorKindId sum_grad = -1;    // dK, dV of all members that the block has passed
  };

  bool alone() const { return group_size_ == 1; }
  bool te() const { return flavor_ == RingFlavor::kTransformerEngine || padded(); }
  bool padded() const { return flavor_ == RingFlavor::kPadded; }
  bool framework() const { return flavor_ == RingFlavor::kFramework; }
  bool last(int step) const { return step + 1 == group_size_; }
  const Step& at(int step) const { return steps_[static_cast<std::size_t>(step)]; }
  View own_columns(const TensorRef& qkv, Access access, int which) const;
  View block_columns(const TensorRef& block, Access access, int which, RowListSlot rows = kAllRows) const;
  EventSlot arrived(int step) const { return arrived_[step % 2]; }
  // The block of a step. kTransformerEngine keeps that of the last forward step for the backward pass of its layer.
  TensorRef block(int step, std::uint8_t instance) const;
  void pack(SegmentWriter& writer, const TensorRef& qkv, std::uint8_t instance) const;
  void hop(SegmentWriter& writer, int step, std::uint8_t instance) const;
  void free_block(SegmentWriter& writer, int step, std::uint8_t instance) const;
  Op attention_op(int step, const ForwardMode& mode, const TensorRef& block) const;
  Op backward_op(int step, const ForwardMode& mode, const TensorRef& block, bool first) const;
  void backward_te(SegmentWriter& writer, const ForwardMode& mode) const;
  void hop_te(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  void attend_backward_te(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  TensorRef backward_block_te(int step, const ForwardMode& mode) const;
  EventSlot attended(int step) const { return te() ? attended_by_[step % 2] : attended_; }
  void declare_framework();
  void copy_halves(SegmentWriter& writer, const char* label, const TensorRef& from, TensorKindId copy,
                   std::int64_t width, RowListSlot rows) const;
  // Reads of halves that slices make without a copy are left out; writes of halves are copies either way.
  void take_halves(SegmentWriter& writer, const char* label, const TensorRef& from, TensorKindId copy,
                   std::int64_t width, RowListSlot rows) const;
  void put_halves(SegmentWriter& writer, const char* label, const TensorRef& from, TensorKindId copy,
                  std::int64_t width, RowListSlot rows) const;
  void masked_indices(SegmentWriter& writer, HostStall stall) const;
  void copy_half_keys(SegmentWriter& writer, int step, std::uint8_t instance) const;
  void attend_framework(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  void forward_framework(SegmentWriter& writer, const ForwardMode& mode) const;
  void attend_backward_framework(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  void add_gradients_framework(SegmentWriter& writer, int step) const;
  void backward_framework(SegmentWriter& writer, const ForwardMode& mode) const;
  void declare_padded();
  // `block`: at hand; none for own keys and values.
  void take_operands(SegmentWriter& writer, int step, const ForwardMode& mode, const TensorRef& block) const;
  void put_output(SegmentWriter& writer, int step, const TensorRef& output) const;
  void take_gradients(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  void put_gradients(SegmentWriter& writer, int step) const;
  void gather_rows(SegmentWriter& writer, const char* label, const TensorRef& from, std::int64_t begin,
                   TensorKindId copy, RowListSlot rows) const;
  void put_rows(SegmentWriter& writer, const char* label, const TensorRef& from, TensorKindId copy,
                RowListSlot rows) const;
  void attend(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  void attend_backward(SegmentWriter& writer, int step, const ForwardMode& mode) const;
  void add_gradients(SegmentWriter& writer, int step) const;
  void hop_gradients(SegmentWriter& writer, int step) const;
  // The sum after `step` hops; after N of them it is home and has the rank's own rows.
  TensorRef sum_gradient(int step) const;

  int group_size_;
  RingFlavor flavor_;
  bool masks_;
  std::string role_name_;
  ScheduleBuilder* builder_ = nullptr;
  ModelShape model_;
  AttentionTensors tensors_;
  GroupRole role_ = -1;
  std::vector<Step> steps_;
  RowListSlot no_rows_ = kAllRows;
  ExchangeSlot to_next_ = -1, to_previous_ = -1;
  TensorKindId lse_ = -1, output_part_ = -1, lse_part_ = -1;
  // kFramework: fp32 sums, what one call gives of dQ, and where copies of halves go. kPadded: where copies go.
  TensorKindId output_sum_ = -1, dq_sum_ = -1, dq_part_ = -1;
  TensorKindId query_copy_ = -1, output_copy_ = -1, key_copy_ = -1, gradient_copy_ = -1;
  RowListSlot half_queries_ = -1;  // of the step that has them
  PieceSlot half_pieces_ = -1;     // a piece a document whose halves are taken by masks; none of a single document
  EventSlot packed_ = kNoEvent, attended_ = kNoEvent, summed_ = kNoEvent, sum_arrived_ = kNoEvent;
  EventSlot attended_by_[2] = {kNoEvent, kNoEvent};  // of odd and even steps
  EventSlot arrived_[2] = {kNoEvent, kNoEvent};  // of odd and even hops: two are posted before the first is waited for
};

}  // namespace longhaul
