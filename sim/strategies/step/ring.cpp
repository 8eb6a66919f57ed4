#include "sim/strategies/step/ring.h"

#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Of a rank's own block, whose pieces stand document by document: a query shard that sees nothing before itself begins
// one.
int document_count(const PieceList& own) {
  int count = 0;
  for (std::size_t i = 0; i < own.pieces.size(); ++i) {
    const Piece& piece = own.pieces[i];
    const bool follows = i > 0 && own.pieces[i - 1].q_row == piece.q_row;
    if (piece.q_row == piece.k_row && !follows) ++count;
  }
  return count;
}

}  // namespace

RingScheme::RingScheme(int group_size, RingFlavor flavor, bool masks, std::string role_name)
    : group_size_(group_size), flavor_(flavor), masks_(masks), role_name_(std::move(role_name)) {
  LH_ASSERT(group_size >= 1 && group_size <= kMostRingRanks, "a ring of {} ranks", group_size);
}

void RingScheme::declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) {
  builder_ = &builder;
  model_ = model;
  tensors_ = tensors;
  role_ = builder.role(role_name_);
  const RowMapSlot rows = builder.schedule.tensors[static_cast<std::size_t>(tensors.qkv)].rows;
  lse_ = builder.tensor("lse", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  steps_.resize(static_cast<std::size_t>(group_size_));
  for (Step& step : steps_) step.pieces = builder.piece_slot();
  steps_.front().block_map = rows;
  if (alone()) return;
  output_part_ =
      builder.tensor("attention_output_part", rows, model.q_width(), ElementType::kBf16, MemoryCategory::kActivations);
  lse_part_ = builder.tensor("lse_part", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  to_next_ = builder.exchange_slot();
  if (te()) {
    to_previous_ = builder.exchange_slot();
    for (EventSlot& slot : attended_by_) slot = builder.event();
  }
  no_rows_ = builder.row_list_slot();
  for (EventSlot* slot : {&packed_, &attended_, &summed_, &sum_arrived_, &arrived_[0], &arrived_[1]}) {
    *slot = builder.event();
  }
  for (int t = 0; t < group_size_; ++t) {
    Step& step = steps_[static_cast<std::size_t>(t)];
    const auto add = [&](const std::string& name, MemoryCategory category) {
      return builder.tensor(name + std::to_string(t), step.block_map, 2 * model.kv_width(), ElementType::kBf16,
                            category);
    };
    if (t > 0) {
      step.block_map = builder.row_map_slot();
      step.query_rows = builder.row_list_slot();
      step.key_rows = builder.row_list_slot();
    }
    if (t > 0 || te() || framework()) step.block_grad = add("kv_block_grad_", MemoryCategory::kKeyValue);
    step.block = add("kv_block_", t == 0 ? MemoryCategory::kCommunication : MemoryCategory::kKeyValue);
    step.sum_grad = builder.tensor("kv_sum_grad_" + std::to_string(t), step.block_map, 2 * model.kv_width(),
                                   framework() ? ElementType::kFp32 : ElementType::kBf16, MemoryCategory::kKeyValue);
  }
  if (framework()) declare_framework();
  if (padded()) declare_padded();
}

// K (0) or V (1) columns of a qkv-shaped tensor.
View RingScheme::own_columns(const TensorRef& qkv, Access access, int which) const {
  return columns_of(qkv, access, model_.q_width() + which * model_.kv_width(), model_.kv_width());
}

// K (0) or V (1) columns of a block.
View RingScheme::block_columns(const TensorRef& block, Access access, int which, RowListSlot rows) const {
  return columns_of(block, access, which * model_.kv_width(), model_.kv_width(), rows);
}

TensorRef RingScheme::block(int step, std::uint8_t instance) const {
  return te() && last(step) ? layer_tensor(at(step).block, instance) : chunk_tensor(at(step).block, instance);
}

void RingScheme::pack(SegmentWriter& w, const TensorRef& qkv, std::uint8_t instance) const {
  const TensorRef first = block(0, instance);
  w.move("kv_pack", {own_columns(qkv, Access::kRead, 0), block_columns(first, Access::kWrite, 0),
                     own_columns(qkv, Access::kRead, 1), block_columns(first, Access::kWrite, 1)})
      .acquires({first})
      .records(packed_);
}

// Sends the block of `step` on and receives that of the next step. The first send block is read by nothing else.
void RingScheme::hop(SegmentWriter& w, int step, std::uint8_t instance) const {
  const TensorRef sent = block(step, instance);
  const TensorRef next = block(step + 1, instance);
  w.collective("kv_hop", CollectiveKind::kExchange, role_,
               {{builder_->whole(sent, Access::kRead), builder_->whole(next, Access::kWrite), to_next_}})
      .acquires({next})
      .records(arrived(step + 1));
  if (step == 0) w.waits(packed_).releases({sent});
  if (te()) {
    if (step > 1) w.waits(attended(step));  // that of step - 2
  } else if (step > 0) {
    w.waits(attended_);  // the attention of step - 1: its block's buffer takes what comes
  }
}

// The block of `step` goes once it was sent on and attended to. Behind the hop on its stream; nothing is launched.
void RingScheme::free_block(SegmentWriter& w, int step, std::uint8_t instance) const {
  const TensorRef used = block(step, instance);
  w.elementwise("kv_free", Function::kZero, {columns_of(used, Access::kWrite, 0, 2 * model_.kv_width(), no_rows_)})
      .on(builder_->stream_of(role_))
      .waits(attended_)
      .releases({used});
}

Op RingScheme::attention_op(int step, const ForwardMode& mode, const TensorRef& block) const {
  const TensorRef qkv = layer_tensor(tensors_.qkv, mode.instance);
  Op op;
  op.pieces = at(step).pieces;
  op.q_heads = model_.q_heads;
  op.kv_heads = model_.kv_heads;
  op.head_dim = model_.head_dim;
  op.q = columns_of(qkv, Access::kRead, 0, model_.q_width(), at(step).query_rows);
  KeyValueOperand operand;
  if (block.kind < 0) {
    operand.key = own_columns(qkv, Access::kRead, 0);
    operand.value = own_columns(qkv, Access::kRead, 1);
  } else {
    operand.key = block_columns(block, Access::kRead, 0, at(step).key_rows);
    operand.value = block_columns(block, Access::kRead, 1, at(step).key_rows);
  }
  op.key_values = {operand};
  return op;
}

void RingScheme::attend(SegmentWriter& w, int step, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const RowListSlot rows = at(step).query_rows;
  const bool first = step == 0;
  const TensorRef total_output = layer_tensor(tensors_.attention_output, i);
  const TensorRef total_lse = layer_tensor(lse_, i);
  const TensorRef output = first ? total_output : chunk_tensor(output_part_);
  const TensorRef lse = first ? total_lse : chunk_tensor(lse_part_);
  const auto outputs = [&](const TensorRef& ref, Access access) {
    return columns_of(ref, access, 0, model_.q_width(), rows);
  };
  const auto lses = [&](const TensorRef& ref, Access access) {
    return columns_of(ref, access, 0, model_.q_heads, rows);
  };
  const TensorRef at_hand = first ? TensorRef{} : block(step, i);
  if (padded() && !alone()) take_operands(w, step, mode, at_hand);
  Op op = attention_op(step, mode, at_hand);
  op.o = outputs(output, Access::kWrite);
  op.lse = lses(lse, Access::kWrite);
  w.attention("attention", std::move(op)).acquires({output, lse});
  if (!first) w.waits(arrived(step));
  if (!first && last(step)) w.releases_if(!te() || !mode.keep, {block(step, i)});
  if (!last(step)) w.records(attended(step));
  if (padded() && !alone()) put_output(w, step, output);
  if (first) return;
  w.merge("attention_merge", outputs(output, Access::kRead), lses(lse, Access::kRead),
          outputs(total_output, Access::kAccumulate), lses(total_lse, Access::kAccumulate))
      .releases({output, lse});
}

void RingScheme::forward(SegmentWriter& w, const ForwardMode& mode) {
  if (framework() && !alone()) return forward_framework(w, mode);
  const std::uint8_t i = mode.instance;
  if (!alone()) pack(w, layer_tensor(tensors_.qkv, i), i);
  for (int step = 0; step < group_size_; ++step) {
    if (!last(step)) hop(w, step, i);
    attend(w, step, mode);
    if (last(step)) w.releases_if(!mode.keep, {layer_tensor(tensors_.qkv, i), layer_tensor(lse_, i)});
    if (step > 0 && !last(step) && !te()) free_block(w, step, i);
    if (last(step) && te()) {  // after all hops, in order of arrival
      for (int block_step = 1; block_step < step; ++block_step) w.releases({block(block_step, i)});
    }
  }
}

TensorRef RingScheme::sum_gradient(int step) const {
  return step == group_size_ ? chunk_tensor(at(0).sum_grad, 1) : chunk_tensor(at(step).sum_grad);
}

Op RingScheme::backward_op(int step, const ForwardMode& mode, const TensorRef& block, bool first) const {
  const std::uint8_t i = mode.instance;
  const RowListSlot rows = at(step).query_rows;
  Op op = attention_op(step, mode, block);
  op.o = columns_of(layer_tensor(tensors_.attention_output, i), Access::kRead, 0, model_.q_width(), rows);
  op.lse = columns_of(layer_tensor(lse_, i), Access::kRead, 0, model_.q_heads, rows);
  op.o_gradient = columns_of(chunk_tensor(tensors_.attention_output_grad), Access::kRead, 0, model_.q_width(), rows);
  op.q_gradient = columns_of(chunk_tensor(tensors_.qkv_grad), first ? Access::kWrite : Access::kAccumulate, 0,
                             model_.q_width(), rows);
  return op;
}

void RingScheme::attend_backward(SegmentWriter& w, int step, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const bool first = step == 0;
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  const TensorRef block_grad = first ? sum_gradient(0) : chunk_tensor(at(step).block_grad);
  Op op = backward_op(step, mode, first ? TensorRef{} : block(step, kBackwardInstance), first);
  KeyValueOperand& operand = op.key_values.front();
  if (alone()) {
    operand.key_gradient = own_columns(qkv_grad, Access::kWrite, 0);
    operand.value_gradient = own_columns(qkv_grad, Access::kWrite, 1);
  } else {
    operand.key_gradient = block_columns(block_grad, Access::kWrite, 0, at(step).key_rows);
    operand.value_gradient = block_columns(block_grad, Access::kWrite, 1, at(step).key_rows);
  }
  w.attention("attention_backward", std::move(op));
  if (first) w.acquires({qkv_grad});
  if (!alone()) w.acquires({block_grad}).records(attended_);
  if (!first) w.waits(arrived(step)).releases_if(last(step), {block(step, kBackwardInstance)});
  w.releases_if(last(step), {layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i),
                             layer_tensor(lse_, i), chunk_tensor(tensors_.attention_output_grad)});
}

// Adds the gradient of this step's block to the sum that came with the hop before.
void RingScheme::add_gradients(SegmentWriter& w, int step) const {
  const TensorRef block_grad = chunk_tensor(at(step).block_grad);
  const std::int64_t width = 2 * model_.kv_width();
  w.elementwise("kv_grad_add", Function::kAccumulate,
                {columns_of(block_grad, Access::kRead, 0, width, at(step).key_rows),
                 columns_of(sum_gradient(step), Access::kAccumulate, 0, width, at(step).key_rows)})
      .waits(sum_arrived_)
      .releases({block_grad})
      .records(summed_);
}

void RingScheme::hop_gradients(SegmentWriter& w, int step) const {
  const TensorRef sum = sum_gradient(step);
  const TensorRef next = sum_gradient(step + 1);
  w.collective("kv_grad_hop", CollectiveKind::kExchange, role_,
               {{builder_->whole(sum, Access::kRead), builder_->whole(next, Access::kWrite), to_next_}})
      .waits(step == 0 && !framework() ? attended_ : summed_)
      .acquires({next})
      .releases({sum})
      .records(sum_arrived_);
}

void RingScheme::backward(SegmentWriter& w, const ForwardMode& mode) {
  if (te() && !alone()) return backward_te(w, mode);
  if (framework() && !alone()) return backward_framework(w, mode);
  if (!alone()) pack(w, layer_tensor(tensors_.qkv, mode.instance), kBackwardInstance);
  for (int step = 0; step < group_size_; ++step) {
    if (!last(step)) hop(w, step, kBackwardInstance);
    attend_backward(w, step, mode);
    if (alone()) return;
    if (step > 0) add_gradients(w, step);
    if (step > 0 && !last(step)) free_block(w, step, kBackwardInstance);
    hop_gradients(w, step);
  }
  const TensorRef home = sum_gradient(group_size_);
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  w.move("kv_grad_unpack", {block_columns(home, Access::kRead, 0), own_columns(qkv_grad, Access::kWrite, 0),
                            block_columns(home, Access::kRead, 1), own_columns(qkv_grad, Access::kWrite, 1)})
      .waits(sum_arrived_)
      .releases({home});
}

void RingScheme::set_shape(ShapeSet& shape, int member, const std::vector<RingStepShape>& steps) const {
  LH_ASSERT(static_cast<int>(steps.size()) == group_size_, "{} steps in a ring of {}", steps.size(), group_size_);
  const std::int64_t rows = steps.front().block_rows->rows;
  RowListPtr most_half = make_row_list({});
  for (int t = 0; t < group_size_; ++t) {
    const RingStepShape& step = steps[static_cast<std::size_t>(t)];
    LH_ASSERT(step.block_rows->rows == rows, "blocks of {} and {} rows", rows, step.block_rows->rows);
    shape.pieces[static_cast<std::size_t>(at(t).pieces)] = step.pieces;
    if (t == 0) continue;  // all own rows
    shape.row_maps[static_cast<std::size_t>(at(t).block_map)] = step.block_rows;
    shape.row_lists[static_cast<std::size_t>(at(t).query_rows)] = step.query_rows;
    shape.row_lists[static_cast<std::size_t>(at(t).key_rows)] = step.key_rows;
    if (!framework() && !padded()) continue;
    const auto half = [&](const RowListPtr& list) { return list->rows < rows ? list : make_row_list({}); };
    shape.row_lists[static_cast<std::size_t>(at(t).half_queries)] = half(step.query_rows);
    shape.row_lists[static_cast<std::size_t>(at(t).half_keys)] = half(step.key_rows);
    if (half(step.query_rows)->rows > most_half->rows) most_half = half(step.query_rows);
  }
  if (framework() && !alone()) {
    shape.row_lists[static_cast<std::size_t>(half_queries_)] = most_half;
    const PieceListPtr& documents = steps.front().pieces;
    const bool several = document_count(*documents) > 1;
    shape.pieces[static_cast<std::size_t>(half_pieces_)] = several ? documents : make_piece_list({});
  }
  if (alone()) return;
  const RowListPtr all = make_row_list({{0, rows}});
  const std::int64_t width = 2 * model_.kv_width();
  auto list = std::make_shared<ExchangeList>();
  list->push_back({(member + 1) % group_size_, all, 0, width, nullptr, 0, 0});
  list->push_back({(member + group_size_ - 1) % group_size_, nullptr, 0, 0, all, 0, width});
  shape.exchanges[static_cast<std::size_t>(to_next_)] = std::move(list);
  if (!te()) return;
  auto reverse = std::make_shared<ExchangeList>();
  reverse->push_back({(member + group_size_ - 1) % group_size_, all, 0, width, nullptr, 0, 0});
  reverse->push_back({(member + 1) % group_size_, nullptr, 0, 0, all, 0, width});
  shape.exchanges[static_cast<std::size_t>(to_previous_)] = std::move(reverse);
}

}  // namespace longhaul
