#include "sim/strategies/step/step.h"

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return ceil_div(value, multiple) * multiple; }

}  // namespace

StepBuilder::StepBuilder(ScheduleBuilder& builder, const ModelShape& model, const Objective& objective,
                         const StepOptions& options, AttentionScheme& scheme)
    : builder_(builder),
      model_(model),
      objective_(objective),
      options_(options),
      scheme_(&scheme),
      layer_parameters_(layer_parameters(model)) {
  LH_ASSERT(options.zero_ranks >= 1 && options.chunks >= 1, "{} zero ranks, {} chunks", options.zero_ranks,
            options.chunks);
  declare_tensors();
  if (options_.pipeline) declare_edges();
  scheme_->declare(builder_, model_, attention_);
  write_scheme_segments();
  if (scope() == Scope::kAttention) return;
  write_layer_segments();
  if (whole_model())
    write_model_segments();
  else
    write_scope_segments();
}

int StepBuilder::add_scheme(AttentionScheme& scheme) {
  const LayerSegments first = layer_segments(0);
  scheme_ = &scheme;
  scheme_->declare(builder_, model_, attention_);
  write_scheme_segments();
  others_.push_back(layer_segments(0));
  segments_.layer = first.forward;
  segments_.layer_backward = first.backward;
  segments_.layer_backward_last = first.backward_last;
  return static_cast<int>(others_.size());
}

StepBuilder::LayerSegments StepBuilder::layer_segments(int scheme) const {
  if (scheme > 0) return others_[static_cast<std::size_t>(scheme - 1)];
  return {segments_.layer, segments_.layer_backward, segments_.layer_backward_last};
}

void StepBuilder::write_scheme_segments() {
  if (scope() == Scope::kAttention) return write_attention_segments();
  segments_.layer = layer_forward_segment(false);
  segments_.layer_backward = layer_backward_segment(false, false);
  segments_.layer_backward_last = layer_backward_segment(false, true);
}

void StepBuilder::write_layer_segments() {
  if (options_.context) {
    segments_.layer_context = layer_forward_segment(true);
    segments_.layer_backward_context = layer_backward_segment(true, false);
    segments_.layer_backward_context_last = layer_backward_segment(true, true);
  }
  if (options_.gather_once && zero3()) {
    segments_.prepare_layer = prepare_segment(layer_);
    if (!options_.training.backward) segments_.drop_layer = drop_segment(layer_);
  }
  if (per_chunk()) {
    segments_.gather_layer_forward = gather_segment("gather_layer", layer_, 0);
    segments_.gather_layer_backward = gather_segment("gather_layer_backward", layer_, 1);
  }
}

void StepBuilder::write_model_segments() {
  segments_.embedding = embedding_segment();
  segments_.embedding_backward = embedding_backward_segment(false);
  segments_.embedding_backward_last = embedding_backward_segment(true);
  segments_.head = head_segment(false);
  segments_.head_last = head_segment(true);
  if (options_.gather_once && zero3()) {
    segments_.prepare_embedding = prepare_segment(embedding_);
    segments_.prepare_head = prepare_segment(head_);
  }
  if (per_chunk()) {
    segments_.gather_embedding = gather_segment("gather_embedding", embedding_, 0);
    segments_.gather_tied_table = gather_segment("gather_tied_table", embedding_, 1);
    segments_.gather_head = gather_segment("gather_head", head_, 0);
  }
  if (scope() == Scope::kStep) {
    segments_.optimizer_embedding = optimizer_segment(embedding_);
    segments_.optimizer_layer = optimizer_segment(layer_);
    segments_.optimizer_head = optimizer_segment(head_);
  }
}

ParameterUnit StepBuilder::declare_unit(std::string name, std::int64_t elements, bool per_layer) {
  ParameterUnit unit;
  unit.name = name;
  unit.elements = elements;
  unit.per_layer = per_layer;
  unit.padded = zero3() ? round_up(elements, options_.zero_ranks) : elements;
  const std::int64_t shard = unit.padded / options_.zero_ranks;
  const MemoryCategory parameters = zero3() ? MemoryCategory::kGathered : MemoryCategory::kParameters;
  unit.parameters = builder_.flat(name + "_params", unit.padded, 1, ElementType::kBf16, parameters);
  unit.gradients = builder_.flat(name + "_grads", unit.padded, 1, ElementType::kBf16, MemoryCategory::kGradients);
  if (zero3()) {
    unit.shard = builder_.flat(name + "_param_shard", shard, 1, ElementType::kBf16, MemoryCategory::kParameters);
    unit.gradient_shard = builder_.flat(name + "_grad_shard", shard, 1, ElementType::kBf16, MemoryCategory::kGradients);
    unit.reduced = builder_.flat(name + "_grad_reduced", shard, 1, ElementType::kBf16, MemoryCategory::kCommunication);
  }
  unit.state = builder_.flat(name + "_optimizer_state", zero3() ? shard : unit.padded, 3, ElementType::kFp32,
                             MemoryCategory::kOptimizer);
  return unit;
}

