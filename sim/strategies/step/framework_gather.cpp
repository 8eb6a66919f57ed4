#include "sim/strategies/step/framework_gather.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

const char* const kGathered[2] = {"k", "v"};

// Slices stay apart where they adjoin: the host makes each (EagerKernel::kJoinedSlices).
RowListPtr slice_list(const std::vector<RowSpan>& slices) {
  auto list = std::make_shared<RowList>();
  for (const RowSpan& span : slices) {
    if (span.count == 0) continue;
    list->rows += span.count;
    list->spans.push_back(span);
  }
  return list;
}

}  // namespace

FrameworkGatherScheme::FrameworkGatherScheme(const FrameworkGatherConfig& config) : config_(config) {
  config_.call_slices = std::clamp<std::size_t>(config_.call_slices, 1, kMostSliceLaunches);
}

void FrameworkGatherScheme::declare(ScheduleBuilder& builder, const ModelShape& model,
                                    const AttentionTensors& tensors) {
  builder_ = &builder;
  model_ = model;
  tensors_ = tensors;
  role_ = builder.role("context");
  for (EventSlot* event : {&packed_, &arrived_, &returned_event_}) *event = builder.event();
  for (RowMapSlot* map : {&send_map_, &gathered_map_, &ordered_map_}) *map = builder.row_map_slot();
  for (RowListSlot* list : {&send_rows_, &sent_part_, &padding_part_, &gathered_zero_}) {
    *list = builder.row_list_slot();
  }
  gathered_slices_ = declare_slices();
  if (config_.own_rows) local_slices_ = declare_slices();
  const RowMapSlot rows = builder.schedule.tensors[static_cast<std::size_t>(tensors.qkv)].rows;
  lse_ = builder.tensor("lse", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  const auto add = [&](const std::string& name, RowMapSlot map, std::int64_t width, MemoryCategory category) {
    return builder.tensor(name, map, width, ElementType::kBf16, category);
  };
  output_parts_ = add("attention_output_parts", rows, model.q_width(), MemoryCategory::kActivations);
  dq_parts_ = add("dq_parts", rows, model.q_width(), MemoryCategory::kActivations);
  if (config_.padded) row_copy_ = add("row_copy", rows, model.q_width(), MemoryCategory::kActivations);
  for (int t = 0; t < buffers(); ++t) {
    const std::string name = config_.packed ? "kv" : kGathered[t];
    const std::int64_t width = config_.packed ? 2 * model.kv_width() : model.kv_width();
    send_[t] = add(name + "_send", send_map_, width, MemoryCategory::kCommunication);
    returned_[t] = add(name + "_grad_returned", send_map_, width, MemoryCategory::kCommunication);
    gathered_[t] = add(name + "_gathered", gathered_map_, width, MemoryCategory::kKeyValue);
    gathered_grad_[t] = add(name + "_gathered_grad", gathered_map_, width, MemoryCategory::kKeyValue);
    if (config_.listed) listed_[t] = add(name + "_listed", gathered_map_, width, MemoryCategory::kKeyValue);
  }
  for (int t = 0; t < 2; ++t) {
    const std::string name = kGathered[t];
    ordered_[t] = add(name + "_ordered", ordered_map_, model.kv_width(), MemoryCategory::kKeyValue);
    ordered_grad_[t] = add(name + "_ordered_grad", ordered_map_, model.kv_width(), MemoryCategory::kKeyValue);
    if (!config_.padded) continue;
    padded_grad_[t] = add(name + "_padded_grad", ordered_map_, model.kv_width(), MemoryCategory::kKeyValue);
  }
  for (int i = 0; i < kFrameworkCalls; ++i) {
    Call& one = calls_[i];
    one.pieces = builder.piece_slot();
    one.query_rows = builder.row_list_slot();
    one.slices = builder.row_list_slot();
    one.keys = builder.row_map_slot();
    for (std::size_t launch = 0; launch < config_.call_slices; ++launch) one.added.push_back(declare_slices());
    for (int t = 0; t < 2; ++t) {
      const std::string name = std::string(kGathered[t]) + "_call" + std::to_string(i);
      if (config_.sliced) one.copy[t] = add(name, one.keys, model.kv_width(), MemoryCategory::kKeyValue);
      one.grad[t] = add(name + "_grad", one.keys, model.kv_width(), MemoryCategory::kKeyValue);
    }
  }
}

FrameworkGatherScheme::Slices FrameworkGatherScheme::declare_slices() const {
  return {builder_->row_list_slot(), builder_->row_list_slot()};
}

// K (0) or V (1) columns of a qkv-shaped tensor.
View FrameworkGatherScheme::own_columns(const TensorRef& qkv, Access access, int which, RowListSlot rows) const {
  return columns_of(qkv, access, model_.q_width() + which * model_.kv_width(), model_.kv_width(), rows);
}

// K (0) or V (1) columns of a buffer: halves of one tensor, or one each.
View FrameworkGatherScheme::buffer_columns(const TensorKindId (&kinds)[2], std::uint8_t instance, bool layered,
                                           Access access, int which, RowListSlot rows) const {
  const TensorKindId kind = kinds[config_.packed ? 0 : which];
  const TensorRef ref = layered ? layer_tensor(kind, instance) : chunk_tensor(kind, instance);
  return columns_of(ref, access, config_.packed ? which * model_.kv_width() : 0, model_.kv_width(), rows);
}

View FrameworkGatherScheme::whole_of(TensorKindId kind, std::uint8_t instance, bool layered, Access access,
                                     RowListSlot rows) const {
  const TensorRef ref = layered ? layer_tensor(kind, instance) : chunk_tensor(kind, instance);
  return columns_of(ref, access, 0, builder_->columns(kind), rows);
}

void FrameworkGatherScheme::send(SegmentWriter& w, std::uint8_t instance) const {
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  for (int t = 0; t < buffers(); ++t) {
    const std::string name = config_.packed ? "kv" : kGathered[t];
    const TensorRef buffer = chunk_tensor(send_[t]);
    const TensorRef gathered = layer_tensor(gathered_[t], instance);
    w.elementwise(name + "_pad", Function::kZero, {whole_of(send_[t], 0, false, Access::kWrite, padding_part_)})
        .eager(EagerKernel::kZeros)
        .acquires({buffer});
    std::vector<View> pairs;
    for (int which = 0; which < 2; ++which) {
      if (!config_.packed && which != t) continue;
      pairs.push_back(own_columns(qkv, Access::kRead, which, send_rows_));
      pairs.push_back(buffer_columns(send_, 0, false, Access::kWrite, which, sent_part_));
    }
    w.move(name + "_pack", std::move(pairs)).eager(pack_kernel()).records(packed_);
    w.collective(name + "_gather", CollectiveKind::kAllGather, role_,
                 {{builder_->whole(buffer, Access::kRead), builder_->whole(gathered, Access::kWrite), -1}})
        .waits(packed_)
        .acquires({gathered})
        .releases({buffer})
        .records(arrived_);
  }
}

void FrameworkGatherScheme::order(SegmentWriter& w, std::uint8_t instance) const {
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  const auto& source = config_.listed ? listed_ : gathered_;
  if (config_.listed) {
    for (int t = 0; t < buffers(); ++t) {
      w.move("gather_list", {whole_of(gathered_[t], instance, true, Access::kRead),
                             whole_of(listed_[t], instance, true, Access::kWrite)})
          .waits(arrived_)
          .acquires({layer_tensor(listed_[t], instance)})
          .releases({layer_tensor(gathered_[t], instance)});
    }
  }
  std::vector<View> pairs, own;
  for (int which = 0; which < 2; ++which) {
    pairs.push_back(buffer_columns(source, instance, true, Access::kRead, which, gathered_slices_.from));
    pairs.push_back(whole_of(ordered_[which], instance, true, Access::kWrite, gathered_slices_.to));
    if (!config_.own_rows) continue;
    own.push_back(own_columns(qkv, Access::kRead, which, local_slices_.from));
    own.push_back(whole_of(ordered_[which], instance, true, Access::kWrite, local_slices_.to));
  }
  w.move("kv_order", std::move(pairs))
      .eager(slice_kernel())
      .waits(arrived_)
      .acquires({layer_tensor(ordered_[0], instance), layer_tensor(ordered_[1], instance)});
  if (config_.own_rows) w.move("kv_order_own", std::move(own)).eager(slice_kernel());
  for (int t = 0; t < buffers(); ++t) w.releases({layer_tensor(source[t], instance)});
}

Op FrameworkGatherScheme::attention_op(int index, std::uint8_t instance) const {
  const Call& one = call(index);
  Op op;
  op.pieces = one.pieces;
  op.q_heads = model_.q_heads;
  op.kv_heads = model_.kv_heads;
  op.head_dim = model_.head_dim;
  op.q = columns_of(layer_tensor(tensors_.qkv, instance), Access::kRead, 0, model_.q_width(), one.query_rows);
  KeyValueOperand operand;
  if (config_.sliced) {
    operand.key = whole_of(one.copy[0], instance, true, Access::kRead);
    operand.value = whole_of(one.copy[1], instance, true, Access::kRead);
  } else {
    operand.key = whole_of(ordered_[0], instance, true, Access::kRead, one.slices);
    operand.value = whole_of(ordered_[1], instance, true, Access::kRead, one.slices);
  }
  op.key_values = {operand};
  return op;
}

// K and V of a call, taken out of the ordered rows.
void FrameworkGatherScheme::copy_keys(SegmentWriter& w, int index, std::uint8_t i) const {
  const Call& one = call(index);
  if (!config_.sliced) return;
  std::vector<View> pairs;
  for (int which = 0; which < 2; ++which) {
    pairs.push_back(whole_of(ordered_[which], i, true, Access::kRead, one.slices));
    pairs.push_back(whole_of(one.copy[which], i, true, Access::kWrite));
  }
  w.move("kv_slices" + std::to_string(index), std::move(pairs))
      .eager(slice_kernel())
      .acquires({layer_tensor(one.copy[0], i), layer_tensor(one.copy[1], i)});
}

// `padded`: the call's rows of a tensor as wide as Q, copied out and taken from their padding.
void FrameworkGatherScheme::take_rows(SegmentWriter& w, const char* label, const TensorRef& from, int index) const {
  if (!config_.padded) return;
  for (int copy = 0; copy < 2; ++copy) {
    w.move(label, {columns_of(from, Access::kRead, 0, model_.q_width(), call(index).query_rows),
                   whole_of(row_copy_, 0, false, Access::kWrite, call(index).query_rows)})
        .acquires({chunk_tensor(row_copy_)})
        .releases({chunk_tensor(row_copy_)});
  }
}

// `padded`: the call's rows put back into zeros; what follows copies them among all rows.
void FrameworkGatherScheme::put_rows(SegmentWriter& w, const char* label, TensorKindId from, int index) const {
  if (!config_.padded) return;
  const RowListSlot rows = call(index).query_rows;
  w.elementwise("pad_zero", Function::kZero, {whole_of(row_copy_, 0, false, Access::kWrite, rows)})
      .eager(EagerKernel::kZeros)
      .acquires({chunk_tensor(row_copy_)});
  w.move(label, {whole_of(from, 0, false, Access::kRead, rows), whole_of(row_copy_, 0, false, Access::kWrite, rows)})
      .eager(EagerKernel::kExpandedRows)
      .releases({chunk_tensor(row_copy_)});
}

void FrameworkGatherScheme::attend(SegmentWriter& w, int index, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const Call& one = call(index);
  const std::string number = std::to_string(index);
  copy_keys(w, index, i);
  take_rows(w, "q_unpad", layer_tensor(tensors_.qkv, i), index);
  Op op = attention_op(index, i);
  op.o = whole_of(output_parts_, 0, false, Access::kWrite, one.query_rows);
  op.lse = columns_of(layer_tensor(lse_, i), Access::kWrite, 0, model_.q_heads, one.query_rows);
  w.attention("attention" + number, std::move(op)).stalls(longest_stall());
  if (index == 0) w.acquires({chunk_tensor(output_parts_), layer_tensor(lse_, i)});
  if (config_.sliced) {
    w.releases_if(!mode.keep || config_.regather, {layer_tensor(one.copy[0], i), layer_tensor(one.copy[1], i)});
  }
  put_rows(w, "output_pad", output_parts_, index);
}

void FrameworkGatherScheme::forward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  send(w, i);
  order(w, i);
  for (int index = 0; index < kFrameworkCalls; ++index) attend(w, index, mode);
  const TensorRef output = layer_tensor(tensors_.attention_output, i);
  w.move("outputs_join", {whole_of(output_parts_, 0, false, Access::kRead), builder_->whole(output, Access::kWrite)})
      .acquires({output})
      .releases({chunk_tensor(output_parts_)})
      .eager(config_.padded ? EagerKernel::kNone : EagerKernel::kJoinedSlices)
      .releases_if(!mode.keep, {layer_tensor(tensors_.qkv, i), layer_tensor(lse_, i)})
      .releases_if(!mode.keep || config_.regather, {layer_tensor(ordered_[0], i), layer_tensor(ordered_[1], i)});
}

