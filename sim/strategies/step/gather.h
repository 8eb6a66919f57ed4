// Attention of a rank's own query rows against keys and values gathered from a context-parallel group: all-gather CP,
// Per-Doc CP, FlashCP, token-offset CP and CSBP.
//
// A scheme has one or more gathers (which rows of K and V each rank sends; padded to equal rows) and one or more
// attention stages (launches) over the local rows and the gathered ones. Forward: pack, all-gather, optionally copy
// into token order, attend, merge the stages by log-sum-exp. Backward runs the stages in reverse; the gradient of what
// was gathered is reduce-scattered while later stages run. Gathered K and V are kept for the backward pass (csbp.md
// 0.5, flashcp.md 2.1); under full recompute the recompute pass gathers again.
//
// Variants of a gather. `regather`: what was gathered goes after the forward pass, the backward pass gathers it again
// (Transformer Engine, MagiAttention). `exact`: an exchange in place of the padded all-gather, each rank sends to each
// other one the rows that it needs (a row several times, to several peers); the gradients come back by the reverse
// exchange and are added up by their owner (group-cast and group-reduce; flashcp.md 2.7).
//
// Query rows of a stage. All: every stage has every row, partial results are merged on all of them. Own: the stages
// have disjoint rows that together are all rows, so nothing is merged. Some: the first stage has all rows, the others
// list theirs and are merged on them; then the backward pass takes the stages in the order of the forward pass, so that
// its gathers arrive behind the first stage.
#pragma once

#include <string>
#include <vector>

#include "sim/strategies/step/attention_scheme.h"

namespace longhaul {

struct GatherConfig {
  std::string name;      // of tensors and ops: "kv", "clean", "noisy"
  bool packed = true;    // K and V in one collective; otherwise one each (flashcp.md 2.1)
  bool ordered = false;  // gathered rows are copied into token order before use, together with local rows
  bool regather = false;
  bool exact = false;
};

enum class StageRows : std::uint8_t { kAll, kOwn, kSome };

struct StageConfig {
  std::string name;
  bool local = false;        // operand 0: the rank's own rows
  std::vector<int> gathers;  // then these gathers, in order; stages may share one
};

// Rows of an exact gather that go to and come from one peer.
struct PeerRows {
  std::int32_t peer = 0;  // member index
  RowListPtr send;        // of the send buffer
  RowListPtr receive;     // of the gathered rows
};

// What a strategy sets for each (rank, chunk) and gather.
struct GatherShape {
  RowListPtr send_rows;          // local rows that are sent, in order
  std::int64_t padded_rows = 0;  // of every rank's send buffer; exact: the rows that are sent
  RowMapPtr gathered_rows;       // members x padded_rows; exact: what this rank receives
  std::vector<PeerRows> peers;   // exact only; a rank that only takes part in the call names itself, without rows
  // `ordered` only: the copy's rows and where they come from.
  RowMapPtr ordered_rows;
  RowListPtr common_source, common_target;      // gathered rows -> ordered rows, the same lists on every rank
  RowListPtr gathered_source, gathered_target;  // gathered rows -> ordered rows that only this rank needs
  RowListPtr local_source, local_target;        // own rows -> ordered rows
};

class GatherScheme : public AttentionScheme {
 public:
  GatherScheme(std::vector<GatherConfig> gathers, std::vector<StageConfig> stages, StageRows rows = StageRows::kAll)
      : configs_(std::move(gathers)), stages_(std::move(stages)), stage_rows_(rows) {}

  void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) override;
  void forward(SegmentWriter& writer, const ForwardMode& mode) override;
  void backward(SegmentWriter& writer, const ForwardMode& mode) override;

  GroupRole role() const { return role_; }
  void set_gather(ShapeSet& shape, int gather, const GatherShape& spec) const;
  void set_pieces(ShapeSet& shape, int stage, PieceListPtr pieces) const;
  // Query rows of a stage that lists them (kOwn: every stage, kSome: all but the first).
  void set_stage_rows(ShapeSet& shape, int stage, RowListPtr rows) const;

 private:
  // Tensors and slots of one gather. K and V stand in one tensor (packed) or in two.
  struct Gather {
    RowListSlot send_rows, sent_part, padding_part;
    RowMapSlot send_map, gathered_map, ordered_map = 0;
    RowListSlot common_source = -1, common_target = -1, gathered_source = -1, gathered_target = -1, local_source = -1,
                local_target = -1;
    TensorKindId send[2], gathered[2], ordered[2] = {-1, -1};
    TensorKindId gathered_grad[2], ordered_grad[2] = {-1, -1}, returned[2];
    EventSlot arrived = kNoEvent, returned_event = kNoEvent;
    ExchangeSlot cast = -1, reduce = -1;    // exact
    int first_stage = -1, last_stage = -1;  // that use it
  };

  const GatherConfig& config_of(int gather) const { return configs_[static_cast<std::size_t>(gather)]; }
  const Gather& at(int gather) const { return gathers_[static_cast<std::size_t>(gather)]; }
  RowListSlot rows_of(int stage) const { return stage_rows_slots_[static_cast<std::size_t>(stage)]; }
  bool merged(int stage) const { return stage > 0 && stage_rows_ != StageRows::kOwn; }
  bool backward_in_order() const { return stage_rows_ == StageRows::kSome; }
  // Stages in the order in which the backward pass takes them.
  std::vector<int> backward_order() const;
  int tensors_of(int gather) const { return configs_[static_cast<std::size_t>(gather)].packed ? 1 : 2; }
  View local_columns(const TensorRef& qkv, Access access, int which, RowListSlot rows = kAllRows) const;
  View gathered_columns(const TensorKindId (&kinds)[2], int gather, std::uint8_t instance, bool layered, Access access,
                        int which, RowListSlot rows = kAllRows) const;
  void declare_gather(int gather);
  void set_exchanges(ShapeSet& shape, int gather, const GatherShape& spec) const;
  void send(SegmentWriter& writer, int gather, std::uint8_t instance) const;
  void order(SegmentWriter& writer, int gather, std::uint8_t instance) const;
  void attend(SegmentWriter& writer, int stage, const ForwardMode& mode) const;
  void attend_backward(SegmentWriter& writer, int stage, const ForwardMode& mode, bool first) const;
  void write_operand_gradients(Op& op, int stage) const;
  void return_gradients(SegmentWriter& writer, int gather) const;
  void collect_gradients(SegmentWriter& writer, int gather) const;
  Op attention_op(int stage, std::uint8_t instance) const;
  bool any_local() const;
  bool first_use(int gather, int stage, bool backward) const;
  bool last_use(int gather, int stage, bool backward) const;

  std::vector<GatherConfig> configs_;
  std::vector<StageConfig> stages_;
  StageRows stage_rows_;
  ScheduleBuilder* builder_ = nullptr;
  ModelShape model_;
  AttentionTensors tensors_;
  GroupRole role_ = -1;
  std::vector<Gather> gathers_;
  std::vector<PieceSlot> pieces_;
  std::vector<RowListSlot> stage_rows_slots_;  // kAllRows where the stage does not list them
  TensorKindId lse_ = -1, output_part_ = -1, lse_part_ = -1;
  EventSlot packed_ = kNoEvent;
};

}  // namespace longhaul