void StepBuilder::declare_tensors() {
  const auto bf16 = [&](const char* name, RowMapSlot rows, std::int64_t columns,
                        MemoryCategory category = MemoryCategory::kActivations) {
    return builder_.tensor(name, rows, columns, ElementType::kBf16, category);
  };
  zero_role_ = builder_.role("zero");
  if (options_.replicas > 1) replica_role_ = builder_.role("replicas");
  params_ready_ = builder_.event();
  unit_begun_ = builder_.event();
  compute_done_ = builder_.event();
  grads_reduced_ = builder_.event();
  embedding_ = declare_unit("embedding", embedding_parameters(model_), false);
  layer_ = declare_unit("layer", layer_parameters_.total(), true);
  head_ = declare_unit("head", head_parameters(model_), false);

  token_rows_ = builder_.row_map_slot();
  head_rows_ = builder_.row_map_slot();
  if (objective_.kind == ObjectiveKind::kBlockDiffusion) head_row_list_ = builder_.row_list_slot();
  const std::int64_t width = model_.hidden;
  hidden_ = bf16("hidden", token_rows_, width, MemoryCategory::kCheckpoints);
  hidden_grad_ = bf16("hidden_grad", token_rows_, width);
  tensors_.attention_norm_output = bf16("attention_norm_output", token_rows_, width);
  tensors_.projection = bf16("attention_projection", token_rows_, width);
  tensors_.residual = bf16("residual", token_rows_, width);
  tensors_.ffn_norm_output = bf16("ffn_norm_output", token_rows_, width);
  tensors_.gate_up = bf16("gate_up", token_rows_, 2 * model_.ffn);
  tensors_.activated = bf16("activated", token_rows_, model_.ffn);
  tensors_.ffn_output = bf16("ffn_output", token_rows_, width);
  tensors_.activated_grad = bf16("activated_grad", token_rows_, model_.ffn);
  tensors_.gate_up_grad = bf16("gate_up_grad", token_rows_, 2 * model_.ffn);
  tensors_.ffn_norm_grad = bf16("ffn_norm_grad", token_rows_, width);
  tensors_.attention_norm_grad = bf16("attention_norm_grad", token_rows_, width);
  head_norm_output_ = bf16("head_norm_output", head_rows_, width);
  head_norm_grad_ = bf16("head_norm_grad", head_rows_, width);
  logits_ = bf16("logits", head_rows_, model_.vocab, MemoryCategory::kLogits);

  attention_.qkv = bf16("qkv", token_rows_, model_.qkv_width());
  attention_.attention_output = bf16("attention_output", token_rows_, model_.q_width());
  attention_.attention_output_grad = bf16("attention_output_grad", token_rows_, model_.q_width());
  attention_.qkv_grad = bf16("qkv_grad", token_rows_, model_.qkv_width());
  attention_.qkv_ready = builder_.event();
}

void StepBuilder::set_rows(ShapeSet& shape, const RowMapPtr& rows) const {
  shape.row_maps[static_cast<std::size_t>(token_rows_)] = rows;
  if (head_row_list_ == kAllRows) {
    shape.row_maps[static_cast<std::size_t>(head_rows_)] = rows;
  }
  if (options_.pipeline) {
    const RowListPtr all = make_row_list({{0, rows->rows}});
    shape.exchanges[static_cast<std::size_t>(edge_send_)] =
        std::make_shared<const ExchangeList>(ExchangeList{{1, all, 0, model_.hidden, nullptr, 0, 0}});
    shape.exchanges[static_cast<std::size_t>(edge_receive_)] =
        std::make_shared<const ExchangeList>(ExchangeList{{0, nullptr, 0, 0, all, 0, model_.hidden}});
  }
  if (head_row_list_ == kAllRows) return;
  std::vector<RowRun> noisy;
  std::vector<RowSpan> spans;
  std::int64_t row = 0;
  for (const RowRun& run : rows->runs) {
    if (run.document >= 0 && run.view == TokenView::kNoisy) {
      noisy.push_back(run);
      spans.push_back({row, run.count});
    }
    row += run.count;
  }
  shape.row_maps[static_cast<std::size_t>(head_rows_)] = make_row_map(std::move(noisy));
  shape.row_lists[static_cast<std::size_t>(head_row_list_)] = make_row_list(std::move(spans));
}

std::vector<TensorRef> StepBuilder::resident(int first_layer, int layers, bool embedding, bool head) const {
  std::vector<TensorRef> tensors;
  if (scope() == Scope::kAttention) return tensors;
  const auto add = [&](const ParameterUnit& unit, std::int16_t layer) {
    const TensorKindId kinds[] = {zero3() ? unit.shard : unit.parameters,
                                  zero3() ? unit.gradient_shard : unit.gradients, unit.state};
    for (const TensorKindId kind : kinds) tensors.push_back(unit_tensor(unit, kind, 0, layer));
  };
  if (embedding && whole_model()) add(embedding_, 0);
  for (int layer = first_layer; layer < first_layer + layers; ++layer) add(layer_, static_cast<std::int16_t>(layer));
  if (head && whole_model()) add(head_, 0);
  return tensors;
}