// `padded`: dK and dV of the call put into zeros of all rows, and these added.
void FrameworkGatherScheme::add_padded(SegmentWriter& w, int index) const {
  const Call& one = call(index);
  for (int which = 0; which < 2; ++which) {
    const TensorRef padded = chunk_tensor(padded_grad_[which]);
    w.elementwise("kv_grad_pad_zero", Function::kZero, {builder_->whole(padded, Access::kWrite)})
        .eager(EagerKernel::kZeros)
        .acquires({padded});
    w.move("kv_grad_pad", {whole_of(one.grad[which], 0, false, Access::kRead),
                           whole_of(padded_grad_[which], 0, false, Access::kWrite, one.slices)})
        .eager(EagerKernel::kExpandedRows);
    w.elementwise(std::string("d") + kGathered[which] + "_add", Function::kAccumulate,
                  {builder_->whole(padded, Access::kRead),
                   builder_->whole(chunk_tensor(ordered_grad_[which]), Access::kAccumulate)})
        .releases({padded});
  }
  w.releases({chunk_tensor(one.grad[0]), chunk_tensor(one.grad[1])});
}

// dK and dV of all rows += those of the call, a launch a slice and tensor.
void FrameworkGatherScheme::add_slices(SegmentWriter& w, int index) const {
  const Call& one = call(index);
  for (const Slices& added : one.added) {
    for (int which = 0; which < 2; ++which) {
      w.elementwise(std::string("d") + kGathered[which] + "_add", Function::kAccumulate,
                    {whole_of(one.grad[which], 0, false, Access::kRead, added.from),
                     whole_of(ordered_grad_[which], 0, false, Access::kAccumulate, added.to)})
          .eager(EagerKernel::kAddedSlice);
    }
  }
  w.releases({chunk_tensor(one.grad[0]), chunk_tensor(one.grad[1])});
}

