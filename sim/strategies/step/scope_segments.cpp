// Parts of a step: the ends of a run of layers, and attention alone. What enters is given (Function::kGiven); what
// leaves is released by an op that launches nothing.
#include "sim/strategies/step/step.h"

namespace longhaul {

void StepBuilder::write_scope_segments() {
  const auto hidden_rows = [&](const TensorRef& ref) { return builder_.whole(ref, Access::kWrite); };
  SegmentWriter input(builder_, Pass::kForward);
  input.elementwise("given_hidden", Function::kGiven, {hidden_rows(layer_tensor(hidden_))})
      .acquires({layer_tensor(hidden_)});
  segments_.scope_input = builder_.add_segment("input", input.take());

  const bool backward = options_.training.backward;
  SegmentWriter output(builder_, backward ? Pass::kBackward : Pass::kForward);
  if (backward) {
    output.elementwise("given_hidden_grad", Function::kGiven, {hidden_rows(chunk_tensor(hidden_grad_))})
        .acquires({chunk_tensor(hidden_grad_)})
        .releases({layer_tensor(hidden_)});
  } else {
    output.elementwise("take_hidden", Function::kGiven, {}).releases({layer_tensor(hidden_)});
  }
  segments_.scope_output = builder_.add_segment("output", output.take());

  SegmentWriter input_grad(builder_, Pass::kBackward);
  input_grad.elementwise("take_hidden_grad", Function::kGiven, {}).releases({chunk_tensor(hidden_grad_)});
  segments_.scope_input_grad = builder_.add_segment("input_grad", input_grad.take());
}

// Q, K, V in, O out.
void StepBuilder::write_attention_forward(SegmentWriter& w, const ForwardMode& mode) const {
  const TensorRef qkv = layer_tensor(attention_.qkv, mode.instance);
  w.elementwise("given_qkv", Function::kGiven, {builder_.whole(qkv, Access::kWrite)})
      .acquires({qkv})
      .records(attention_.qkv_ready);
  scheme_->forward(w, mode);
  if (mode.keep) return;
  w.elementwise("take_attention_output", Function::kGiven, {})
      .releases({layer_tensor(attention_.attention_output, mode.instance)});
}

void StepBuilder::write_attention_segments() {
  ForwardMode forward;
  forward.keep = keep();
  SegmentWriter layer(builder_, Pass::kForward);
  write_attention_forward(layer, forward);
  segments_.layer = builder_.add_segment("attention", layer.take());

  ForwardMode mode;
  mode.keep = true;
  std::vector<Op> ops;
  if (recompute()) {
    mode.instance = 1;
    SegmentWriter again(builder_, Pass::kRecompute);
    write_attention_forward(again, mode);
    ops = again.take();
  }
  SegmentWriter w(builder_, Pass::kBackward);
  const TensorRef output_grad = chunk_tensor(attention_.attention_output_grad);
  w.elementwise("given_attention_output_grad", Function::kGiven, {builder_.whole(output_grad, Access::kWrite)})
      .acquires({output_grad});
  scheme_->backward(w, mode);
  w.elementwise("take_qkv_grad", Function::kGiven, {}).releases({chunk_tensor(attention_.qkv_grad)});
  for (Op& op : w.take()) ops.push_back(std::move(op));
  segments_.layer_backward = segments_.layer_backward_last = builder_.add_segment("attention_backward", std::move(ops));
}

}  // namespace longhaul
