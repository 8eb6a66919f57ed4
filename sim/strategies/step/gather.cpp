#include "sim/strategies/step/gather.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {

bool GatherScheme::any_local() const {
  return std::any_of(stages_.begin(), stages_.end(), [](const StageConfig& stage) { return stage.local; });
}

bool GatherScheme::first_use(int gather, int stage, bool backward) const {
  return stage == (backward && !backward_in_order() ? at(gather).last_stage : at(gather).first_stage);
}

bool GatherScheme::last_use(int gather, int stage, bool backward) const {
  return stage == (backward && !backward_in_order() ? at(gather).first_stage : at(gather).last_stage);
}

std::vector<int> GatherScheme::backward_order() const {
  std::vector<int> order(stages_.size());
  std::iota(order.begin(), order.end(), 0);
  if (!backward_in_order()) std::reverse(order.begin(), order.end());
  return order;
}

void GatherScheme::declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) {
  builder_ = &builder;
  model_ = model;
  tensors_ = tensors;
  role_ = builder.role("context");
  packed_ = builder.event();
  const RowMapSlot rows = builder.schedule.tensors[static_cast<std::size_t>(tensors.qkv)].rows;
  lse_ = builder.tensor("lse", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  if (stages_.size() > 1 && stage_rows_ != StageRows::kOwn) {
    output_part_ = builder.tensor("attention_output_part", rows, model.q_width(), ElementType::kBf16,
                                  MemoryCategory::kActivations);
    lse_part_ = builder.tensor("lse_part", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    pieces_.push_back(builder.piece_slot());
    const bool listed = stage_rows_ == StageRows::kOwn || (stage_rows_ == StageRows::kSome && stage > 0);
    stage_rows_slots_.push_back(listed ? builder.row_list_slot() : kAllRows);
  }
  for (std::size_t gather = 0; gather < configs_.size(); ++gather) declare_gather(static_cast<int>(gather));
}

void GatherScheme::declare_gather(int index) {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  Gather gather{};
  gather.send_rows = builder_->row_list_slot();
  gather.sent_part = builder_->row_list_slot();
  gather.padding_part = builder_->row_list_slot();
  gather.send_map = builder_->row_map_slot();
  gather.gathered_map = builder_->row_map_slot();
  gather.arrived = builder_->event();
  gather.returned_event = builder_->event();
  if (config.exact) {
    gather.cast = builder_->exchange_slot();
    gather.reduce = builder_->exchange_slot();
  }
  for (int stage = static_cast<int>(stages_.size()) - 1; stage >= 0; --stage) {
    const std::vector<int>& used = stages_[static_cast<std::size_t>(stage)].gathers;
    if (std::find(used.begin(), used.end(), index) == used.end()) continue;
    gather.first_stage = stage;
    gather.last_stage = std::max(gather.last_stage, stage);
  }
  LH_ASSERT(gather.first_stage >= 0, "no stage uses gather {}", index);
  if (config.ordered) {
    gather.ordered_map = builder_->row_map_slot();
    gather.common_source = builder_->row_list_slot();
    gather.common_target = builder_->row_list_slot();
    gather.gathered_source = builder_->row_list_slot();
    gather.gathered_target = builder_->row_list_slot();
    gather.local_source = builder_->row_list_slot();
    gather.local_target = builder_->row_list_slot();
  }
  const std::int64_t width = config.packed ? 2 * model_.kv_width() : model_.kv_width();
  for (int t = 0; t < tensors_of(index); ++t) {
    const std::string name = config.name + (config.packed ? "" : (t == 0 ? "_k" : "_v"));
    const auto add = [&](const char* suffix, RowMapSlot rows, MemoryCategory category) {
      return builder_->tensor(name + suffix, rows, width, ElementType::kBf16, category);
    };
    gather.send[t] = add("_send", gather.send_map, MemoryCategory::kCommunication);
    gather.returned[t] = add("_grad_returned", gather.send_map, MemoryCategory::kCommunication);
    gather.gathered[t] = add("_gathered", gather.gathered_map, MemoryCategory::kKeyValue);
    gather.gathered_grad[t] = add("_gathered_grad", gather.gathered_map, MemoryCategory::kKeyValue);
    if (!config.ordered) continue;
    gather.ordered[t] = add("_ordered", gather.ordered_map, MemoryCategory::kKeyValue);
    gather.ordered_grad[t] = add("_ordered_grad", gather.ordered_map, MemoryCategory::kKeyValue);
  }
  gathers_.push_back(gather);
}

// K (0) or V (1) columns of a qkv-shaped tensor.
View GatherScheme::local_columns(const TensorRef& qkv, Access access, int which, RowListSlot rows) const {
  return columns_of(qkv, access, model_.q_width() + which * model_.kv_width(), model_.kv_width(), rows);
}

// K (0) or V (1) columns of a gather's tensor: halves of one, or one each.
View GatherScheme::gathered_columns(const TensorKindId (&kinds)[2], int gather, std::uint8_t instance, bool layered,
                                    Access access, int which, RowListSlot rows) const {
  const bool packed = configs_[static_cast<std::size_t>(gather)].packed;
  const TensorKindId kind = kinds[packed ? 0 : which];
  const TensorRef ref = layered ? layer_tensor(kind, instance) : chunk_tensor(kind, instance);
  return columns_of(ref, access, packed ? which * model_.kv_width() : 0, model_.kv_width(), rows);
}

// Packs the rows to send and starts the all-gather(s).
void GatherScheme::send(SegmentWriter& w, int index, std::uint8_t instance) const {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  for (int t = 0; t < tensors_of(index); ++t) {
    const TensorRef buffer = chunk_tensor(gather.send[t]);
    const TensorRef gathered = layer_tensor(gather.gathered[t], instance);
    const std::string name = config.name + (config.packed ? "" : (t == 0 ? "_k" : "_v"));
    w.elementwise(name + "_pad", Function::kZero,
                  {columns_of(buffer, Access::kWrite, 0, builder_->columns(gather.send[t]), gather.padding_part)})
        .acquires({buffer});
    std::vector<View> pairs;
    for (int which = 0; which < 2; ++which) {
      if (!config.packed && which != t) continue;
      pairs.push_back(local_columns(qkv, Access::kRead, which, gather.send_rows));
      pairs.push_back(gathered_columns(gather.send, index, 0, false, Access::kWrite, which, gather.sent_part));
    }
    w.move(name + "_pack", std::move(pairs)).records(packed_);
    const CollectiveKind kind = config.exact ? CollectiveKind::kExchange : CollectiveKind::kAllGather;
    w.collective(name + (config.exact ? "_cast" : "_gather"), kind, role_,
                 {{builder_->whole(buffer, Access::kRead), builder_->whole(gathered, Access::kWrite), gather.cast}})
        .waits(packed_)
        .acquires({gathered})
        .releases({buffer})
        .records(gather.arrived);
  }
}

// Copies what was gathered, and own rows of the same documents, into token order. Exact: in two launches, since a rank
// may receive nothing.
void GatherScheme::order(SegmentWriter& w, int index, std::uint8_t instance) const {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  std::vector<View> pairs, own;
  for (int which = 0; which < 2; ++which) {
    for (const auto& [source, target] : {std::pair(gather.common_source, gather.common_target),
                                         std::pair(gather.gathered_source, gather.gathered_target)}) {
      pairs.push_back(gathered_columns(gather.gathered, index, instance, true, Access::kRead, which, source));
      pairs.push_back(gathered_columns(gather.ordered, index, instance, true, Access::kWrite, which, target));
    }
    std::vector<View>& into = config.exact ? own : pairs;
    into.push_back(local_columns(qkv, Access::kRead, which, gather.local_source));
    into.push_back(gathered_columns(gather.ordered, index, instance, true, Access::kWrite, which, gather.local_target));
  }
  if (config.exact) {
    w.move(config.name + "_order_own", std::move(own));
    for (int t = 0; t < tensors_of(index); ++t) w.acquires({layer_tensor(gather.ordered[t], instance)});
  }
  w.move(config.name + "_order", std::move(pairs)).waits(gather.arrived);
  for (int t = 0; t < tensors_of(index); ++t) {
    if (!config.exact) w.acquires({layer_tensor(gather.ordered[t], instance)});
    w.releases({layer_tensor(gather.gathered[t], instance)});
  }
}

Op GatherScheme::attention_op(int stage, std::uint8_t instance) const {
  const StageConfig& config = stages_[static_cast<std::size_t>(stage)];
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  Op op;
  op.pieces = pieces_[static_cast<std::size_t>(stage)];
  op.q_heads = model_.q_heads;
  op.kv_heads = model_.kv_heads;
  op.head_dim = model_.head_dim;
  op.q = columns_of(qkv, Access::kRead, 0, model_.q_width(), rows_of(stage));
  if (config.local) {
    KeyValueOperand own;
    own.key = local_columns(qkv, Access::kRead, 0);
    own.value = local_columns(qkv, Access::kRead, 1);
    op.key_values.push_back(own);
  }
  for (const int index : config.gathers) {
    const Gather& gather = gathers_[static_cast<std::size_t>(index)];
    const auto& kinds = configs_[static_cast<std::size_t>(index)].ordered ? gather.ordered : gather.gathered;
    KeyValueOperand operand;
    operand.key = gathered_columns(kinds, index, instance, true, Access::kRead, 0);
    operand.value = gathered_columns(kinds, index, instance, true, Access::kRead, 1);
    op.key_values.push_back(operand);
  }
  return op;
}

void GatherScheme::attend(SegmentWriter& w, int stage, const ForwardMode& mode) const {
  const StageConfig& stage_config = stages_[static_cast<std::size_t>(stage)];
  const std::uint8_t i = mode.instance;
  const RowListSlot rows = rows_of(stage);
  const TensorRef total_output = layer_tensor(tensors_.attention_output, i);
  const TensorRef total_lse = layer_tensor(lse_, i);
  const TensorRef output = merged(stage) ? chunk_tensor(output_part_) : total_output;
  const TensorRef lse = merged(stage) ? chunk_tensor(lse_part_) : total_lse;
  const auto outputs = [&](const TensorRef& ref, Access access) {
    return columns_of(ref, access, 0, model_.q_width(), rows);
  };
  const auto lses = [&](const TensorRef& ref, Access access) {
    return columns_of(ref, access, 0, model_.q_heads, rows);
  };
  for (const int gather : stage_config.gathers) {
    if (config_of(gather).ordered && first_use(gather, stage, false)) order(w, gather, i);
  }
  Op op = attention_op(stage, i);
  op.o = outputs(output, Access::kWrite);
  op.lse = lses(lse, Access::kWrite);
  w.attention(stage_config.name, std::move(op));
  if (stage == 0 || merged(stage)) w.acquires({output, lse});
  for (const int index : stage_config.gathers) {
    const bool ordered = config_of(index).ordered;
    if (!ordered && first_use(index, stage, false)) w.waits(at(index).arrived);
    const bool ends = last_use(index, stage, false) && (!mode.keep || config_of(index).regather);
    for (int t = 0; t < tensors_of(index); ++t) {
      w.releases_if(ends, {layer_tensor(ordered ? at(index).ordered[t] : at(index).gathered[t], i)});
    }
  }
  if (!merged(stage)) return;
  w.merge(stage_config.name + "_merge", outputs(output, Access::kRead), lses(lse, Access::kRead),
          outputs(total_output, Access::kAccumulate), lses(total_lse, Access::kAccumulate))
      .releases({output, lse});
}

void GatherScheme::forward(SegmentWriter& w, const ForwardMode& mode) {
  for (std::size_t gather = 0; gather < gathers_.size(); ++gather) send(w, static_cast<int>(gather), mode.instance);
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) attend(w, static_cast<int>(stage), mode);
  w.releases_if(!mode.keep, {layer_tensor(tensors_.qkv, mode.instance), layer_tensor(lse_, mode.instance)});
}

// Gradients of the stage's keys and values: of own rows into qkv_grad, of gathered ones into their own tensors.
void GatherScheme::write_operand_gradients(Op& op, int stage) const {
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  std::size_t operand = 0;
  if (stages_[static_cast<std::size_t>(stage)].local) {
    op.key_values[operand].key_gradient = local_columns(qkv_grad, Access::kWrite, 0);
    op.key_values[operand].value_gradient = local_columns(qkv_grad, Access::kWrite, 1);
    ++operand;
  }
  for (const int index : stages_[static_cast<std::size_t>(stage)].gathers) {
    const auto& kinds = config_of(index).ordered ? at(index).ordered_grad : at(index).gathered_grad;
    const Access access = first_use(index, stage, true) ? Access::kWrite : Access::kAccumulate;
    op.key_values[operand].key_gradient = gathered_columns(kinds, index, 0, false, access, 0);
    op.key_values[operand].value_gradient = gathered_columns(kinds, index, 0, false, access, 1);
    ++operand;
  }
}

void GatherScheme::attend_backward(SegmentWriter& w, int stage, const ForwardMode& mode, bool first) const {
  const StageConfig& stage_config = stages_[static_cast<std::size_t>(stage)];
  const std::uint8_t i = mode.instance;
  const RowListSlot rows = rows_of(stage);
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  for (const int gather : stage_config.gathers) {
    if (config_of(gather).ordered && config_of(gather).regather && first_use(gather, stage, true)) order(w, gather, i);
  }
  Op op = attention_op(stage, i);
  op.o = columns_of(layer_tensor(tensors_.attention_output, i), Access::kRead, 0, model_.q_width(), rows);
  op.lse = columns_of(layer_tensor(lse_, i), Access::kRead, 0, model_.q_heads, rows);
  op.o_gradient = columns_of(chunk_tensor(tensors_.attention_output_grad), Access::kRead, 0, model_.q_width(), rows);
  const Access q_access = first || stage_rows_ == StageRows::kOwn ? Access::kWrite : Access::kAccumulate;
  op.q_gradient = columns_of(qkv_grad, q_access, 0, model_.q_width(), rows);
  write_operand_gradients(op, stage);
  w.attention(stage_config.name + "_backward", std::move(op));
  if (first) w.acquires({qkv_grad});
  for (const int index : stage_config.gathers) {
    const Gather& gather = at(index);
    const bool ordered = config_of(index).ordered;
    const bool begins = first_use(index, stage, true);
    if (begins && config_of(index).regather && !ordered) w.waits(gather.arrived);
    for (int t = 0; t < tensors_of(index); ++t) {
      if (begins) w.acquires({chunk_tensor(ordered ? gather.ordered_grad[t] : gather.gathered_grad[t])});
      w.releases_if(last_use(index, stage, true), {layer_tensor(ordered ? gather.ordered[t] : gather.gathered[t], i)});
    }
  }
}

// Puts the gradient into the gathered layout if it stands in token order, and starts the reduce-scatter(s).
void GatherScheme::return_gradients(SegmentWriter& w, int index) const {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  for (int t = 0; t < tensors_of(index); ++t) {
    const TensorRef grad = chunk_tensor(gather.gathered_grad[t]);
    if (!config.ordered) continue;
    w.elementwise(config.name + "_zero_grad", Function::kZero, {builder_->whole(grad, Access::kWrite)})
        .acquires({grad});
  }
  if (config.ordered) {
    std::vector<View> pairs;
    for (int which = 0; which < 2; ++which) {
      for (const auto& [source, target] : {std::pair(gather.common_source, gather.common_target),
                                           std::pair(gather.gathered_source, gather.gathered_target)}) {
        pairs.push_back(gathered_columns(gather.ordered_grad, index, 0, false, Access::kRead, which, target));
        pairs.push_back(gathered_columns(gather.gathered_grad, index, 0, false, Access::kWrite, which, source));
      }
    }
    w.move(config.name + "_unorder", std::move(pairs));
  }
  w.records(packed_);  // the attention op or the copy that completed the gradient
  for (int t = 0; t < tensors_of(index); ++t) {
    const TensorRef grad = chunk_tensor(gather.gathered_grad[t]);
    const TensorRef returned = chunk_tensor(gather.returned[t]);
    const CollectiveKind kind = config.exact ? CollectiveKind::kExchange : CollectiveKind::kReduceScatter;
    w.collective(config.name + "_reduce", kind, role_,
                 {{builder_->whole(grad, Access::kRead), builder_->whole(returned, Access::kWrite), gather.reduce}})
        .waits(packed_)
        .acquires({returned})
        .releases({grad})
        .records(gather.returned_event);
  }
}

// Adds what came back, and the own part of a gradient in token order, to qkv_grad. Exact: in two launches.
void GatherScheme::collect_gradients(SegmentWriter& w, int index) const {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  // Without a local stage the gathers together cover every row, each once.
  const Access access = any_local() ? Access::kAccumulate : Access::kWrite;
  std::vector<View> pairs, own;
  for (int which = 0; which < 2; ++which) {
    pairs.push_back(gathered_columns(gather.returned, index, 0, false, Access::kRead, which, gather.sent_part));
    pairs.push_back(local_columns(qkv_grad, access, which, gather.send_rows));
  }
  if (config.ordered) {
    std::vector<View>& into = config.exact ? own : pairs;
    for (int which = 0; which < 2; ++which) {
      into.push_back(gathered_columns(gather.ordered_grad, index, 0, false, Access::kRead, which, gather.local_target));
      into.push_back(local_columns(qkv_grad, Access::kAccumulate, which, gather.local_source));
    }
  }
  if (!own.empty()) {
    w.move(config.name + "_grad_own", std::move(own));
    for (int t = 0; t < tensors_of(index); ++t) w.releases({chunk_tensor(gather.ordered_grad[t])});
  }
  w.move(config.name + "_grad_unpack", std::move(pairs)).waits(gather.returned_event);
  for (int t = 0; t < tensors_of(index); ++t) {
    w.releases({chunk_tensor(gather.returned[t])});
    if (config.ordered && !config.exact) w.releases({chunk_tensor(gather.ordered_grad[t])});
  }
}

void GatherScheme::backward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  for (int gather = 0; gather < static_cast<int>(gathers_.size()); ++gather) {
    if (config_of(gather).regather) send(w, gather, i);
  }
  const std::vector<int> order = backward_order();
  for (const int stage : order) {
    attend_backward(w, stage, mode, stage == order.front());
    if (stage == order.back()) {
      w.releases({layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i), layer_tensor(lse_, i),
                  chunk_tensor(tensors_.attention_output_grad)});
    }
    for (const int gather : stages_[static_cast<std::size_t>(stage)].gathers) {
      if (last_use(gather, stage, true)) return_gradients(w, gather);
    }
  }
  for (std::size_t gather = 0; gather < gathers_.size(); ++gather) collect_gradients(w, static_cast<int>(gather));
}

