// Ops: what one kernel launch or one collective call does, as a template that ranks, chunks and layers share.
//
// Sizes, rows, pieces and peers are not in the op: they stand in the shape table (shape.h) at the slots that the op
// names. Streams and events mean what they mean in CUDA: ops of one stream run in order; `record` marks an event slot
// when the op completes; a wait refers to the latest record of that slot before it in the rank's program order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule/tensor.h"

namespace longhaul {

enum class OpKind : std::uint8_t {
  kGemm,
  kAttention,
  kMergePartials,
  kElementwise,
  kMove,
  kOptimizer,
  kCollective,
};

enum class Pass : std::uint8_t { kForward, kRecompute, kBackward, kOptimizer };
const char* to_string(Pass pass);

// The function of an Elementwise or Move op, with its operands in order (w: written, rw: read and written, r: read).
enum class Function : std::uint8_t {
  kNone,  // of a Move: plain pairs
  // Move, one pair: r rows x (P/r w) columns, w (P rows) x w, block-major: destination row j * rows + i holds columns
  // [floor(j / r) w, ...) of source row i, with r = (blocks x w) / source columns (KV heads repeated r times).
  kSplitColumns,
  kJoinColumns,  // Move, the inverse: r (P rows) x w, w rows x columns; the r blocks that repeat a column are summed
  kEmbedding,    // r table (flat vocab x hidden), w rows x hidden; ids follow from the output's row map
  kEmbeddingBackward,  // r d_rows, d_table (write: other rows get 0; or accumulate)
  kRmsNorm,            // r x, r weight (flat hidden), w y; epsilon 1e-5
  kRmsNormBackward,    // r x, r weight, r dy, dx (write or accumulate), dweight (write or accumulate)
  kRope,               // rw rows x (heads x head_dim), in place, by the row's token position, base 10000
  kRopeBackward,       // rw the gradient of the same, in place
  kSwiGlu,             // r gate_up (rows x 2 ffn: gate then up), w rows x ffn = silu(gate) * up
  kSwiGluBackward,     // r gate_up, r d_out, w d_gate_up
  kAdd,                // r a, r b, w a + b
  kAccumulate,         // r a, rw b += a
  kZero,               // w
  kGiven,              // w (any number): rows that come from outside the step; nothing is launched
  kCast,               // r a, w b
  kCrossEntropy,       // rw logits: replaced by d loss / d logits (softmax - onehot) / counted tokens; adds the loss
};
const char* to_string(Function function);

enum class CollectiveKind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kExchange };
const char* to_string(CollectiveKind kind);

// Which kernel of an eager framework does an op's work, where it is another one than ours. Only its time differs.
enum class EagerKernel : std::uint8_t {
  kNone,
  kIndexedRows,   // rows taken by a mask that lies on the host
  kExpandedRows,  // rows put by an index: index_put, scatter_
  kPermutedRows,  // rows and heads in another order made contiguous
  kJoinedSlices,  // a cat: the host makes each slice before the kernel; slices are the spans of the op's row lists
  kAddedSlice,    // x[a:b] += y
  kZeros,
  kCastToFp32,
  kCastToBf16,
  kAddedInFp32,     // a bf16 part and an fp32 sum
  kMergedPartials,  // an fp32 output and its log-sum-exps with a bf16 part's, one TorchScript function
};
const char* to_string(EagerKernel kernel);

// Work of the host before an op, for which it first waits until the op's stream has run dry.
enum class HostStall : std::uint8_t {
  kNone,
  kReadValues,      // a few numbers read back from the device
  kHalfMasks,       // ring-flash-attention's two masks of halves, made from bounds of documents on the device
  kHalfLogarithms,  // its log-sum-exps of halves, document by document
  kMaskedIndex,     // rows listed from a mask on the host and sent, beside what the op itself waits for
  kMaskedIndices,   // twice
};
const char* to_string(HostStall stall);

using StreamId = std::int8_t;
using EventSlot = std::int8_t;
using GroupRole = std::int8_t;  // which of a rank's groups a collective uses
using PieceSlot = std::int16_t;
using ExchangeSlot = std::int16_t;
inline constexpr EventSlot kNoEvent = -1;

inline constexpr StreamId kComputeStream = 0;
inline constexpr StreamId kCopyInStream = 1;
inline constexpr StreamId kCopyOutStream = 2;
inline constexpr StreamId kFirstCommunicationStream = 3;  // stream 3 + g serves group role g

// One source of keys and values of an attention op. With `chunks` set, it stands for one operand for each chunk in that
// list of the shape table (the tensors' own chunk is replaced), in list order.
struct KeyValueOperand {
  View key;
  View value;
  View key_gradient;    // backward only
  View value_gradient;  // backward only
  ChunkListSlot chunks = -1;
};

// One send view and one receive view of a collective. A call may carry several (one NCCL group).
//   all-reduce: `receive` only, in place.  all-gather: receive rows = members x send rows, in member order.
//   reduce-scatter: send rows = members x receive rows.  broadcast: member 0 sends, the others receive.
//   exchange: `exchange` names the per-peer rows and columns of both views; a member may send to itself (a copy).
struct CollectivePart {
  View send;
  View receive;
  ExchangeSlot exchange = -1;
};

enum class Guard : std::uint8_t { kAlways, kNotFirstIteration, kNotLastIteration };

struct Op {
  OpKind kind = OpKind::kElementwise;
  Pass pass = Pass::kForward;
  Function function = Function::kNone;
  StreamId stream = kComputeStream;
  Guard guard = Guard::kAlways;  // skipped in the first or last layer of its block
  EagerKernel eager = EagerKernel::kNone;
  HostStall stall = HostStall::kNone;  // over the pieces in `pieces`
  std::string label;

  std::vector<EventSlot> waits;
  EventSlot record = kNoEvent;
  std::vector<TensorRef> acquire;  // storage appears when the op starts
  std::vector<TensorRef> release;  // storage goes when the op ends

  // Gemm: C (write or accumulate) = op(A) x op(B).  MergePartials: r o_part, r lse_part, rw o, rw lse.
  // Elementwise: see Function.  Move: pairs (source, destination), destinations write or accumulate.
  // Optimizer: rw state, r gradient shard, w parameter shard (AdamW).
  std::vector<View> operands;
  bool transpose_a = false;
  bool transpose_b = false;

  // Attention. Forward: reads q and the operands' keys and values, writes o and lse (rows that no piece names get
  // o = 0, lse = -inf). Backward: reads q, keys, values, o, lse and o_gradient; writes or accumulates q_gradient and
  // the operands' gradients (with write, rows that no piece names get 0).
  View q, o, lse, q_gradient, o_gradient;
  std::vector<KeyValueOperand> key_values;
  PieceSlot pieces = -1;
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;  // on this rank
  GroupRole head_role = -1;  // >= 0: this rank's heads are the member-index-th share of all heads

  // Collective.
  CollectiveKind collective = CollectiveKind::kExchange;
  GroupRole role = -1;
  std::vector<CollectivePart> parts;
  bool pipeline_edge = false;  // waiting for the sender counts as bubble, not as imbalance
};

}  // namespace longhaul
