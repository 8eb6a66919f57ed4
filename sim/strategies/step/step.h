// One training step of a transformer as segments of op templates: embedding, layers, head and loss, their backward
// passes, ZeRO 0 and 3, optimizer. A strategy adds an attention scheme, the shapes of its ranks and chunks, and
// programs.
//
// Layer (model.h): 11 forward ops besides attention, 13 backward. Under full recompute only the layer input (`hidden`)
// is kept; the backward pass first repeats the layer with tensor instance 1. ZeRO 3: the weights of a layer are
// gathered over the zero group one layer ahead of their use (a gather waits until the unit before it has begun), on the
// zero group's stream, forward and backward; gradients are reduce-scattered a layer at a time. ZeRO 0: gradients are
// all-reduced a layer at a time in the last backward pass. Gradients and gathered weights are bf16 (2 + 2 + 12 bytes a
// parameter with AdamW's fp32 state; basp.md 3.7). With `gather_once` (pipelines whose stages are small) the step
// begins with all gathers, gradients accumulate unsharded and are reduce-scattered in the last backward pass. The
// optimizer state is one flat tensor of 3 fp32 columns (master weight and two moments).
//
// Scopes (training.h). kLayers: hidden rows come from outside before layer 0, their gradients after the last layer; no
// embedding, head, loss or optimizer, nothing of them resident. kAttention: a layer is its attention scheme alone; Q,
// K, V (after RoPE) and the gradient of O come from outside, no weights. Without the backward pass nothing is kept for
// it.
#pragma once

#include <memory>

#include "sim/strategies/step/attention_scheme.h"
#include "sim/workload/training.h"

namespace longhaul {

// A contiguous range of the model's parameters that is gathered, reduced and updated as one.
struct ParameterUnit {
  std::string name;           // "embedding", "layer", "head"
  std::int64_t elements = 0;  // without padding
  std::int64_t padded = 0;    // multiple of the zero group's size
  bool per_layer = false;
  TensorKindId parameters = -1;  // full (ZeRO 0: resident; ZeRO 3: gathered)
  TensorKindId shard = -1;       // ZeRO 3: resident shard
  TensorKindId gradients = -1;   // full (ZeRO 0: resident)
  TensorKindId gradient_shard = -1;
  TensorKindId reduced = -1;  // ZeRO 3 with several chunks: what a reduce-scatter returns before it is added
  TensorKindId state = -1;    // optimizer
};

struct StepOptions {
  Training training;
  int zero_ranks = 1;    // members of each zero group; all the same
  int replicas = 1;      // zero groups that hold the same parameters: their gradients are all-reduced once, at the end
  int chunks = 1;        // backward passes of a rank in the step
  bool context = false;  // pipelines with slices: some chunks keep keys and values for later ones
  bool gather_once = false;  // ZeRO 3: weights are gathered once a step and gradients reduced once, not for every chunk
  bool pipeline = false;     // layers of a stage: hidden rows and their gradients come and go by pipeline edges
};

// The step's segments. An id of -1 means that the step does not have it.
struct StepSegments {
  SegmentId gather_embedding = -1, gather_tied_table = -1, gather_head = -1;
  SegmentId gather_layer_forward = -1, gather_layer_backward = -1;
  SegmentId prepare_embedding = -1, prepare_layer = -1, prepare_head = -1;  // gather_once: weights and zero gradients
  SegmentId drop_layer = -1;  // gather_once, layers forward alone: weights go
  SegmentId embedding = -1, embedding_backward = -1, embedding_backward_last = -1;
  SegmentId layer = -1, layer_context = -1;                 // forward
  SegmentId layer_backward = -1, layer_backward_last = -1;  // recompute included
  SegmentId layer_backward_context = -1, layer_backward_context_last = -1;
  SegmentId head = -1, head_last = -1;  // head, loss and their backward
  SegmentId receive_forward = -1, send_forward = -1, receive_backward = -1, send_backward = -1;  // pipeline edges
  SegmentId optimizer_embedding = -1, optimizer_layer = -1, optimizer_head = -1;
  SegmentId scope_input = -1, scope_output = -1, scope_input_grad = -1;  // kLayers: what enters and leaves
};

class StepBuilder {
 public:
  // `scheme` must outlive the builder. Writes tensor kinds, roles and segments into `builder`.
  StepBuilder(ScheduleBuilder& builder, const ModelShape& model, const Objective& objective, const StepOptions& options,
              AttentionScheme& scheme);

  // Another scheme, which must outlive the builder too, for chunks of their own: writes the layer's segments with it
  // (no `context`). Gives its number for append_chunk; the constructor's scheme is 0.
  int add_scheme(AttentionScheme& scheme);

  const StepSegments& segments() const { return segments_; }
  GroupRole zero_role() const { return zero_role_; }
  GroupRole replica_role() const { return replica_role_; }
  // Roles of a stage's four directed edges, each a group {sender, receiver} with a stream of its own.
  struct EdgeRoles {
    GroupRole forward_in = -1, forward_out = -1, backward_in = -1, backward_out = -1;
  };
  const EdgeRoles& edges() const { return edges_; }
  RowMapSlot token_rows() const { return token_rows_; }
  RowMapSlot head_rows() const { return head_rows_; }
  RowListSlot head_row_list() const { return head_row_list_; }
  const TensorKindId& hidden() const { return hidden_; }
  const TensorKindId& hidden_grad() const { return hidden_grad_; }
  EventSlot compute_done() const { return compute_done_; }

  // Sets the token rows, and the rows that pass through the head (all, or the noisy ones for block diffusion).
  void set_rows(ShapeSet& shape, const RowMapPtr& rows) const;

  // Tensors that a rank holds through the step: `layers` from `first_layer`, embedding and head if it has them.
  std::vector<TensorRef> resident(int first_layer, int layers, bool embedding, bool head) const;

