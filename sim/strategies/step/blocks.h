// Attention in blocks that any rank of a context-parallel group may compute (DCP, flashcp.md 2.6): queries travel to
// where their work is, keys and values too, partial results travel home and are merged there by log-sum-exp.
//
// Forward: one cast a division brings it the queries and the keys and values of other ranks; all are posted before the
// first launch. Launch 0 is local: own queries against own keys. Division d = 1, 2, ...: the received queries against
// own keys and all that has arrived; their output and log-sum-exp start home; then own queries against the keys of this
// division, merged. What came home is merged at the end. Backward: gradient, output and log-sum-exp of the queries that
// are away follow them by division; divisions come in reverse, so that the gradients of a division's queries and keys
// are complete when it ends and travel while the next one computes. Received queries, keys and values stay from the
// forward pass (or the recompute pass) to the backward pass. With q, kv the widths of queries and of K and V, h query
// heads, b bytes an element, a query row away costs
//   forward  q b + q b + 4 h    (query; output, log-sum-exp)
//   backward 2 q b + 4 h + q b  (output gradient, output, log-sum-exp; query gradient)
// and a key row away kv b a pass (K, V; dK, dV). Partial gradients travel in bf16, like those of the other schemes.
// A row that goes to several ranks stands several times in the send buffer; what returns for it is added up or merged
// one after the other, in buffer order.
#pragma once

#include <vector>

#include "sim/strategies/step/attention_scheme.h"

namespace longhaul {

// Rows of a division that go to and come from one peer.
struct BlockPeer {
  std::int32_t peer = 0;                 // member index
  RowListPtr query_send, query_receive;  // rows of the send buffer, of the received rows
  RowListPtr key_send, key_receive;
  // A rank that moves nothing takes part where others do; then these name the buffers concerned.
  bool joins_queries = false, joins_keys = false;
};

struct BlockDivision {
  RowListPtr query_sends, key_sends;  // own rows in buffer order
  RowMapPtr query_rows, key_rows;     // received
  std::vector<BlockPeer> peers;
  RowListPtr own_rows;         // own queries that see a key of this division
  PieceListPtr own_pieces;     // query rows count in own_rows; operand 0: this division's keys
  PieceListPtr remote_pieces;  // of the received queries; operand 0: own keys, d: those of division d
};

struct BlockShape {
  PieceListPtr local_pieces;
  std::vector<BlockDivision> divisions;
};

class BlockScheme : public AttentionScheme {
 public:
  // `divisions` >= 1, without the local one.
  explicit BlockScheme(int divisions) : count_(divisions) {}

  void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) override;
  void forward(SegmentWriter& writer, const ForwardMode& mode) override;
  void backward(SegmentWriter& writer, const ForwardMode& mode) override;

  GroupRole role() const { return role_; }
  void set_shape(ShapeSet& shape, const BlockShape& spec) const;

  // Bytes that one row costs when it goes to one more rank, in a forward pass and a backward pass.
  static std::int64_t query_forward_bytes(const ModelShape& model);
  static std::int64_t query_backward_bytes(const ModelShape& model);
  static std::int64_t key_pass_bytes(const ModelShape& model);

 private:
  // Rows of one width that go with the queries or the keys of a division, and come back.
  struct Route {
    ExchangeSlot cast = -1, home = -1;
  };
  struct Division {
    RowMapSlot query_send_map = 0, key_send_map = 0, query_map = 0, key_map = 0;
    RowListSlot query_sends = kAllRows, key_sends = kAllRows, own_rows = kAllRows;
    PieceSlot own_pieces = -1, remote_pieces = -1;
    Route queries, keys, lses;
    TensorKindId query_send = -1, key_send = -1, query = -1, key = -1;  // forward cast
    TensorKindId output = -1, lse = -1, output_home = -1, lse_home = -1;
    TensorKindId sent[3] = {-1, -1, -1}, received[3] = {-1, -1, -1};  // backward: output gradient, output, lse
    TensorKindId query_grad = -1, key_grad = -1, query_grad_home = -1, key_grad_home = -1;
    EventSlot arrived = kNoEvent, returned = kNoEvent;
  };

  const Division& at(int division) const { return divisions_[static_cast<std::size_t>(division)]; }
  View queries(const TensorRef& qkv, Access access, RowListSlot rows = kAllRows) const;
  View keys_values(const TensorRef& qkv, Access access, RowListSlot rows = kAllRows) const;
  KeyValueOperand own_operand(std::uint8_t instance, bool backward, bool first) const;
  KeyValueOperand received_operand(int division, std::uint8_t instance, bool backward) const;
  Op attention_op(PieceSlot pieces) const;
  void declare_division();
  void cast(SegmentWriter& writer, int division, std::uint8_t instance) const;
  void attend_local(SegmentWriter& writer, std::uint8_t instance) const;
  void attend_remote(SegmentWriter& writer, int division, std::uint8_t instance) const;
  void attend_own(SegmentWriter& writer, int division, std::uint8_t instance) const;
  void cast_gradients(SegmentWriter& writer, int division, std::uint8_t instance) const;
  void attend_local_backward(SegmentWriter& writer, std::uint8_t instance) const;
  void attend_remote_backward(SegmentWriter& writer, int division, std::uint8_t instance) const;
  void attend_own_backward(SegmentWriter& writer, int division, std::uint8_t instance) const;
  void return_gradients(SegmentWriter& writer, int division) const;

  int count_;
  ScheduleBuilder* builder_ = nullptr;
  ModelShape model_;
  AttentionTensors tensors_;
  GroupRole role_ = -1;
  PieceSlot local_pieces_ = -1;
  TensorKindId lse_ = -1, output_part_ = -1, lse_part_ = -1;
  EventSlot packed_ = kNoEvent, computed_ = kNoEvent;
  std::vector<Division> divisions_;
};

}  // namespace longhaul
