// Element-wise functions, moves and the optimizer as kernel calls. Operand order: sim/schedule/op.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/common/bf16.h"
#include "validate/device/op_lowering.h"

namespace longhaul {
namespace {

constexpr std::int64_t kAdamwChunk = 1 << 24;  // parameters a call: bounds the scratch for fp32 gradients

std::int64_t align16(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

std::int32_t input_token_id(const RowToken& token, std::int64_t vocab) {
  if (token.document < 0) return -1;
  if (token.view == TokenView::kNoisy && is_corrupted(token.document, token.position)) {
    return static_cast<std::int32_t>(vocab - 1);
  }
  return static_cast<std::int32_t>(token_id(token.document, token.position, vocab));
}

std::int32_t target_token_id(const Batch& batch, const RowToken& token, std::int64_t vocab) {
  constexpr std::int32_t kIgnored = -100;
  if (token.document < 0) return kIgnored;
  if (batch.objective.kind == ObjectiveKind::kBlockDiffusion) {
    const bool counted = token.view == TokenView::kNoisy && is_corrupted(token.document, token.position);
    return counted ? static_cast<std::int32_t>(token_id(token.document, token.position, vocab)) : kIgnored;
  }
  const bool last = token.position + 1 == batch.documents[static_cast<std::size_t>(token.document)];
  return last ? kIgnored : static_cast<std::int32_t>(token_id(token.document, token.position + 1, vocab));
}

void OpLowering::embedding() {
  require_operands(2);
  const Rows table = operand(0);
  const View& view = op().operands[1];
  const Rows rows = operand(1);
  const std::int64_t vocab = schedule_.model.vocab;
  if (table.rows * table.columns != vocab * rows.columns) fail("the table is not vocab x row width");
  std::vector<std::int32_t> ids;
  for (const RowToken& token : rank_.binder_.tokens(at_, view, at_.chunk)) ids.push_back(input_token_id(token, vocab));
  const Rows lines{table.base, table.type, vocab, rows.columns, rows.columns, kNoIndex};
  Rows looked_up = lines;
  looked_up.rows = rows.rows;
  looked_up.index = rank_.binder_.constants().add(ids);
  copy(looked_up, rows, view.access == Access::kAccumulate);
}

void OpLowering::embedding_backward() {
  require_operands(2);
  const Rows rows = operand(0);
  const Rows table = operand(1);
  const std::int64_t vocab = schedule_.model.vocab;
  if (table.rows * table.columns != vocab * rows.columns || !table.tight()) {
    fail("the table's gradient is not vocab x row width");
  }
  if (rows.type != ElementType::kBf16 || table.type != ElementType::kBf16)
    fail("embedding gradients that are not bf16");
  std::map<std::int32_t, std::vector<std::int32_t>> by_id;
  const std::vector<RowToken> tokens = rank_.binder_.tokens(at_, op().operands[0], at_.chunk);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t id = input_token_id(tokens[i], vocab);
    if (id >= 0) by_id[id].push_back(static_cast<std::int32_t>(i));
  }
  std::vector<std::int32_t> ids, first{0}, listed;
  for (const auto& [id, of] : by_id) {
    ids.push_back(id);
    listed.insert(listed.end(), of.begin(), of.end());
    first.push_back(static_cast<std::int32_t>(listed.size()));
  }
  const bool accumulate = op().operands[1].access == Access::kAccumulate;
  if (!accumulate) calls_.emplace_back(FillRowsCall{table, 0.0F});
  if (ids.empty()) return;
  ConstantPool& constants = rank_.binder_.constants();
  EmbeddingBackwardCall call;
  call.count = static_cast<std::int64_t>(ids.size());
  call.width = rows.columns;
  call.rows = tight(rows);
  call.table = table.base;
  call.ids = constants.add(ids);
  call.first = constants.add(first);
  call.listed = constants.add(listed);
  call.accumulate = accumulate;
  calls_.emplace_back(call);
}

void OpLowering::rms_norm() {
  require_operands(3);
  const Rows x = operand(0);
  const Rows weight = operand(1);
  const Rows y = operand(2);
  require_equal(x, y);
  if (weight.rows * weight.columns != x.columns) fail("the norm's weight is not as wide as its rows");
  const Output out = output(op().operands[2], y);
  RmsNormCall call;
  call.tokens = x.rows;
  call.width = x.columns;
  call.x = tight(x);
  call.w = weight.base;
  call.y = out.made.base;
  call.r = scratch(x.rows * 4);
  calls_.emplace_back(call);
  finish(out);
}

void OpLowering::rms_norm_backward() {
  require_operands(5);
  const Rows x = operand(0);
  const Rows weight = operand(1);
  const Rows dy = operand(2);
  const Rows dx = operand(3);
  const Rows dweight = operand(4);
  require_equal(x, dy);
  require_equal(x, dx);
  const Output out = output(op().operands[3], dx);
  RmsNormBackwardCall call;
  call.tokens = x.rows;
  call.width = x.columns;
  call.x = tight(x);
  call.w = weight.base;
  call.dy = tight(dy);
  call.r = scratch(x.rows * 4);
  call.dx = out.made.base;
  const Rows dw = scratch_rows(1, x.columns, ElementType::kFp32);
  call.dw = dw.base;
  call.scratch = scratch(rms_backward_scratch(x.columns) * 4);
  calls_.emplace_back(RmsScaleCall{x.rows, x.columns, call.x, call.r});
  calls_.emplace_back(call);
  finish(out);
  const Rows flat{dweight.base, dweight.type, 1, x.columns, x.columns, kNoIndex};
  copy(dw, flat, op().operands[4].access == Access::kAccumulate);
}

void OpLowering::rope() {
  const std::int64_t dim = op().head_dim > 0 ? op().head_dim : schedule_.model.head_dim;
  for (const View& view : op().operands) {
    const Rows rows = rank_.binder_.rows(at_, position_, view);
    if (rows.columns % dim != 0) fail("rope over a part of a head");
    if (rows.rows == 0) continue;
    std::vector<std::int32_t> positions;
    for (const RowToken& token : rank_.binder_.tokens(at_, view, at_.chunk)) {
      positions.push_back(token.document < 0 ? 0 : static_cast<std::int32_t>(token.position));
    }
    RopeCall call;
    call.tokens = rows.rows;
    call.heads = rows.columns / dim;
    call.head_dim = dim;
    call.positions = rank_.binder_.constants().add(positions);
    call.inverse = op().function == Function::kRopeBackward;
    Rows in_place = rows;
    if (!rows.dense()) {
      in_place = scratch_rows(rows.rows, rows.columns, rows.type);
      copy(rows, in_place, false);
    }
    call.stride = in_place.stride;
    call.x = in_place.base;
    calls_.emplace_back(call);
    if (!rows.dense()) copy(in_place, rows, false);
  }
}

void OpLowering::swiglu() {
  require_operands(2);
  const Rows gate_up = operand(0);
  const Rows y = operand(1);
  if (gate_up.columns != 2 * y.columns || gate_up.rows != y.rows) fail("gate_up is not rows x 2 ffn");
  const Output out = output(op().operands[1], y);
  const Address in = tight(gate_up);
  calls_.emplace_back(SwigluCall{y.rows, y.columns, in, out.made.base});
  finish(out);
}

void OpLowering::swiglu_backward() {
  require_operands(3);
  const Rows gate_up = operand(0);
  const Rows dy = operand(1);
  const Rows d_gate_up = operand(2);
  require_equal(gate_up, d_gate_up);
  if (gate_up.columns != 2 * dy.columns || gate_up.rows != dy.rows) fail("gate_up is not rows x 2 ffn");
  const Output out = output(op().operands[2], d_gate_up);
  const Address in = tight(gate_up);
  const Address gradient = tight(dy);
  calls_.emplace_back(SwigluBackwardCall{dy.rows, dy.columns, in, gradient, out.made.base});
  finish(out);
}

void OpLowering::add() {
  require_operands(3);
  const Rows a = operand(0);
  const Rows b = operand(1);
  const Rows sum = operand(2);
  require_equal(a, b);
  require_equal(a, sum);
  calls_.emplace_back(SumRowsCall{{a, b}, sum, op().operands[2].access == Access::kAccumulate});
}

void OpLowering::move() {
  if (op().function == Function::kSplitColumns) return split_columns();
  if (op().function == Function::kJoinColumns) return join_columns();
  if (op().operands.size() % 2 != 0 || op().operands.empty()) fail("a move needs pairs of views");
  for (std::size_t i = 0; i + 1 < op().operands.size(); i += 2) {
    const Rows source = operand(i);
    const Rows target = operand(i + 1);
    require_equal(source, target);
    copy(source, target, op().operands[i + 1].access == Access::kAccumulate);
  }
}

void OpLowering::split_columns() {
  const Rows wide = operand(0);
  const Rows narrow = operand(1);
  const std::int64_t blocks = wide.rows == 0 ? 0 : narrow.rows / wide.rows;
  if (blocks * wide.rows != narrow.rows || (blocks > 0 && blocks * narrow.columns % wide.columns != 0)) {
    fail(fmt::format("cannot split {} x {} into {} x {}", wide.rows, wide.columns, narrow.rows, narrow.columns));
  }
  const std::int64_t repeat = blocks == 0 ? 1 : blocks * narrow.columns / wide.columns;
  for (std::int64_t j = 0; j < blocks; ++j) {
    copy(ViewBinder::columns(wide, j / repeat * narrow.columns, narrow.columns),
         ViewBinder::slice(narrow, j * wide.rows, wide.rows), op().operands[1].access == Access::kAccumulate);
  }
}

void OpLowering::join_columns() {
  const Rows narrow = operand(0);
  const Rows wide = operand(1);
  const std::int64_t blocks = wide.rows == 0 ? 0 : narrow.rows / wide.rows;
  if (blocks * wide.rows != narrow.rows || (blocks > 0 && blocks * narrow.columns % wide.columns != 0)) {
    fail(fmt::format("cannot join {} x {} into {} x {}", narrow.rows, narrow.columns, wide.rows, wide.columns));
  }
  const std::int64_t repeat = blocks == 0 ? 1 : blocks * narrow.columns / wide.columns;
  const bool accumulate = op().operands[1].access == Access::kAccumulate;
  for (std::int64_t j = 0; j < blocks; j += repeat) {
    const Rows target = ViewBinder::columns(wide, j / repeat * narrow.columns, narrow.columns);
    std::vector<Rows> sources;
    for (std::int64_t k = j; k < j + repeat; ++k) {
      sources.push_back(ViewBinder::slice(narrow, k * wide.rows, wide.rows));
    }
    if (repeat == 1) {
      copy(sources.front(), target, accumulate);
    } else {
      calls_.emplace_back(SumRowsCall{sources, target, accumulate});
    }
  }
}

void OpLowering::fill() {
  for (const View& view : op().operands) {
    if (view.tensor.chunks < 0) {
      const Rows rows = rank_.binder_.rows(at_, position_, view);
      if (rows.rows > 0) calls_.emplace_back(FillRowsCall{rows, 0.0F});
      continue;
    }
    std::vector<TensorId> tensors;
    resolve_all(at_, view.tensor, tensors);
    for (const TensorId& id : tensors) {
      const Rows rows = rank_.binder_.whole(at_, position_, id);
      if (rows.rows > 0) calls_.emplace_back(FillRowsCall{rows, 0.0F});
    }
  }
}

void OpLowering::cross_entropy() {
  require_operands(1);
  const View& view = op().operands[0];
  const Rows logits = operand(0);
  if (!logits.dense() || logits.type != ElementType::kBf16) fail("logits that are not dense rows of bf16");
  std::vector<std::int32_t> targets;
  for (const RowToken& token : rank_.binder_.tokens(at_, view, at_.chunk)) {
    targets.push_back(target_token_id(*schedule_.batch, token, schedule_.model.vocab));
  }
  const std::int64_t counted = counted_tokens(*schedule_.batch);
  CrossEntropyCall call;
  call.tokens = logits.rows;
  call.vocabulary = logits.columns;
  call.stride = logits.stride;
  call.logits = logits.base;
  call.targets = rank_.binder_.constants().add(targets);
  call.loss = {MemoryPart::kLoss, rank_.loss_rows_ * 4};
  call.scale = counted > 0 ? 1.0F / static_cast<float>(counted) : 0.0F;
  rank_.loss_rows_ += logits.rows;
  calls_.emplace_back(call);
}

// The state's columns lie apart, each from a multiple of 16 bytes on: master weights, then the two moments.
void OpLowering::adamw() {
  require_operands(3);
  const Rows state = operand(0);
  const Rows gradient = operand(1);
  const Rows parameters = operand(2);
  const std::int64_t n = parameters.rows * parameters.columns;
  const bool fits = gradient.rows * gradient.columns == n && state.rows == n && state.columns == 3 &&
                    state.type == ElementType::kFp32 && gradient.type == ElementType::kBf16 &&
                    parameters.type == ElementType::kBf16;
  if (!fits) fail(fmt::format("AdamW over {} parameters, {} x {} of state", n, state.rows, state.columns));
  const std::int64_t column = align16(4 * n);
  const Address sums = scratch(4 * std::min(n, kAdamwChunk));
  for (std::int64_t begin = 0; begin < n; begin += kAdamwChunk) {
    const std::int64_t count = std::min(kAdamwChunk, n - begin);
    const Rows from{gradient.base + 2 * begin, ElementType::kBf16, 1, count, count, kNoIndex};
    const Rows to{sums, ElementType::kFp32, 1, count, count, kNoIndex};
    copy(from, to, false);
    AdamwCall call;
    call.count = count;
    call.gradient = sums;
    call.w = state.base + 4 * begin;
    call.m = state.base + (column + 4 * begin);
    call.v = state.base + (2 * column + 4 * begin);
    call.weights = parameters.base + 2 * begin;
    calls_.emplace_back(call);
  }
}

}  // namespace longhaul