void FrameworkGatherScheme::attend_backward(SegmentWriter& w, int index, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const Call& one = call(index);
  const std::string number = std::to_string(index);
  if (config_.regather) copy_keys(w, index, i);
  take_rows(w, "q_unpad", layer_tensor(tensors_.qkv, i), index);
  take_rows(w, "output_unpad", layer_tensor(tensors_.attention_output, i), index);
  take_rows(w, "do_unpad", chunk_tensor(tensors_.attention_output_grad), index);
  w.elementwise("dq_zero" + number, Function::kZero, {whole_of(dq_parts_, 0, false, Access::kWrite, one.query_rows)})
      .eager(EagerKernel::kZeros);
  if (index == 0) w.acquires({chunk_tensor(dq_parts_)});
  for (int which = 0; which < 2; ++which) {
    w.elementwise(std::string("d") + kGathered[which] + "_zero" + number, Function::kZero,
                  {whole_of(one.grad[which], 0, false, Access::kWrite)})
        .eager(EagerKernel::kZeros)
        .acquires({chunk_tensor(one.grad[which])});
  }
  Op op = attention_op(index, i);
  op.o = columns_of(layer_tensor(tensors_.attention_output, i), Access::kRead, 0, model_.q_width(), one.query_rows);
  op.lse = columns_of(layer_tensor(lse_, i), Access::kRead, 0, model_.q_heads, one.query_rows);
  op.o_gradient =
      columns_of(chunk_tensor(tensors_.attention_output_grad), Access::kRead, 0, model_.q_width(), one.query_rows);
  op.q_gradient = whole_of(dq_parts_, 0, false, Access::kWrite, one.query_rows);
  op.key_values.front().key_gradient = whole_of(one.grad[0], 0, false, Access::kWrite);
  op.key_values.front().value_gradient = whole_of(one.grad[1], 0, false, Access::kWrite);
  w.attention("attention" + number + "_backward", std::move(op)).stalls(longest_stall());
  if (config_.sliced) w.releases({layer_tensor(one.copy[0], i), layer_tensor(one.copy[1], i)});
  put_rows(w, "dq_pad", dq_parts_, index);
  w.move("dq_join" + number,
         {whole_of(dq_parts_, 0, false, Access::kRead, one.query_rows),
          columns_of(chunk_tensor(tensors_.qkv_grad), Access::kWrite, 0, model_.q_width(), one.query_rows)});
  if (config_.padded) {
    add_padded(w, index);
  } else {
    add_slices(w, index);
  }
}

