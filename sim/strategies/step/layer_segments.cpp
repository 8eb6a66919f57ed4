// The segments of one layer: forward, recompute and backward, with ZeRO's gathers and reductions around them.
#include "sim/strategies/step/step.h"

namespace longhaul {
namespace {

// Where each weight of a layer starts in the layer's flat range (LayerParameters order).
struct Offsets {
  std::int64_t attention_norm, qkv, output, ffn_norm, gate_up, down, extra;
};

Offsets offsets(const LayerParameters& p) {
  Offsets o{};
  o.attention_norm = 0;
  o.qkv = o.attention_norm + p.attention_norm;
  o.output = o.qkv + p.qkv;
  o.ffn_norm = o.output + p.output;
  o.gate_up = o.ffn_norm + p.ffn_norm;
  o.down = o.gate_up + p.gate_up;
  o.extra = o.down + p.down;
  return o;
}

}  // namespace

TensorRef StepBuilder::unit_tensor(const ParameterUnit& unit, TensorKindId kind, std::uint8_t use,
                                   std::int16_t layer_offset) const {
  TensorRef ref = unit.per_layer ? layer_weights(kind, layer_offset) : step_tensor(kind);
  const bool transient = kind == unit.parameters || kind == unit.gradients || kind == unit.reduced;
  if (per_chunk() && transient) {  // gathered or reduced for one chunk, so that two chunks never meet in one buffer
    ref.has_chunk = true;
    ref.instance = kind == unit.parameters ? use : 0;
  }
  return ref;
}

View StepBuilder::weight(const ParameterUnit& unit, std::uint8_t use, std::int64_t begin, std::int64_t rows,
                         std::int64_t columns) const {
  return matrix_of(unit_tensor(unit, unit.parameters, use), Access::kRead, begin, rows, columns);
}

View StepBuilder::weight_grad(const ParameterUnit& unit, std::int64_t begin, std::int64_t rows,
                              std::int64_t columns) const {
  // Under ZeRO 3 each backward pass writes a fresh gradient that is reduced at once; otherwise it adds to the step's.
  const Access access = per_chunk() ? Access::kWrite : Access::kAccumulate;
  return matrix_of(unit_tensor(unit, unit.gradients), access, begin, rows, columns);
}

void StepBuilder::write_gather(SegmentWriter& w, const ParameterUnit& unit, std::uint8_t use, std::int16_t layer_offset,
                               Guard guard) const {
  if (!per_chunk()) return;
  const TensorRef shard = unit_tensor(unit, unit.shard, 0, layer_offset);
  const TensorRef full = unit_tensor(unit, unit.parameters, use, layer_offset);
  w.collective("gather_" + unit.name, CollectiveKind::kAllGather, zero_role_,
               {{builder_.whole(shard, Access::kRead), builder_.whole(full, Access::kWrite), -1}})
      .acquires({full})
      .waits(unit_begun_)
      .records(params_ready_)
      .guarded(guard);
}

void StepBuilder::write_acquire_grads(SegmentWriter& w, const ParameterUnit& unit) const {
  if (!per_chunk()) return;
  // Bias, QK-norm and padding get no gradient from any op: they are zeroed so that the reduction reads what was
  // written.
  const std::int64_t used = unit.per_layer ? unit.elements - layer_parameters_.extra : unit.elements;
  View rest = matrix_of(unit_tensor(unit, unit.gradients), Access::kWrite, used, unit.padded - used, 1);
  w.elementwise("zero_grad_tail", Function::kZero, {rest}).acquires({unit_tensor(unit, unit.gradients)});
}

void StepBuilder::write_reduce(SegmentWriter& w, const ParameterUnit& unit, bool last) const {
  const TensorRef gradients = unit_tensor(unit, unit.gradients);
  const TensorRef shard = unit_tensor(unit, unit.gradient_shard);
  if (zero3() && (last || per_chunk())) {
    const bool direct = options_.chunks == 1 || !per_chunk();
    const TensorRef target = direct ? shard : unit_tensor(unit, unit.reduced);
    w.collective("reduce_" + unit.name, CollectiveKind::kReduceScatter, zero_role_,
                 {{builder_.whole(gradients, Access::kRead), builder_.whole(target, Access::kWrite), -1}})
        .waits(compute_done_)
        .releases({gradients})
        .releases_if(!per_chunk(), {unit_tensor(unit, unit.parameters)});
    if (!direct) {
      w.acquires({target});
      w.elementwise("add_" + unit.name + "_grad", Function::kAccumulate,
                    {builder_.whole(target, Access::kRead), builder_.whole(shard, Access::kAccumulate)})
          .on(builder_.stream_of(zero_role_))
          .releases({target});
    }
    w.records(grads_reduced_);
  } else if (!zero3() && last && options_.zero_ranks > 1) {
    w.collective("reduce_" + unit.name, CollectiveKind::kAllReduce, zero_role_,
                 {{View{}, builder_.whole(gradients, Access::kAccumulate), -1}})
        .waits(compute_done_)
        .records(grads_reduced_);
  }
  if (!last || options_.replicas == 1) return;
  const bool reduced = zero3() || options_.zero_ranks > 1;
  w.collective("reduce_" + unit.name + "_replicas", CollectiveKind::kAllReduce, replica_role_,
               {{View{}, builder_.whole(zero3() ? shard : gradients, Access::kAccumulate), -1}})
      .waits(reduced ? grads_reduced_ : compute_done_)
      .records(grads_reduced_);
}

void StepBuilder::write_forward_ops(SegmentWriter& w, const ForwardMode& mode) const {
  const LayerTensors& t = tensors_;
  const Offsets at = offsets(layer_parameters_);
  const std::uint8_t i = mode.instance;
  const bool recomputing = w.pass() == Pass::kRecompute;
  const std::uint8_t use = recomputing ? 1 : 0;
  const auto all = [&](TensorKindId kind, Access access) { return builder_.whole(layer_tensor(kind, i), access); };
  const std::int64_t d = model_.hidden;
  const std::int64_t qkv_width = model_.qkv_width();
  const View input = builder_.whole(layer_tensor(hidden_), Access::kRead);
  const TensorRef output = layer_tensor(hidden_, 0, 1);

  w.elementwise("attention_norm", Function::kRmsNorm,
                {input, weight(layer_, use, at.attention_norm, d, 1), all(t.attention_norm_output, Access::kWrite)})
      .acquires({layer_tensor(t.attention_norm_output, i)});
  if (zero3()) w.waits(params_ready_);
  if (per_chunk()) w.records(unit_begun_);
  if (options_.pipeline) w.waits(recomputing ? grad_ready_ : input_ready_);
  write_gather(w, layer_, use, recomputing ? -1 : 1, Guard::kNotLastIteration);

  w.gemm("qkv", all(t.attention_norm_output, Access::kRead), weight(layer_, use, at.qkv, d, qkv_width),
         all(attention_.qkv, Access::kWrite))
      .acquires({layer_tensor(attention_.qkv, i)})
      .releases_if(!mode.keep, {layer_tensor(t.attention_norm_output, i)});
  w.elementwise(
       "rope", Function::kRope,
       {columns_of(layer_tensor(attention_.qkv, i), Access::kAccumulate, 0, model_.q_width() + model_.kv_width())})
      .records(attention_.qkv_ready);
  scheme_->forward(w, mode);
  w.gemm("attention_projection", all(attention_.attention_output, Access::kRead),
         weight(layer_, use, at.output, model_.q_width(), d), all(t.projection, Access::kWrite))
      .acquires({layer_tensor(t.projection, i)})
      .releases_if(!mode.keep, {layer_tensor(attention_.attention_output, i)});
  w.elementwise("attention_add", Function::kAdd,
                {input, all(t.projection, Access::kRead), all(t.residual, Access::kWrite)})
      .acquires({layer_tensor(t.residual, i)})
      .releases({layer_tensor(t.projection, i)})
      .releases_if(!options_.training.backward, {layer_tensor(hidden_)});
  w.elementwise(
       "ffn_norm", Function::kRmsNorm,
       {all(t.residual, Access::kRead), weight(layer_, use, at.ffn_norm, d, 1), all(t.ffn_norm_output, Access::kWrite)})
      .acquires({layer_tensor(t.ffn_norm_output, i)});
  w.gemm("gate_up", all(t.ffn_norm_output, Access::kRead), weight(layer_, use, at.gate_up, d, 2 * model_.ffn),
         all(t.gate_up, Access::kWrite))
      .acquires({layer_tensor(t.gate_up, i)})
      .releases_if(!mode.keep, {layer_tensor(t.ffn_norm_output, i)});
  w.elementwise("swiglu", Function::kSwiGlu, {all(t.gate_up, Access::kRead), all(t.activated, Access::kWrite)})
      .acquires({layer_tensor(t.activated, i)})
      .releases_if(!mode.keep, {layer_tensor(t.gate_up, i)});
  if (recomputing) return;  // the layer's output was the checkpoint of the next layer already
  w.gemm("down", all(t.activated, Access::kRead), weight(layer_, use, at.down, model_.ffn, d),
         all(t.ffn_output, Access::kWrite))
      .acquires({layer_tensor(t.ffn_output, i)})
      .releases_if(!mode.keep, {layer_tensor(t.activated, i)});
  w.elementwise(
       "ffn_add", Function::kAdd,
       {all(t.residual, Access::kRead), all(t.ffn_output, Access::kRead), builder_.whole(output, Access::kWrite)})
      .acquires({output})
      .releases({layer_tensor(t.ffn_output, i)})
      .releases_if(!mode.keep, {layer_tensor(t.residual, i)})
      .releases_if(per_chunk(), {unit_tensor(layer_, layer_.parameters, use)})
      .records(compute_done_);
}

void StepBuilder::write_backward_ops(SegmentWriter& w, const ForwardMode& mode) const {
  const LayerTensors& t = tensors_;
  const Offsets at = offsets(layer_parameters_);
  const std::uint8_t i = mode.instance;
  const std::int64_t d = model_.hidden;
  const std::int64_t qkv_width = model_.qkv_width();
  const auto saved = [&](TensorKindId kind) { return builder_.whole(layer_tensor(kind, i), Access::kRead); };
  const auto grad = [&](TensorKindId kind, Access access) { return builder_.whole(chunk_tensor(kind), access); };

  w.gemm("down_input_grad", grad(hidden_grad_, Access::kRead), weight(layer_, 1, at.down, model_.ffn, d),
         grad(t.activated_grad, Access::kWrite), false, true)
      .acquires({chunk_tensor(t.activated_grad)});
  if (options_.pipeline && !recompute()) w.waits(grad_ready_);
  if (per_chunk() && !recompute()) {
    w.waits(params_ready_).records(unit_begun_);
    write_gather(w, layer_, 1, -1, Guard::kNotLastIteration);
  }
  write_acquire_grads(w, layer_);
  w.gemm("down_weight_grad", saved(t.activated), grad(hidden_grad_, Access::kRead),
         weight_grad(layer_, at.down, model_.ffn, d), true, false)
      .releases({layer_tensor(t.activated, i)});
  w.elementwise("swiglu_backward", Function::kSwiGluBackward,
                {saved(t.gate_up), grad(t.activated_grad, Access::kRead), grad(t.gate_up_grad, Access::kWrite)})
      .acquires({chunk_tensor(t.gate_up_grad)})
      .releases({layer_tensor(t.gate_up, i), chunk_tensor(t.activated_grad)});
  w.gemm("gate_up_input_grad", grad(t.gate_up_grad, Access::kRead), weight(layer_, 1, at.gate_up, d, 2 * model_.ffn),
         grad(t.ffn_norm_grad, Access::kWrite), false, true)
      .acquires({chunk_tensor(t.ffn_norm_grad)});
  w.gemm("gate_up_weight_grad", saved(t.ffn_norm_output), grad(t.gate_up_grad, Access::kRead),
         weight_grad(layer_, at.gate_up, d, 2 * model_.ffn), true, false)
      .releases({layer_tensor(t.ffn_norm_output, i), chunk_tensor(t.gate_up_grad)});
  w.elementwise("ffn_norm_backward", Function::kRmsNormBackward,
                {saved(t.residual), weight(layer_, 1, at.ffn_norm, d, 1), grad(t.ffn_norm_grad, Access::kRead),
                 grad(hidden_grad_, Access::kAccumulate), weight_grad(layer_, at.ffn_norm, d, 1)})
      .releases({layer_tensor(t.residual, i), chunk_tensor(t.ffn_norm_grad)});
  w.gemm("projection_input_grad", grad(hidden_grad_, Access::kRead), weight(layer_, 1, at.output, model_.q_width(), d),
         grad(attention_.attention_output_grad, Access::kWrite), false, true)
      .acquires({chunk_tensor(attention_.attention_output_grad)});
  w.gemm("projection_weight_grad", saved(attention_.attention_output), grad(hidden_grad_, Access::kRead),
         weight_grad(layer_, at.output, model_.q_width(), d), true, false);
  scheme_->backward(w, mode);
  w.elementwise(
      "rope_backward", Function::kRopeBackward,
      {columns_of(chunk_tensor(attention_.qkv_grad), Access::kAccumulate, 0, model_.q_width() + model_.kv_width())});
  w.gemm("qkv_input_grad", grad(attention_.qkv_grad, Access::kRead), weight(layer_, 1, at.qkv, d, qkv_width),
         grad(t.attention_norm_grad, Access::kWrite), false, true)
      .acquires({chunk_tensor(t.attention_norm_grad)});
  w.gemm("qkv_weight_grad", saved(t.attention_norm_output), grad(attention_.qkv_grad, Access::kRead),
         weight_grad(layer_, at.qkv, d, qkv_width), true, false)
      .releases({layer_tensor(t.attention_norm_output, i), chunk_tensor(attention_.qkv_grad)});
  w.elementwise("attention_norm_backward", Function::kRmsNormBackward,
                {builder_.whole(layer_tensor(hidden_), Access::kRead), weight(layer_, 1, at.attention_norm, d, 1),
                 grad(t.attention_norm_grad, Access::kRead), grad(hidden_grad_, Access::kAccumulate),
                 weight_grad(layer_, at.attention_norm, d, 1)})
      .releases({layer_tensor(hidden_), chunk_tensor(t.attention_norm_grad)})
      .releases_if(per_chunk(), {unit_tensor(layer_, layer_.parameters, 1)})
      .records(compute_done_);
}

SegmentId StepBuilder::layer_forward_segment(bool context) {
  SegmentWriter w(builder_, Pass::kForward);
  ForwardMode mode;
  mode.keep = keep();
  mode.context = context;
  write_forward_ops(w, mode);
  return builder_.add_segment(context ? "layer_context" : "layer", w.take());
}

SegmentId StepBuilder::layer_backward_segment(bool context, bool last) {
  std::vector<Op> ops;
  ForwardMode mode;
  mode.keep = true;
  mode.context = context;
  if (recompute()) {
    mode.instance = 1;
    SegmentWriter w(builder_, Pass::kRecompute);
    write_forward_ops(w, mode);
    ops = w.take();
  }
  SegmentWriter w(builder_, Pass::kBackward);
  write_backward_ops(w, mode);
  write_reduce(w, layer_, last);
  for (Op& op : w.take()) ops.push_back(std::move(op));
  return builder_.add_segment(context ? "layer_backward_context" : "layer_backward", std::move(ops));
}

SegmentId StepBuilder::gather_segment(const std::string& name, const ParameterUnit& unit, std::uint8_t use) {
  SegmentWriter w(builder_, use == 0 ? Pass::kForward : Pass::kBackward);
  write_gather(w, unit, use, 0, Guard::kAlways);
  return builder_.add_segment(name, w.take());
}

}  // namespace longhaul
