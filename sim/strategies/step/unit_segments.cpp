// The segments outside the layers: embedding, head with loss, and the optimizer.
#include "sim/strategies/step/step.h"

namespace longhaul {

SegmentId StepBuilder::embedding_segment() {
  SegmentWriter w(builder_, Pass::kForward);
  w.elementwise(
       "embedding", Function::kEmbedding,
       {weight(embedding_, 0, 0, model_.vocab, model_.hidden), builder_.whole(layer_tensor(hidden_), Access::kWrite)})
      .acquires({layer_tensor(hidden_)})
      .releases_if(per_chunk(), {unit_tensor(embedding_, embedding_.parameters)});
  if (zero3()) w.waits(params_ready_);
  if (per_chunk()) w.records(unit_begun_);
  return builder_.add_segment("embedding", w.take());
}

SegmentId StepBuilder::embedding_backward_segment(bool last) {
  SegmentWriter w(builder_, Pass::kBackward);
  // With tied embeddings the head has written the table's gradient already.
  if (!model_.tied_embeddings) write_acquire_grads(w, embedding_);
  View table = weight_grad(embedding_, 0, model_.vocab, model_.hidden);
  if (model_.tied_embeddings) table.access = Access::kAccumulate;
  w.elementwise("embedding_backward", Function::kEmbeddingBackward,
                {builder_.whole(chunk_tensor(hidden_grad_), Access::kRead), table})
      .releases({chunk_tensor(hidden_grad_)})
      .records(compute_done_);
  write_reduce(w, embedding_, last);
  return builder_.add_segment("embedding_backward", w.take());
}

SegmentId StepBuilder::head_segment(bool last) {
  SegmentWriter forward(builder_, Pass::kForward);
  const std::int64_t d = model_.hidden;
  const bool tied = model_.tied_embeddings;
  // Untied: hidden x vocab after the final norm's weight. Tied: the embedding table, vocab x hidden, transposed.
  const View table = tied ? weight(embedding_, 1, 0, model_.vocab, d) : weight(head_, 0, d, d, model_.vocab);
  const auto all = [&](TensorKindId kind, Access access) { return builder_.whole(chunk_tensor(kind), access); };
  const View input = columns_of(layer_tensor(hidden_), Access::kRead, 0, d, head_row_list_);

  forward
      .elementwise("final_norm", Function::kRmsNorm,
                   {input, weight(head_, 0, 0, d, 1), all(head_norm_output_, Access::kWrite)})
      .acquires({chunk_tensor(head_norm_output_)});
  if (zero3()) forward.waits(params_ready_);
  if (per_chunk()) forward.records(unit_begun_);
  forward.gemm("logits", all(head_norm_output_, Access::kRead), table, all(logits_, Access::kWrite), false, tied)
      .acquires({chunk_tensor(logits_)});
  forward.elementwise("cross_entropy", Function::kCrossEntropy, {all(logits_, Access::kAccumulate)});
  std::vector<Op> ops = forward.take();

  SegmentWriter w(builder_, Pass::kBackward);
  w.gemm("logits_input_grad", all(logits_, Access::kRead), table, all(head_norm_grad_, Access::kWrite), false, !tied)
      .acquires({chunk_tensor(head_norm_grad_)});
  write_acquire_grads(w, head_);
  if (tied) write_acquire_grads(w, embedding_);
  if (tied) {
    w.gemm("logits_weight_grad", all(logits_, Access::kRead), all(head_norm_output_, Access::kRead),
           weight_grad(embedding_, 0, model_.vocab, d), true, false);
  } else {
    w.gemm("logits_weight_grad", all(head_norm_output_, Access::kRead), all(logits_, Access::kRead),
           weight_grad(head_, d, d, model_.vocab), true, false);
  }
  w.releases({chunk_tensor(logits_), chunk_tensor(head_norm_output_)})
      .releases_if(per_chunk() && tied, {unit_tensor(embedding_, embedding_.parameters, 1)});
  if (head_row_list_ != kAllRows) {  // rows that do not pass through the head have no gradient from the loss
    w.elementwise("zero_hidden_grad", Function::kZero, {all(hidden_grad_, Access::kWrite)})
        .acquires({chunk_tensor(hidden_grad_)});
  }
  const Access access = head_row_list_ == kAllRows ? Access::kWrite : Access::kAccumulate;
  w.elementwise("final_norm_backward", Function::kRmsNormBackward,
                {input, weight(head_, 0, 0, d, 1), all(head_norm_grad_, Access::kRead),
                 columns_of(chunk_tensor(hidden_grad_), access, 0, d, head_row_list_), weight_grad(head_, 0, d, 1)})
      .releases({layer_tensor(hidden_), chunk_tensor(head_norm_grad_)})
      .releases_if(per_chunk(), {unit_tensor(head_, head_.parameters)})
      .records(compute_done_);
  if (head_row_list_ == kAllRows) w.acquires({chunk_tensor(hidden_grad_)});
  write_reduce(w, head_, last);
  for (Op& op : w.take()) ops.push_back(std::move(op));
  return builder_.add_segment("head", std::move(ops));
}

SegmentId StepBuilder::prepare_segment(const ParameterUnit& unit) {
  SegmentWriter w(builder_, Pass::kForward);
  const TensorRef full = unit_tensor(unit, unit.parameters);
  const TensorRef gradients = unit_tensor(unit, unit.gradients);
  w.collective(
       "gather_" + unit.name, CollectiveKind::kAllGather, zero_role_,
       {{builder_.whole(unit_tensor(unit, unit.shard), Access::kRead), builder_.whole(full, Access::kWrite), -1}})
      .acquires({full})
      .records(params_ready_);
  if (!options_.training.backward) return builder_.add_segment("prepare_" + unit.name, w.take());
  w.elementwise("zero_" + unit.name + "_grads", Function::kZero, {builder_.whole(gradients, Access::kWrite)})
      .acquires({gradients});
  return builder_.add_segment("prepare_" + unit.name, w.take());
}

SegmentId StepBuilder::drop_segment(const ParameterUnit& unit) {
  SegmentWriter w(builder_, Pass::kForward);
  w.elementwise("drop_" + unit.name, Function::kGiven, {})
      .waits(params_ready_)
      .releases({unit_tensor(unit, unit.parameters)});
  return builder_.add_segment("drop_" + unit.name, w.take());
}

SegmentId StepBuilder::optimizer_segment(const ParameterUnit& unit) {
  SegmentWriter w(builder_, Pass::kOptimizer);
  const TensorKindId gradients = zero3() ? unit.gradient_shard : unit.gradients;
  const TensorKindId parameters = zero3() ? unit.shard : unit.parameters;
  w.optimizer("adamw_" + unit.name, builder_.whole(unit_tensor(unit, unit.state), Access::kAccumulate),
              builder_.whole(unit_tensor(unit, gradients), Access::kRead),
              builder_.whole(unit_tensor(unit, parameters), Access::kWrite))
      .waits(grads_reduced_);
  return builder_.add_segment("optimizer_" + unit.name, w.take());
}

}  // namespace longhaul
