// Attention of a rank's own query rows against keys and values gathered from a context-parallel group: all-gather CP,
// Per-Doc CP, FlashCP, token-offset CP and CSBP.
//
// A scheme has one or more gathers (which rows of K and V each rank sends; padded to equal rows) and one or more
// attention stages (launches) over the local rows and the gathered ones. Forward: pack, all-gather, optionally copy
// into token order, attend, merge the stages by log-sum-exp. Backward runs the stages in reverse; the gradient of what
// was gathered is reduce-scattered while later stages run. Gathered K and V are kept for the backward pass (csbp.md
// 0.5, flashcp.md 2.1); under full recompute the recompute pass gathers again.
#pragma once

#include <string>
#include <vector>

#include "sim/strategies/step/attention_scheme.h"

namespace longhaul {

struct GatherConfig {
  std::string name;      // of tensors and ops: "kv", "clean", "noisy"
  bool packed = true;    // K and V in one collective; otherwise one each (flashcp.md 2.1)
  bool ordered = false;  // gathered rows are copied into token order before use, together with local rows
};

struct StageConfig {
  std::string name;
  bool local = false;        // operand 0: the rank's own rows
  std::vector<int> gathers;  // then these gathers, in order
};

// What a strategy sets for each (rank, chunk) and gather.
struct GatherShape {
  RowListPtr send_rows;          // local rows that are sent, in order
  std::int64_t padded_rows = 0;  // of every rank's send buffer
  RowMapPtr gathered_rows;       // members x padded_rows
  // `ordered` only: the copy's rows and where they come from.
  RowMapPtr ordered_rows;
  RowListPtr common_source, common_target;      // gathered rows -> ordered rows, the same lists on every rank
  RowListPtr gathered_source, gathered_target;  // gathered rows -> ordered rows that only this rank needs
  RowListPtr local_source, local_target;        // own rows -> ordered rows
};

class GatherScheme : public AttentionScheme {
 public:
  GatherScheme(std::vector<GatherConfig> gathers, std::vector<StageConfig> stages)
      : configs_(std::move(gathers)), stages_(std::move(stages)) {}

  void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) override;
  void forward(SegmentWriter& writer, const ForwardMode& mode) override;
  void backward(SegmentWriter& writer, const ForwardMode& mode) override;

  GroupRole role() const { return role_; }
  void set_gather(ShapeSet& shape, int gather, const GatherShape& spec) const;
  void set_pieces(ShapeSet& shape, int stage, PieceListPtr pieces) const;

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
  };

  int tensors_of(int gather) const { return configs_[static_cast<std::size_t>(gather)].packed ? 1 : 2; }
  View local_columns(const TensorRef& qkv, Access access, int which, RowListSlot rows = kAllRows) const;
  View gathered_columns(const TensorKindId (&kinds)[2], int gather, std::uint8_t instance, bool layered, Access access,
                        int which, RowListSlot rows = kAllRows) const;
  void declare_gather(int gather);
  void send(SegmentWriter& writer, int gather, std::uint8_t instance) const;
  void order(SegmentWriter& writer, int gather, std::uint8_t instance) const;
  void attend(SegmentWriter& writer, int stage, const ForwardMode& mode) const;
  void attend_backward(SegmentWriter& writer, int stage, const ForwardMode& mode, bool first) const;
  void return_gradients(SegmentWriter& writer, int gather) const;
  void collect_gradients(SegmentWriter& writer, int gather) const;
  Op attention_op(int stage, std::uint8_t instance) const;
  bool any_local() const;

  std::vector<GatherConfig> configs_;
  std::vector<StageConfig> stages_;
  ScheduleBuilder* builder_ = nullptr;
  ModelShape model_;
  AttentionTensors tensors_;
  GroupRole role_ = -1;
  std::vector<Gather> gathers_;
  std::vector<PieceSlot> pieces_;
  TensorKindId lse_ = -1, output_part_ = -1, lse_part_ = -1;
  EventSlot packed_ = kNoEvent;
};

}  // namespace longhaul