void FrameworkGatherScheme::return_gradients(SegmentWriter& w) const {
  for (int t = 0; t < buffers(); ++t) {
    w.elementwise("gathered_zero", Function::kZero,
                  {whole_of(gathered_grad_[t], 0, false, Access::kWrite, gathered_zero_)})
        .eager(EagerKernel::kZeros)
        .acquires({chunk_tensor(gathered_grad_[t])});
  }
  std::vector<View> pairs;
  for (int which = 0; which < 2; ++which) {
    pairs.push_back(whole_of(ordered_grad_[which], 0, false, Access::kRead, gathered_slices_.to));
    pairs.push_back(buffer_columns(gathered_grad_, 0, false, Access::kWrite, which, gathered_slices_.from));
  }
  w.move("dkv_unorder", std::move(pairs)).eager(slice_kernel()).records(packed_);
  for (int t = 0; t < buffers(); ++t) {
    const TensorRef grad = chunk_tensor(gathered_grad_[t]);
    const TensorRef returned = chunk_tensor(returned_[t]);
    w.collective(std::string(config_.packed ? "kv" : kGathered[t]) + "_reduce", CollectiveKind::kReduceScatter, role_,
                 {{builder_->whole(grad, Access::kRead), builder_->whole(returned, Access::kWrite), -1}})
        .waits(packed_)
        .acquires({returned})
        .releases({grad})
        .records(returned_event_);
  }
}

