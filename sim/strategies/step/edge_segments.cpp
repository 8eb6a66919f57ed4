// Pipeline edges: hidden rows to the next stage, their gradients to the one before. Each directed edge is a group of
// two ranks {sender, receiver} with a stream of its own on both (architecture.md, "Schedule, precisely").
#include "sim/strategies/step/step.h"

namespace longhaul {

void StepBuilder::declare_edges() {
  edges_.forward_in = builder_.role("forward_in");
  edges_.forward_out = builder_.role("forward_out");
  edges_.backward_in = builder_.role("backward_in");
  edges_.backward_out = builder_.role("backward_out");
  edge_send_ = builder_.exchange_slot();
  edge_receive_ = builder_.exchange_slot();
  input_ready_ = builder_.event();
  grad_ready_ = builder_.event();
  segments_.receive_forward = edge_segment("receive_forward", edges_.forward_in, true, false);
  segments_.send_forward = edge_segment("send_forward", edges_.forward_out, true, true);
  segments_.receive_backward = edge_segment("receive_backward", edges_.backward_in, false, false);
  segments_.send_backward = edge_segment("send_backward", edges_.backward_out, false, true);
}

SegmentId StepBuilder::edge_segment(const std::string& name, GroupRole role, bool forward, bool send) {
  SegmentWriter w(builder_, forward ? Pass::kForward : Pass::kBackward);
  const TensorRef rows = forward ? layer_tensor(hidden_) : chunk_tensor(hidden_grad_);
  CollectivePart part;
  if (send)
    part.send = builder_.whole(rows, Access::kRead);
  else
    part.receive = builder_.whole(rows, Access::kWrite);
  part.exchange = send ? edge_send_ : edge_receive_;
  w.collective(name, CollectiveKind::kExchange, role, {part}).pipeline_edge();
  if (send)
    w.waits(compute_done_).releases({rows});
  else
    w.acquires({rows}).records(forward ? input_ready_ : grad_ready_);
  return builder_.add_segment(name, w.take());
}

}  // namespace longhaul
