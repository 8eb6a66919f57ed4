// Transformer Engine's ring with the copies of MagiAttention's benchmark (ring.h). Copies are written beside; the
// attention reads and writes in place, so bytes and launches are the code's.
#include "sim/strategies/step/ring.h"

namespace longhaul {

void RingScheme::declare_padded() {
  ScheduleBuilder& builder = *builder_;
  const RowMapSlot rows = at(0).block_map;
  const auto add = [&](const char* name, std::int64_t width) {
    return builder.tensor(name, rows, width, ElementType::kBf16, MemoryCategory::kActivations);
  };
  query_copy_ = add("query_copy", model_.q_width());
  output_copy_ = add("output_copy", model_.q_width());
  key_copy_ = add("kv_copy", 2 * model_.kv_width());
  gradient_copy_ = add("kv_grad_copy", 2 * model_.kv_width());
  for (std::size_t t = 1; t < steps_.size(); ++t) {
    steps_[t].half_queries = builder.row_list_slot();
    steps_[t].half_keys = builder.row_list_slot();
  }
}

// Rows taken by an index, as fast as a copy; `begin`: the first column at the source.
void RingScheme::gather_rows(SegmentWriter& w, const char* label, const TensorRef& from, std::int64_t begin,
                             TensorKindId copy, RowListSlot rows) const {
  const std::int64_t width = builder_->columns(copy);
  const TensorRef to = chunk_tensor(copy);
  w.move(label, {columns_of(from, Access::kRead, begin, width, rows), columns_of(to, Access::kWrite, 0, width, rows)})
      .acquires({to})
      .releases({to});
}

// Rows put back by such an index into zeros.
void RingScheme::put_rows(SegmentWriter& w, const char* label, const TensorRef& from, TensorKindId copy,
                          RowListSlot rows) const {
  const TensorRef to = chunk_tensor(copy);
  w.elementwise("pad_zero", Function::kZero, {columns_of(to, Access::kWrite, 0, builder_->columns(copy), rows)})
      .eager(EagerKernel::kZeros)
      .acquires({to})
      .releases({to});
  gather_rows(w, label, from, 0, copy, rows);
  w.eager(EagerKernel::kExpandedRows);
}

void RingScheme::take_operands(SegmentWriter& w, int step, const ForwardMode& mode, const TensorRef& block) const {
  const TensorRef qkv = layer_tensor(tensors_.qkv, mode.instance);
  const bool own = block.kind < 0;
  if (step > 0) {
    copy_halves(w, "q_half", qkv, query_copy_, model_.q_width(), at(step).half_queries);
    copy_halves(w, "kv_half", own ? qkv : block, key_copy_, 2 * model_.kv_width(), at(step).half_keys);
    w.waits(arrived(step));
  }
  gather_rows(w, "q_unpad", qkv, 0, query_copy_, at(step).query_rows);
  gather_rows(w, "kv_unpad", own ? qkv : block, own ? model_.q_width() : 0, key_copy_, at(step).key_rows);
  if (step > 0) w.waits(arrived(step));
}

void RingScheme::put_output(SegmentWriter& w, int step, const TensorRef& output) const {
  put_rows(w, "output_pad", output, output_copy_, at(step).query_rows);
  if (step > 0) return;
  // The sum begins as zeros; the first step's part is added as the others are.
  put_rows(w, "output_first", output, output_copy_, at(step).query_rows);
}

// Of the backward pass, beside take_operands.
void RingScheme::take_gradients(SegmentWriter& w, int step, const ForwardMode& mode) const {
  const TensorRef output = layer_tensor(tensors_.attention_output, mode.instance);
  const TensorRef gradient = chunk_tensor(tensors_.attention_output_grad);
  const std::int64_t width = model_.q_width();
  if (step > 0) {
    copy_halves(w, "output_half", output, output_copy_, width, at(step).half_queries);
    copy_halves(w, "do_half", gradient, output_copy_, width, at(step).half_queries);
  }
  gather_rows(w, "output_unpad", output, 0, output_copy_, at(step).query_rows);
  gather_rows(w, "do_unpad", gradient, 0, output_copy_, at(step).query_rows);
}

void RingScheme::put_gradients(SegmentWriter& w, int step) const {
  const std::int64_t width = model_.q_width();
  const TensorRef dq = chunk_tensor(tensors_.qkv_grad), to = chunk_tensor(output_copy_);
  const auto rows_of_dq = [&] { return columns_of(dq, Access::kRead, 0, width, at(step).query_rows); };
  const TensorRef block_grad = chunk_tensor(at(step).block_grad);
  put_rows(w, "dq_pad", dq, output_copy_, at(step).query_rows);
  // Two reads and a write, as adding the call's dQ to the sum.
  w.elementwise("dq_add", Function::kAdd,
                {rows_of_dq(), rows_of_dq(), columns_of(to, Access::kWrite, 0, width, at(step).query_rows)})
      .acquires({to})
      .releases({to});
  put_rows(w, "kv_grad_pad", block_grad, gradient_copy_, at(step).key_rows);
  copy_halves(w, "kv_grad_join", block_grad, gradient_copy_, 2 * model_.kv_width(), at(step).key_rows);
}

}  // namespace longhaul
