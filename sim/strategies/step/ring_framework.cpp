// The ring as ring-flash-attention's eager code runs it, copy by copy (ring.h).
#include "sim/strategies/step/ring.h"

namespace longhaul {

void RingScheme::declare_framework() {
  ScheduleBuilder& builder = *builder_;
  const RowMapSlot rows = at(0).block_map;
  const auto add = [&](const char* name, std::int64_t width, ElementType type) {
    return builder.tensor(name, rows, width, type, MemoryCategory::kActivations);
  };
  output_sum_ = add("attention_output_sum", model_.q_width(), ElementType::kFp32);
  dq_sum_ = add("dq_sum", model_.q_width(), ElementType::kFp32);
  dq_part_ = add("dq_part", model_.q_width(), ElementType::kBf16);
  query_copy_ = add("query_copy", model_.q_width(), ElementType::kBf16);
  output_copy_ = add("output_copy", model_.q_width(), ElementType::kFp32);
  key_copy_ = add("kv_copy", 2 * model_.kv_width(), ElementType::kBf16);
  gradient_copy_ = add("kv_grad_copy", 2 * model_.kv_width(), ElementType::kFp32);
  half_queries_ = builder.row_list_slot();
  half_pieces_ = builder.piece_slot();
  for (std::size_t t = 1; t < steps_.size(); ++t) {
    steps_[t].half_queries = builder.row_list_slot();
    steps_[t].half_keys = builder.row_list_slot();
  }
}

// An index copy of the listed rows; none where the list is empty.
void RingScheme::copy_halves(SegmentWriter& w, const char* label, const TensorRef& from, TensorKindId copy,
                             std::int64_t width, RowListSlot rows) const {
  const TensorRef to = chunk_tensor(copy);
  w.move(label, {columns_of(from, Access::kRead, 0, width, rows), columns_of(to, Access::kWrite, 0, width, rows)})
      .acquires({to})
      .releases({to});
}

void RingScheme::take_halves(SegmentWriter& w, const char* label, const TensorRef& from, TensorKindId copy,
                             std::int64_t width, RowListSlot rows) const {
  if (!masks_) return;
  copy_halves(w, label, from, copy, width, rows);
  w.eager(EagerKernel::kIndexedRows);
}

void RingScheme::put_halves(SegmentWriter& w, const char* label, const TensorRef& from, TensorKindId copy,
                            std::int64_t width, RowListSlot rows) const {
  copy_halves(w, label, from, copy, width, rows);
  if (masks_) w.eager(EagerKernel::kExpandedRows);
}

// Masks index each tensor apart, where an op here copies two side by side or none that is small: the host's part.
void RingScheme::masked_indices(SegmentWriter& w, HostStall stall) const {
  if (masks_) w.stalls(stall);
}

void RingScheme::copy_half_keys(SegmentWriter& w, int step, std::uint8_t instance) const {
  if (step == 0 || !masks_) return;
  take_halves(w, "kv_half", block(step, instance), key_copy_, 2 * model_.kv_width(), at(step).half_keys);
  masked_indices(w, HostStall::kMaskedIndex);  // keys, and values
  w.waits(arrived(step));
}

void RingScheme::attend_framework(SegmentWriter& w, int step, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const bool first = step == 0;
  const RowListSlot rows = at(step).query_rows;
  const std::int64_t width = model_.q_width();
  const TensorRef part = chunk_tensor(output_part_), sum = chunk_tensor(output_sum_);
  const TensorRef lse = first ? layer_tensor(lse_, i) : chunk_tensor(lse_part_);
  Op op = attention_op(step, mode, first ? TensorRef{} : block(step, i));
  op.o = columns_of(part, Access::kWrite, 0, width, rows);
  op.lse = columns_of(lse, Access::kWrite, 0, model_.q_heads, rows);
  w.attention("attention", std::move(op)).acquires({part, lse});
  if (!first) w.waits(arrived(step)).releases_if(last(step), {block(step, i)});
  if (!last(step)) w.records(attended_);
  if (first) {
    w.elementwise("output_to_fp32", Function::kCast,
                  {builder_->whole(part, Access::kRead), builder_->whole(sum, Access::kWrite)})
        .eager(EagerKernel::kCastToFp32)
        .acquires({sum})
        .releases({part});
    return;
  }
  take_halves(w, "output_half", sum, output_copy_, width, at(step).half_queries);
  masked_indices(w, HostStall::kMaskedIndex);  // of the log-sum-exps
  w.merge("attention_merge", columns_of(part, Access::kRead, 0, width, rows),
          columns_of(lse, Access::kRead, 0, model_.q_heads, rows), columns_of(sum, Access::kAccumulate, 0, width, rows),
          columns_of(layer_tensor(lse_, i), Access::kAccumulate, 0, model_.q_heads, rows))
      .eager(EagerKernel::kMergedPartials)
      .releases({part, lse});
  put_halves(w, "output_scatter", sum, output_copy_, width, at(step).half_queries);
  masked_indices(w, HostStall::kMaskedIndices);  // of the output and of them
}

void RingScheme::forward_framework(SegmentWriter& w, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const TensorRef qkv = layer_tensor(tensors_.qkv, i);
  pack(w, qkv, i);
  take_halves(w, "q_half", qkv, query_copy_, model_.q_width(), half_queries_);
  if (masks_) w.stalls(HostStall::kHalfMasks, half_pieces_);
  for (int step = 0; step < group_size_; ++step) {
    if (!last(step)) hop(w, step, i);
    copy_half_keys(w, step, i);
    attend_framework(w, step, mode);
    if (step > 0 && !last(step)) free_block(w, step, i);
  }
  const TensorRef sum = chunk_tensor(output_sum_), output = layer_tensor(tensors_.attention_output, i);
  w.elementwise("output_to_bf16", Function::kCast,
                {builder_->whole(sum, Access::kRead), builder_->whole(output, Access::kWrite)})
      .eager(EagerKernel::kCastToBf16)
      .acquires({output})
      .releases({sum})
      .releases_if(!mode.keep, {qkv, layer_tensor(lse_, i)});
}

void RingScheme::attend_backward_framework(SegmentWriter& w, int step, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const bool first = step == 0;
  const RowListSlot rows = at(step).query_rows;
  const std::int64_t width = model_.q_width();
  const TensorRef block_grad = chunk_tensor(at(step).block_grad), part = chunk_tensor(dq_part_);
  Op op = backward_op(step, mode, first ? TensorRef{} : block(step, kBackwardInstance), true);
  op.q_gradient = columns_of(part, Access::kWrite, 0, width, rows);
  KeyValueOperand& operand = op.key_values.front();
  operand.key_gradient = block_columns(block_grad, Access::kWrite, 0, at(step).key_rows);
  operand.value_gradient = block_columns(block_grad, Access::kWrite, 1, at(step).key_rows);
  w.attention("attention_backward", std::move(op)).acquires({part, block_grad}).records(attended_);
  if (!first) w.waits(arrived(step)).releases_if(last(step), {block(step, kBackwardInstance)});
  w.releases_if(last(step), {layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i),
                             layer_tensor(lse_, i), chunk_tensor(tensors_.attention_output_grad)});
  const TensorRef sum = chunk_tensor(dq_sum_);
  if (first) {
    w.elementwise("dq_to_fp32", Function::kCast,
                  {builder_->whole(part, Access::kRead), builder_->whole(sum, Access::kWrite)})
        .eager(EagerKernel::kCastToFp32)
        .acquires({sum})
        .releases({part});
    return;
  }
  take_halves(w, "dq_half", sum, output_copy_, width, at(step).half_queries);
  w.elementwise("dq_add", Function::kAccumulate,
                {columns_of(part, Access::kRead, 0, width, rows), columns_of(sum, Access::kAccumulate, 0, width, rows)})
      .eager(EagerKernel::kAddedInFp32)
      .releases({part});
  put_halves(w, "dq_scatter", sum, output_copy_, width, at(step).half_queries);
  masked_indices(w, HostStall::kMaskedIndex);
}

