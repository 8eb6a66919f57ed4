// The part in which sequence- and context-parallel strategies differ: how attention is computed from each rank's own
// rows of Q, K and V. The step builder (step.h) writes everything else.
#pragma once

#include "sim/strategies/step/builder.h"

namespace longhaul {

// Tensors that the layer and the attention scheme share. All are per layer and chunk.
struct AttentionTensors {
  TensorKindId qkv = -1;                    // rows x qkv_width, after RoPE: Q heads, K heads, V heads
  TensorKindId attention_output = -1;       // rows x q_width
  TensorKindId attention_output_grad = -1;  // rows x q_width; per chunk, no layer
  TensorKindId qkv_grad = -1;               // rows x qkv_width; per chunk, no layer; before RoPE backward
  EventSlot qkv_ready = kNoEvent;           // recorded by the op that completes qkv
};

// Which forward a scheme writes.
struct ForwardMode {
  std::uint8_t instance = 0;  // 0 forward, 1 recompute
  bool keep = false;          // the backward pass follows with this instance: keep what it needs
  bool context = false;       // keys and values stay for later slices of the sequence (pipelines)
};

class AttentionScheme {
 public:
  virtual ~AttentionScheme() = default;

  // Registers tensor kinds, slots, events and roles. Called once, before any segment is written.
  virtual void declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) = 0;

  // From qkv (live, written) to attention_output (acquired here, written at the end on the compute stream). Releases
  // qkv unless its own backward reads it (then `backward` releases it).
  virtual void forward(SegmentWriter& writer, const ForwardMode& mode) = 0;

  // From attention_output_grad (live, written; released here) to qkv_grad (acquired here, fully written at the end on
  // the compute stream). Releases attention_output of `mode.instance` and all that `forward` kept.
  virtual void backward(SegmentWriter& writer, const ForwardMode& mode) = 0;
};

}  // namespace longhaul
