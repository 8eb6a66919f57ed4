#include "sim/strategies/step/gather.h"

#include <algorithm>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {

bool GatherScheme::any_local() const {
  return std::any_of(stages_.begin(), stages_.end(), [](const StageConfig& stage) { return stage.local; });
}

void GatherScheme::declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) {
  builder_ = &builder;
  model_ = model;
  tensors_ = tensors;
  role_ = builder.role("context");
  packed_ = builder.event();
  const RowMapSlot rows = builder.schedule.tensors[static_cast<std::size_t>(tensors.qkv)].rows;
  lse_ = builder.tensor("lse", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  if (stages_.size() > 1) {
    output_part_ = builder.tensor("attention_output_part", rows, model.q_width(), ElementType::kBf16,
                                  MemoryCategory::kActivations);
    lse_part_ = builder.tensor("lse_part", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) pieces_.push_back(builder.piece_slot());
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
    w.collective(name + "_gather", CollectiveKind::kAllGather, role_,
                 {{builder_->whole(buffer, Access::kRead), builder_->whole(gathered, Access::kWrite), -1}})
        .waits(packed_)
        .acquires({gathered})
        .releases({buffer})
        .records(gather.arrived);
  }
}

// Copies what was gathered, and own rows of the same documents, into token order.
void GatherScheme::order(SegmentWriter& w, int index, std::uint8_t instance) const {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  std::vector<View> pairs;
  for (int which = 0; which < 2; ++which) {
    for (const auto& [source, target] : {std::pair(gather.common_source, gather.common_target),
                                         std::pair(gather.gathered_source, gather.gathered_target)}) {
      pairs.push_back(gathered_columns(gather.gathered, index, instance, true, Access::kRead, which, source));
      pairs.push_back(gathered_columns(gather.ordered, index, instance, true, Access::kWrite, which, target));
    }
    pairs.push_back(local_columns(qkv, Access::kRead, which, gather.local_source));
    pairs.push_back(
        gathered_columns(gather.ordered, index, instance, true, Access::kWrite, which, gather.local_target));
  }
  w.move(config.name + "_order", std::move(pairs)).waits(gather.arrived);
  for (int t = 0; t < tensors_of(index); ++t) {
    w.acquires({layer_tensor(gather.ordered[t], instance)}).releases({layer_tensor(gather.gathered[t], instance)});
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
  op.q = columns_of(qkv, Access::kRead, 0, model_.q_width());
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
  const StageConfig& config = stages_[static_cast<std::size_t>(stage)];
  const std::uint8_t i = mode.instance;
  const bool first = stage == 0;
  const TensorRef output = first ? layer_tensor(tensors_.attention_output, i) : chunk_tensor(output_part_);
  const TensorRef lse = first ? layer_tensor(lse_, i) : chunk_tensor(lse_part_);
  for (const int gather : config.gathers) {
    if (configs_[static_cast<std::size_t>(gather)].ordered) order(w, gather, i);
  }
  Op op = attention_op(stage, i);
  op.o = builder_->whole(output, Access::kWrite);
  op.lse = builder_->whole(lse, Access::kWrite);
  w.attention(config.name, std::move(op)).acquires({output, lse});
  for (const int index : config.gathers) {
    const Gather& gather = gathers_[static_cast<std::size_t>(index)];
    const bool ordered = configs_[static_cast<std::size_t>(index)].ordered;
    if (!ordered) w.waits(gather.arrived);
    for (int t = 0; t < tensors_of(index); ++t) {
      w.releases_if(!mode.keep, {layer_tensor(ordered ? gather.ordered[t] : gather.gathered[t], i)});
    }
  }
  if (first) return;
  w.merge(config.name + "_merge", builder_->whole(output, Access::kRead), builder_->whole(lse, Access::kRead),
          builder_->whole(layer_tensor(tensors_.attention_output, i), Access::kAccumulate),
          builder_->whole(layer_tensor(lse_, i), Access::kAccumulate))
      .releases({output, lse});
}

void GatherScheme::forward(SegmentWriter& w, const ForwardMode& mode) {
  for (std::size_t gather = 0; gather < gathers_.size(); ++gather) send(w, static_cast<int>(gather), mode.instance);
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) attend(w, static_cast<int>(stage), mode);
  w.releases_if(!mode.keep, {layer_tensor(tensors_.qkv, mode.instance), layer_tensor(lse_, mode.instance)});
}

void GatherScheme::attend_backward(SegmentWriter& w, int stage, const ForwardMode& mode, bool first) const {
  const StageConfig& config = stages_[static_cast<std::size_t>(stage)];
  const std::uint8_t i = mode.instance;
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  Op op = attention_op(stage, i);
  op.o = builder_->whole(layer_tensor(tensors_.attention_output, i), Access::kRead);
  op.lse = builder_->whole(layer_tensor(lse_, i), Access::kRead);
  op.o_gradient = builder_->whole(chunk_tensor(tensors_.attention_output_grad), Access::kRead);
  op.q_gradient = columns_of(qkv_grad, first ? Access::kWrite : Access::kAccumulate, 0, model_.q_width());
  std::size_t operand = 0;
  if (config.local) {
    op.key_values[operand].key_gradient = local_columns(qkv_grad, Access::kWrite, 0);
    op.key_values[operand].value_gradient = local_columns(qkv_grad, Access::kWrite, 1);
    ++operand;
  }
  for (const int index : config.gathers) {
    const Gather& gather = gathers_[static_cast<std::size_t>(index)];
    const auto& kinds = configs_[static_cast<std::size_t>(index)].ordered ? gather.ordered_grad : gather.gathered_grad;
    op.key_values[operand].key_gradient = gathered_columns(kinds, index, 0, false, Access::kWrite, 0);
    op.key_values[operand].value_gradient = gathered_columns(kinds, index, 0, false, Access::kWrite, 1);
    ++operand;
  }
  w.attention(config.name + "_backward", std::move(op));
  if (first) w.acquires({qkv_grad});
  for (const int index : config.gathers) {
    const Gather& gather = gathers_[static_cast<std::size_t>(index)];
    const bool ordered = configs_[static_cast<std::size_t>(index)].ordered;
    for (int t = 0; t < tensors_of(index); ++t) {
      w.acquires({chunk_tensor(ordered ? gather.ordered_grad[t] : gather.gathered_grad[t])})
          .releases({layer_tensor(ordered ? gather.ordered[t] : gather.gathered[t], i)});
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
    w.collective(config.name + "_reduce", CollectiveKind::kReduceScatter, role_,
                 {{builder_->whole(grad, Access::kRead), builder_->whole(returned, Access::kWrite), -1}})
        .waits(packed_)
        .acquires({returned})
        .releases({grad})
        .records(gather.returned_event);
  }
}

// Adds what came back, and the own part of a gradient in token order, to qkv_grad.
void GatherScheme::collect_gradients(SegmentWriter& w, int index) const {
  const GatherConfig& config = configs_[static_cast<std::size_t>(index)];
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  // Without a local stage the gathers together cover every row, each once.
  const Access access = any_local() ? Access::kAccumulate : Access::kWrite;
  std::vector<View> pairs;
  for (int which = 0; which < 2; ++which) {
    pairs.push_back(gathered_columns(gather.returned, index, 0, false, Access::kRead, which, gather.sent_part));
    pairs.push_back(local_columns(qkv_grad, access, which, gather.send_rows));
  }
  if (config.ordered) {
    for (int which = 0; which < 2; ++which) {
      pairs.push_back(
          gathered_columns(gather.ordered_grad, index, 0, false, Access::kRead, which, gather.local_target));
      pairs.push_back(local_columns(qkv_grad, Access::kAccumulate, which, gather.local_source));
    }
  }
  w.move(config.name + "_grad_unpack", std::move(pairs)).waits(gather.returned_event);
  for (int t = 0; t < tensors_of(index); ++t) {
    w.releases({chunk_tensor(gather.returned[t])});
    if (config.ordered) w.releases({chunk_tensor(gather.ordered_grad[t])});
  }
}

void GatherScheme::backward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  const int last = static_cast<int>(stages_.size()) - 1;
  for (int stage = last; stage >= 0; --stage) {
    attend_backward(w, stage, mode, stage == last);
    if (stage == 0) {
      w.releases({layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i), layer_tensor(lse_, i),
                  chunk_tensor(tensors_.attention_output_grad)});
    }
    for (const int gather : stages_[static_cast<std::size_t>(stage)].gathers) return_gradients(w, gather);
  }
  for (std::size_t gather = 0; gather < gathers_.size(); ++gather) collect_gradients(w, static_cast<int>(gather));
}

void GatherScheme::set_gather(ShapeSet& shape, int index, const GatherShape& spec) const {
  const Gather& gather = gathers_[static_cast<std::size_t>(index)];
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

}  // namespace longhaul