// --- Programs -------------------------------------------------------------------------------------------------------

namespace {

Block once(SegmentId segment, int layer, int chunk) { return {segment, static_cast<std::int16_t>(layer), 1, 1, chunk}; }

void add_once(Program& program, SegmentId segment, int layer, int chunk) {
  if (segment >= 0) program.blocks.push_back(once(segment, layer, chunk));
}

}  // namespace

void StepBuilder::append_embedding(Program& program, int chunk) const {
  add_once(program, segments_.gather_embedding, 0, chunk);
  add_once(program, whole_model() ? segments_.embedding : segments_.scope_input, 0, chunk);
}

void StepBuilder::append_forward(Program& program, int chunk, int first_layer, int layers, bool context,
                                 int scheme) const {
  LH_ASSERT(!context || scheme == 0, "scheme {} with a context", scheme);
  add_once(program, segments_.gather_layer_forward, first_layer, chunk);
  const SegmentId segment = context ? segments_.layer_context : layer_segments(scheme).forward;
  program.blocks.push_back(
      {segment, static_cast<std::int16_t>(first_layer), static_cast<std::int16_t>(layers), 1, chunk});
}

void StepBuilder::append_edge(Program& program, SegmentId segment, int chunk, int layer) const {
  LH_ASSERT(segment >= 0, "a step without pipeline edges");
  add_once(program, segment, layer, chunk);
}

void StepBuilder::append_head(Program& program, int chunk, int layers, bool last) const {
  if (!whole_model()) return add_once(program, segments_.scope_output, layers, chunk);
  if (model_.tied_embeddings) add_once(program, segments_.gather_tied_table, layers, chunk);
  add_once(program, segments_.gather_head, layers, chunk);
  add_once(program, last ? segments_.head_last : segments_.head, layers, chunk);
}

void StepBuilder::append_backward(Program& program, int chunk, int first_layer, int layers, bool context, bool last,
                                  int scheme) const {
  LH_ASSERT(!context || scheme == 0, "scheme {} with a context", scheme);
  const int last_layer = first_layer + layers - 1;
  add_once(program, segments_.gather_layer_backward, last_layer, chunk);
  const LayerSegments of = layer_segments(scheme);
  const SegmentId plain = last ? of.backward_last : of.backward;
  const SegmentId with_context = last ? segments_.layer_backward_context_last : segments_.layer_backward_context;
  program.blocks.push_back({context ? with_context : plain, static_cast<std::int16_t>(last_layer),
                            static_cast<std::int16_t>(layers), -1, chunk});
}

void StepBuilder::append_embedding_backward(Program& program, int chunk, bool last) const {
  const SegmentId whole = last ? segments_.embedding_backward_last : segments_.embedding_backward;
  add_once(program, whole_model() ? whole : segments_.scope_input_grad, 0, chunk);
}

void StepBuilder::append_chunk(Program& program, int chunk, bool last, int scheme) const {
  const int layers = static_cast<int>(model_.layers);
  append_embedding(program, chunk);
  append_forward(program, chunk, 0, layers, false, scheme);
  append_head(program, chunk, layers, last);
  if (!options_.training.backward) return;
  append_backward(program, chunk, 0, layers, false, last, scheme);
  append_embedding_backward(program, chunk, last);
}

void StepBuilder::append_prepare(Program& program, int first_layer, int layers, bool embedding, bool head) const {
  if (segments_.prepare_layer < 0) return;
  if (embedding) add_once(program, segments_.prepare_embedding, 0, kNoChunk);
  program.blocks.push_back({segments_.prepare_layer, static_cast<std::int16_t>(first_layer),
                            static_cast<std::int16_t>(layers), 1, kNoChunk});
  if (head) add_once(program, segments_.prepare_head, 0, kNoChunk);
}

void StepBuilder::append_drop(Program& program, int first_layer, int layers) const {
  if (segments_.drop_layer < 0) return;
  program.blocks.push_back(
      {segments_.drop_layer, static_cast<std::int16_t>(first_layer), static_cast<std::int16_t>(layers), 1, kNoChunk});
}

void StepBuilder::append_optimizer(Program& program, int first_layer, int layers, bool embedding, bool head) const {
  if (segments_.optimizer_layer < 0) return;
  if (head) add_once(program, segments_.optimizer_head, 0, kNoChunk);
  program.blocks.push_back({segments_.optimizer_layer, static_cast<std::int16_t>(first_layer),
                            static_cast<std::int16_t>(layers), 1, kNoChunk});
  if (embedding) add_once(program, segments_.optimizer_embedding, 0, kNoChunk);
}

}  // namespace longhaul