void FrameworkGatherScheme::backward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  if (config_.regather) {
    send(w, i);
    order(w, i);
  }
  // Own rows: padding among them gets no other gradient of keys and values.
  const std::int64_t width = model_.q_width() + (config_.own_rows ? 2 * model_.kv_width() : 0);
  w.elementwise("dq_all_zero", Function::kZero, {columns_of(qkv_grad, Access::kWrite, 0, width)})
      .eager(EagerKernel::kZeros)
      .acquires({qkv_grad});
  for (int which = 0; which < 2; ++which) {
    w.elementwise(std::string("d") + kGathered[which] + "_all_zero", Function::kZero,
                  {whole_of(ordered_grad_[which], 0, false, Access::kWrite)})
        .eager(EagerKernel::kZeros)
        .acquires({chunk_tensor(ordered_grad_[which])});
  }
  for (int index = 0; index < kFrameworkCalls; ++index) attend_backward(w, index, mode);
  w.releases({layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i), layer_tensor(lse_, i),
              layer_tensor(ordered_[0], i), layer_tensor(ordered_[1], i), chunk_tensor(dq_parts_),
              chunk_tensor(tensors_.attention_output_grad)});
  return_gradients(w);
  std::vector<View> own, pairs;
  for (int which = 0; which < 2; ++which) {
    if (config_.own_rows) {
      own.push_back(whole_of(ordered_grad_[which], 0, false, Access::kRead, local_slices_.to));
      own.push_back(own_columns(qkv_grad, Access::kWrite, which, local_slices_.from));
    }
    pairs.push_back(buffer_columns(returned_, 0, false, Access::kRead, which, sent_part_));
    pairs.push_back(own_columns(qkv_grad, config_.own_rows ? Access::kAccumulate : Access::kWrite, which, send_rows_));
  }
  if (config_.own_rows) w.move("dkv_own", std::move(own)).eager(slice_kernel());
  w.releases({chunk_tensor(ordered_grad_[0]), chunk_tensor(ordered_grad_[1])});
  w.move("kv_grad_unpack", std::move(pairs)).eager(pack_kernel()).waits(returned_event_);
  for (int t = 0; t < buffers(); ++t) w.releases({chunk_tensor(returned_[t])});
}

