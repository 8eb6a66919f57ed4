// The backward ring of Transformer Engine's p2p: blocks go the other way round, gradients end at home (ring.h).
//
// Backward step b = 0 .. N-1 works on the block of forward step N-1-b, whose shapes it shares; below, `step` is that
// forward step, so it counts down.
#include "sim/strategies/step/ring.h"

namespace longhaul {
// The first one was kept by the forward pass.
TensorRef RingScheme::backward_block_te(int step, const ForwardMode& mode) const {
  return last(step) ? block(step, mode.instance) : chunk_tensor(at(step).block, kBackwardInstance);
}

// The block at hand goes on, and with it the gradients that the step before completed, in one group of sends and
// receives; the last hop has gradients only.
void RingScheme::hop_te(SegmentWriter& w, int step, const ForwardMode& mode) const {
  std::vector<CollectivePart> parts;
  if (step > 0) {
    parts.push_back({builder_->whole(backward_block_te(step, mode), Access::kRead),
                     builder_->whole(backward_block_te(step - 1, mode), Access::kWrite), to_previous_});
  }
  if (!last(step)) {
    parts.push_back({builder_->whole(chunk_tensor(at(step + 1).sum_grad), Access::kRead),
                     builder_->whole(chunk_tensor(at(step).sum_grad), Access::kWrite), to_previous_});
  }
  w.collective("kv_hop", CollectiveKind::kExchange, role_, std::move(parts)).records(arrived(step));
  if (step > 0) w.acquires({backward_block_te(step - 1, mode)});
  if (last(step)) {
    w.waits(packed_);
  } else {
    w.waits(summed_).acquires({chunk_tensor(at(step).sum_grad)}).releases({chunk_tensor(at(step + 1).sum_grad)});
  }
}

void RingScheme::attend_backward_te(SegmentWriter& w, int step, const ForwardMode& mode) const {
  const std::uint8_t i = mode.instance;
  const bool first = last(step), final = step == 0;
  const TensorRef block_grad = chunk_tensor(at(step).block_grad);
  const TensorRef sum = chunk_tensor(at(step).sum_grad);
  const TensorRef at_hand = backward_block_te(step, mode);
  if (padded()) {
    if (!first) w.waits(arrived(step + 1));
    take_operands(w, step, mode, at_hand);
    take_gradients(w, step, mode);
  }
  Op op = backward_op(step, mode, at_hand, false);
  op.key_values.front().key_gradient = block_columns(block_grad, Access::kWrite, 0, at(step).key_rows);
  op.key_values.front().value_gradient = block_columns(block_grad, Access::kWrite, 1, at(step).key_rows);
  w.attention("attention_backward", std::move(op)).acquires({block_grad});
  if (!first) w.waits(arrived(step + 1));  // the block came with the hop of the step before
  if (final) {
    w.releases({backward_block_te(0, mode), layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i),
                layer_tensor(lse_, i), chunk_tensor(tensors_.attention_output_grad)});
  }
  if (padded()) put_gradients(w, step);
  const std::int64_t width = 2 * model_.kv_width();
  w.elementwise("kv_grad_add", Function::kAccumulate,
                {columns_of(block_grad, Access::kRead, 0, width, at(step).key_rows),
                 columns_of(sum, Access::kAccumulate, 0, width, at(step).key_rows)})
      .releases({block_grad})
      .records(summed_);
  if (!first) w.waits(arrived(step));
  if (final) return;
  // Behind the hop on its stream, and after the attention: the block's buffer takes what comes next.
  w.elementwise("kv_free", Function::kZero,
                {columns_of(backward_block_te(step, mode), Access::kWrite, 0, width, no_rows_)})
      .on(builder_->stream_of(role_))
      .waits(summed_)
      .releases({backward_block_te(step, mode)});
}

void RingScheme::backward_te(SegmentWriter& w, const ForwardMode& mode) const {
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  const TensorRef first_sum = chunk_tensor(at(group_size_ - 1).sum_grad);
  // The first step may see only a part of its block, or none of it.
  w.elementwise("dq_zero", Function::kZero, {columns_of(qkv_grad, Access::kWrite, 0, model_.q_width())})
      .acquires({qkv_grad});
  w.elementwise("kv_grad_zero", Function::kZero, {builder_->whole(first_sum, Access::kWrite)})
      .acquires({first_sum})
      .records(packed_);
  for (int step = group_size_ - 1; step >= 0; --step) {
    hop_te(w, step, mode);
    attend_backward_te(w, step, mode);
  }
  const TensorRef home = chunk_tensor(at(0).sum_grad);
  w.move("kv_grad_unpack", {block_columns(home, Access::kRead, 0), own_columns(qkv_grad, Access::kWrite, 0),
                            block_columns(home, Access::kRead, 1), own_columns(qkv_grad, Access::kWrite, 1)})
      .releases({home});
}

}  // namespace longhaul