// Adds the gradient of this step's block to the fp32 sum that came with the hop before.
void RingScheme::add_gradients_framework(SegmentWriter& w, int step) const {
  const TensorRef block_grad = chunk_tensor(at(step).block_grad), sum = sum_gradient(step);
  const std::int64_t width = 2 * model_.kv_width();
  if (step == 0) {
    w.elementwise("kv_grad_to_fp32", Function::kCast,
                  {builder_->whole(block_grad, Access::kRead), builder_->whole(sum, Access::kWrite)})
        .eager(EagerKernel::kCastToFp32)
        .acquires({sum})
        .releases({block_grad})
        .records(summed_);
    return;
  }
  take_halves(w, "kv_grad_half", sum, gradient_copy_, width, at(step).half_keys);
  masked_indices(w, HostStall::kMaskedIndex);  // of keys, and of values
  w.waits(sum_arrived_);
  w.elementwise("kv_grad_add", Function::kAccumulate,
                {columns_of(block_grad, Access::kRead, 0, width, at(step).key_rows),
                 columns_of(sum, Access::kAccumulate, 0, width, at(step).key_rows)})
      .eager(EagerKernel::kAddedInFp32)
      .waits(sum_arrived_)
      .releases({block_grad});
  put_halves(w, "kv_grad_scatter", sum, gradient_copy_, width, at(step).half_keys);
  masked_indices(w, HostStall::kMaskedIndices);
  w.records(summed_);
}

void RingScheme::backward_framework(SegmentWriter& w, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const std::int64_t width = model_.q_width();
  const TensorRef qkv = layer_tensor(tensors_.qkv, i), qkv_grad = chunk_tensor(tensors_.qkv_grad);
  pack(w, qkv, kBackwardInstance);
  take_halves(w, "q_half", qkv, query_copy_, width, half_queries_);
  take_halves(w, "output_half", layer_tensor(tensors_.attention_output, i), query_copy_, width, half_queries_);
  take_halves(w, "do_half", chunk_tensor(tensors_.attention_output_grad), query_copy_, width, half_queries_);
  if (masks_) w.stalls(HostStall::kHalfLogarithms, half_pieces_);
  for (int step = 0; step < group_size_; ++step) {
    if (!last(step)) hop(w, step, kBackwardInstance);
    copy_half_keys(w, step, kBackwardInstance);
    attend_backward_framework(w, step, mode);
    add_gradients_framework(w, step);
    if (step > 0 && !last(step)) free_block(w, step, kBackwardInstance);
    hop_gradients(w, step);
  }
  const TensorRef home = sum_gradient(group_size_), dq = chunk_tensor(dq_sum_);
  w.elementwise("dq_to_bf16", Function::kCast,
                {builder_->whole(dq, Access::kRead), columns_of(qkv_grad, Access::kWrite, 0, width)})
      .eager(EagerKernel::kCastToBf16)
      .acquires({qkv_grad})
      .releases({dq});
  for (int which = 0; which < 2; ++which) {
    w.elementwise("kv_grad_to_bf16", Function::kCast,
                  {block_columns(home, Access::kRead, which), own_columns(qkv_grad, Access::kWrite, which)})
        .eager(EagerKernel::kCastToBf16)
        .waits(sum_arrived_);
  }
  w.releases({home});
}

}  // namespace longhaul