// Exact gathers: who gets which rows of the send buffer, and the reverse for the gradients.
void GatherScheme::set_exchanges(ShapeSet& shape, int index, const GatherShape& spec) const {
  const std::int64_t width = builder_->columns(at(index).send[0]);
  auto cast = std::make_shared<ExchangeList>();
  auto reduce = std::make_shared<ExchangeList>();
  for (const PeerRows& peer : spec.peers) {
    const bool sends = peer.send != nullptr && peer.send->rows > 0;
    const bool receives = peer.receive != nullptr && peer.receive->rows > 0;
    const RowListPtr send = sends ? peer.send : nullptr;
    const RowListPtr receive = receives ? peer.receive : nullptr;
    const std::int64_t sent = sends ? width : 0, received = receives ? width : 0;
    cast->push_back({peer.peer, send, 0, sent, receive, 0, received});
    reduce->push_back({peer.peer, receive, 0, received, send, 0, sent});
  }
  shape.exchanges[static_cast<std::size_t>(at(index).cast)] = std::move(cast);
  shape.exchanges[static_cast<std::size_t>(at(index).reduce)] = std::move(reduce);
}

void GatherScheme::set_gather(ShapeSet& shape, int index, const GatherShape& spec) const {
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  if (config_of(index).exact) set_exchanges(shape, index, spec);
  LH_ASSERT(spec.send_rows->rows <= spec.padded_rows, "{} rows in a buffer of {}", spec.send_rows->rows,
            spec.padded_rows);
  const auto list = [&](RowListSlot slot, const RowListPtr& rows) {
    shape.row_lists[static_cast<std::size_t>(slot)] = rows;
  };
  list(gather.send_rows, spec.send_rows);
  list(gather.sent_part, make_row_list({{0, spec.send_rows->rows}}));
  list(gather.padding_part, make_row_list({{spec.send_rows->rows, spec.padded_rows - spec.send_rows->rows}}));
  // No op reads tokens of the send buffer: its rows count as padding.
  shape.row_maps[static_cast<std::size_t>(gather.send_map)] =
      make_row_map({{-1, TokenView::kClean, 0, spec.padded_rows}});
  shape.row_maps[static_cast<std::size_t>(gather.gathered_map)] = spec.gathered_rows;
  if (!configs_[static_cast<std::size_t>(index)].ordered) return;
  shape.row_maps[static_cast<std::size_t>(gather.ordered_map)] = spec.ordered_rows;
  list(gather.common_source, spec.common_source);
  list(gather.common_target, spec.common_target);
  list(gather.gathered_source, spec.gathered_source);
  list(gather.gathered_target, spec.gathered_target);
  list(gather.local_source, spec.local_source);
  list(gather.local_target, spec.local_target);
}

void GatherScheme::set_pieces(ShapeSet& shape, int stage, PieceListPtr pieces) const {
  shape.pieces[static_cast<std::size_t>(pieces_[static_cast<std::size_t>(stage)])] = std::move(pieces);
}

void GatherScheme::set_stage_rows(ShapeSet& shape, int stage, RowListPtr rows) const {
  LH_ASSERT(rows_of(stage) != kAllRows, "stage {} has all rows", stage);
  shape.row_lists[static_cast<std::size_t>(rows_of(stage))] = std::move(rows);
}

}  // namespace longhaul