void FrameworkGatherScheme::set_slices(ShapeSet& shape, const Slices& slots, std::span<const SliceCopy> copies) const {
  std::vector<RowSpan> from, to;
  for (const SliceCopy& copy : copies) {
    from.push_back(copy.from);
    to.push_back(copy.to);
  }
  shape.row_lists[static_cast<std::size_t>(slots.from)] = slice_list(from);
  shape.row_lists[static_cast<std::size_t>(slots.to)] = slice_list(to);
}

void FrameworkGatherScheme::set_call(ShapeSet& shape, int index, const FrameworkCallShape& spec,
                                     const RowMap& ordered) const {
  const Call& one = call(index);
  shape.pieces[static_cast<std::size_t>(one.pieces)] = spec.pieces;
  shape.row_lists[static_cast<std::size_t>(one.query_rows)] = spec.query_rows;
  shape.row_lists[static_cast<std::size_t>(one.slices)] = slice_list(spec.slices);
  std::vector<RowRun> keys;
  std::vector<SliceCopy> added;
  std::int64_t row = 0;
  for (const RowSpan& span : spec.slices) {
    added.push_back({{row, span.count}, span});
    std::int64_t begin = 0;  // of the run among the ordered rows
    for (const RowRun& run : ordered.runs) {
      const std::int64_t first = std::max(span.begin, begin);
      const std::int64_t end = std::min(span.begin + span.count, begin + run.count);
      if (first < end) keys.push_back({run.document, run.view, run.first + first - begin, end - first});
      begin += run.count;
    }
    row += span.count;
  }
  // A slice a launch; the last launch takes what is left.
  const std::span<const SliceCopy> all(added);
  for (std::size_t launch = 0; launch < one.added.size(); ++launch) {
    const std::size_t begin = std::min(launch, all.size());
    const std::size_t end = launch + 1 < one.added.size() ? std::min(launch + 1, all.size()) : all.size();
    set_slices(shape, one.added[launch], all.subspan(begin, end - begin));
  }
  shape.row_maps[static_cast<std::size_t>(one.keys)] = make_row_map(std::move(keys));
}

void FrameworkGatherScheme::set_shape(ShapeSet& shape, const FrameworkGatherShape& spec) const {
  LH_ASSERT(spec.send_rows->rows <= spec.padded_rows, "{} rows in a buffer of {}", spec.send_rows->rows,
            spec.padded_rows);
  const auto list = [&](RowListSlot slot, const RowListPtr& rows) {
    shape.row_lists[static_cast<std::size_t>(slot)] = rows;
  };
  list(send_rows_, spec.send_rows);
  list(sent_part_, make_row_list({{0, spec.send_rows->rows}}));
  list(padding_part_, make_row_list({{spec.send_rows->rows, spec.padded_rows - spec.send_rows->rows}}));
  set_slices(shape, gathered_slices_, spec.gathered);
  if (config_.own_rows) set_slices(shape, local_slices_, spec.local);
  list(gathered_zero_, spec.gathered_zero);
  // No op reads tokens of the send buffer: its rows count as padding.
  shape.row_maps[static_cast<std::size_t>(send_map_)] = make_row_map({{-1, TokenView::kClean, 0, spec.padded_rows}});
  shape.row_maps[static_cast<std::size_t>(gathered_map_)] = spec.gathered_rows;
  shape.row_maps[static_cast<std::size_t>(ordered_map_)] = spec.ordered_rows;
  for (int index = 0; index < kFrameworkCalls; ++index) {
    set_call(shape, index, spec.calls[index], *spec.ordered_rows);
  }
}

}  // namespace longhaul