  // Blocks of one whole chunk on ranks that hold all layers: forward, loss, backward.
  void append_chunk(Program& program, int chunk, bool last, int scheme = 0) const;
  // Forward and backward of one chunk on layers [first, first + layers) of a stage. `context`: the chunk's keys and
  // values are kept for later slices.
  void append_forward(Program& program, int chunk, int first_layer, int layers, bool context, int scheme = 0) const;
  void append_backward(Program& program, int chunk, int first_layer, int layers, bool context, bool last,
                       int scheme = 0) const;
  void append_embedding(Program& program, int chunk) const;
  void append_embedding_backward(Program& program, int chunk, bool last) const;
  void append_head(Program& program, int chunk, int layers, bool last) const;
  // One block of a pipeline edge: hidden rows of `layer`, or the gradient of the chunk's hidden rows.
  void append_edge(Program& program, SegmentId segment, int chunk, int layer) const;
  // Gather_once: the beginning of a rank's step. Nothing otherwise.
  void append_prepare(Program& program, int first_layer, int layers, bool embedding, bool head) const;
  // Gather_once of layers without a backward pass, whose reductions release the weights: the end. Nothing otherwise.
  void append_drop(Program& program, int first_layer, int layers) const;
  void append_optimizer(Program& program, int first_layer, int layers, bool embedding, bool head) const;

 private:
  struct LayerTensors {
    TensorKindId attention_norm_output, residual, ffn_norm_output, gate_up, activated, projection, ffn_output;
    TensorKindId activated_grad, gate_up_grad, ffn_norm_grad, attention_norm_grad;
  };

  // The segments of a layer that depend on the scheme.
  struct LayerSegments {
    SegmentId forward = -1, backward = -1, backward_last = -1;
  };
  LayerSegments layer_segments(int scheme) const;

  ParameterUnit declare_unit(std::string name, std::int64_t elements, bool per_layer);
  void declare_tensors();
  Scope scope() const { return options_.training.scope; }
  bool whole_model() const { return scope() == Scope::kStep || scope() == Scope::kForwardBackward; }
  bool zero3() const { return options_.training.zero_stage == 3 && options_.zero_ranks > 1; }
  bool per_chunk() const { return zero3() && !options_.gather_once; }  // gathers and reductions for every chunk
  bool recompute() const { return options_.training.recompute == Recompute::kFull; }
  bool keep() const { return !recompute() && options_.training.backward; }  // a forward pass, for its backward pass
  // `use` tells the gathered copies of one chunk apart: 0 forward, 1 backward (and the tied table in the head).
  TensorRef unit_tensor(const ParameterUnit& unit, TensorKindId kind, std::uint8_t use = 0,
                        std::int16_t layer_offset = 0) const;
  View weight(const ParameterUnit& unit, std::uint8_t use, std::int64_t begin, std::int64_t rows,
              std::int64_t columns) const;
  View weight_grad(const ParameterUnit& unit, std::int64_t begin, std::int64_t rows, std::int64_t columns) const;

  void write_gather(SegmentWriter& writer, const ParameterUnit& unit, std::uint8_t use, std::int16_t layer_offset,
                    Guard guard) const;
  void write_forward_ops(SegmentWriter& writer, const ForwardMode& mode) const;
  void write_backward_ops(SegmentWriter& writer, const ForwardMode& mode) const;
  void write_acquire_grads(SegmentWriter& writer, const ParameterUnit& unit) const;
  void write_reduce(SegmentWriter& writer, const ParameterUnit& unit, bool last) const;
  void write_scheme_segments();  // the layers by `scheme_`
  void write_layer_segments();
  void write_model_segments();      // embedding, head, optimizer
  void write_scope_segments();      // kLayers: the ends
  void write_attention_segments();  // kAttention: the layers
  void write_attention_forward(SegmentWriter& writer, const ForwardMode& mode) const;
  SegmentId layer_forward_segment(bool context);
  SegmentId layer_backward_segment(bool context, bool last);
  SegmentId gather_segment(const std::string& name, const ParameterUnit& unit, std::uint8_t use);
  SegmentId embedding_segment();
  SegmentId embedding_backward_segment(bool last);
  SegmentId head_segment(bool last);
  SegmentId optimizer_segment(const ParameterUnit& unit);
  SegmentId prepare_segment(const ParameterUnit& unit);
  SegmentId drop_segment(const ParameterUnit& unit);
  void declare_edges();
  SegmentId edge_segment(const std::string& name, GroupRole role, bool forward, bool send);

  ScheduleBuilder& builder_;
  ModelShape model_;
  Objective objective_;
  StepOptions options_;
  AttentionScheme* scheme_;            // that segments are written with
  std::vector<LayerSegments> others_;  // of schemes 1, 2, ...
  AttentionTensors attention_;
  LayerTensors tensors_{};
  LayerParameters layer_parameters_;
  ParameterUnit embedding_, layer_, head_;
  StepSegments segments_;
  GroupRole zero_role_ = -1, replica_role_ = -1;
  EdgeRoles edges_;
  ExchangeSlot edge_send_ = -1, edge_receive_ = -1;
  RowMapSlot token_rows_ = 0, head_rows_ = 0;
  RowListSlot head_row_list_ = kAllRows;
  TensorKindId hidden_ = -1, hidden_grad_ = -1, head_norm_output_ = -1, head_norm_grad_ = -1, logits_ = -1;
  EventSlot params_ready_ = kNoEvent, unit_begun_ = kNoEvent, compute_done_ = kNoEvent, grads_reduced_ = kNoEvent;
  EventSlot input_ready_ = kNoEvent, grad_ready_ = kNoEvent;
};

}  // namespace longhaul
