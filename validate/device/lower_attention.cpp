// Attention and merges as kernel calls: keys packed, pieces moved to the packed rows.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "sim/core/invariant.h"
#include "validate/device/op_lowering.h"

namespace longhaul {
namespace {

// Sorted, overlapping and adjacent ones joined.
std::vector<RowSpan> joined(std::vector<RowSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](const RowSpan& a, const RowSpan& b) { return a.begin < b.begin; });
  std::vector<RowSpan> result;
  for (const RowSpan& span : spans) {
    if (span.count == 0) continue;
    if (!result.empty() && span.begin <= result.back().begin + result.back().count) {
      RowSpan& last = result.back();
      last.count = std::max(last.count, span.begin + span.count - last.begin);
    } else {
      result.push_back(span);
    }
  }
  return result;
}

std::vector<std::int32_t> numbers_of(const std::vector<RowSpan>& spans) {
  std::vector<std::int32_t> numbers;
  for (const RowSpan& span : spans) {
    for (std::int64_t i = 0; i < span.count; ++i) numbers.push_back(static_cast<std::int32_t>(span.begin + i));
  }
  return numbers;
}

}  // namespace

OpLowering::Keys OpLowering::list_keys() const {
  if (op().pieces < 0) fail("attention without a piece list");
  const std::vector<Piece>& pieces = at_.shape->pieces[static_cast<std::size_t>(op().pieces)]->pieces;
  Keys keys;
  std::vector<std::vector<RowSpan>> named;
  for (const ExpandedOperand& expanded : expand_operands(at_)) {
    Source source;
    source.operand = expanded.operand;
    source.chunk = expanded.chunk;
    source.rows = rank_.binder_.rows(at_, position_, expanded.operand->key, expanded.chunk).rows;
    keys.sources.push_back(std::move(source));
  }
  named.resize(keys.sources.size());
  for (const Piece& piece : pieces) {
    const auto operand = static_cast<std::size_t>(piece.operand);
    if (piece.operand < 0 || operand >= keys.sources.size()) fail(fmt::format("a piece names operand {}", operand));
    if (piece.k_count < 1) fail(fmt::format("a piece of {} keys", piece.k_count));
    if (piece.k_row < 0 || piece.k_row + piece.k_count > keys.sources[operand].rows) {
      fail(fmt::format("a piece names key rows {} + {} of {}", piece.k_row, piece.k_count, keys.sources[operand].rows));
    }
    named[operand].push_back({piece.k_row, piece.k_count});
  }
  for (std::size_t i = 0; i < keys.sources.size(); ++i) {
    Source& source = keys.sources[i];
    source.named = joined(std::move(named[i]));
    for (const RowSpan& span : source.named) {
      source.packed.push_back(keys.rows);
      keys.rows += span.count;
    }
  }
  keys.whole = keys.sources.size() == 1 && keys.rows == keys.sources.front().rows;
  auto moved = std::make_shared<std::vector<Piece>>(pieces);
  for (Piece& piece : *moved) {
    const Source& source = keys.sources[static_cast<std::size_t>(piece.operand)];
    std::size_t span = 0;  // the last one that begins at or before the piece's keys
    while (span + 1 < source.named.size() && source.named[span + 1].begin <= piece.k_row) ++span;
    piece.k_row = source.packed[span] + piece.k_row - source.named[span].begin;
    piece.operand = 0;
  }
  keys.pieces = std::move(moved);
  return keys;
}

Address OpLowering::pack(const Keys& keys, View KeyValueOperand::*which) {
  if (keys.whole) {
    const Source& only = keys.sources.front();
    const Rows rows = rank_.binder_.rows(at_, position_, only.operand->*which, only.chunk);
    if (rows.tight()) return rows.base;
  }
  const std::int64_t width = op().kv_heads * op().head_dim;
  const Rows packed = scratch_rows(keys.rows, width, ElementType::kBf16);
  for (const Source& source : keys.sources) {
    if (source.named.empty()) continue;
    const Rows rows = rank_.binder_.rows(at_, position_, source.operand->*which, source.chunk);
    if (rows.columns != width || rows.rows != source.rows) fail("keys and values are not kv_heads x head_dim");
    const Rows selected = rank_.binder_.select(rows, numbers_of(source.named));
    copy(selected, ViewBinder::slice(packed, source.packed.front(), selected.rows), false);
  }
  return packed.base;
}

void OpLowering::unpack(const Keys& keys, View KeyValueOperand::*which, const Rows& packed) {
  for (const Source& source : keys.sources) {
    const View& view = source.operand->*which;
    const Rows rows = rank_.binder_.rows(at_, position_, view, source.chunk);
    const bool accumulate = view.access == Access::kAccumulate;
    std::int64_t count = 0;
    for (const RowSpan& span : source.named) count += span.count;
    if (!accumulate && count < rows.rows) calls_.emplace_back(FillRowsCall{rows, 0.0F});
    if (count == 0) continue;
    copy(ViewBinder::slice(packed, source.packed.front(), count), rank_.binder_.select(rows, numbers_of(source.named)),
         accumulate);
  }
}

void OpLowering::attention_forward() {
  const Rows q = rank_.binder_.rows(at_, position_, op().q);
  const Rows o = rank_.binder_.rows(at_, position_, op().o);
  const Rows lse = rank_.binder_.rows(at_, position_, op().lse);
  if (q.columns != op().q_heads * op().head_dim) fail("q is not q_heads x head_dim");
  require_equal(q, o);
  if (lse.rows != q.rows || lse.columns != op().q_heads || lse.type != ElementType::kFp32) fail("lse does not fit q");
  const Keys keys = list_keys();
  const Output o_out = output(op().o, o);
  const Output lse_out = output(op().lse, lse);
  if (o_out.accumulate || lse_out.accumulate) fail("attention writes o and lse; it cannot add to them");
  if (keys.rows == 0) {
    calls_.emplace_back(FillRowsCall{o, 0.0F});
    calls_.emplace_back(FillRowsCall{lse, -std::numeric_limits<float>::infinity()});
    return;
  }
  AttentionForwardCall call;
  call.q_rows = q.rows;
  call.k_rows = keys.rows;
  call.q_heads = op().q_heads;
  call.kv_heads = op().kv_heads;
  call.head_dim = op().head_dim;
  call.pieces = keys.pieces;
  call.q = tight(q);
  call.k = pack(keys, &KeyValueOperand::key);
  call.v = pack(keys, &KeyValueOperand::value);
  call.o = o_out.made.base;
  call.lse = lse_out.made.base;
  calls_.emplace_back(call);
  finish(o_out);
  finish(lse_out);
}

void OpLowering::attention_backward() {
  const Rows q = rank_.binder_.rows(at_, position_, op().q);
  const Rows o = rank_.binder_.rows(at_, position_, op().o);
  const Rows lse = rank_.binder_.rows(at_, position_, op().lse);
  const Rows d_o = rank_.binder_.rows(at_, position_, op().o_gradient);
  const Rows dq = rank_.binder_.rows(at_, position_, op().q_gradient);
  require_equal(q, o);
  require_equal(q, d_o);
  require_equal(q, dq);
  const Keys keys = list_keys();
  const std::int64_t width = op().kv_heads * op().head_dim;
  const Rows empty{{}, ElementType::kBf16, 0, width, width, kNoIndex};
  if (keys.rows == 0 || q.rows == 0) {
    if (op().q_gradient.access == Access::kWrite && q.rows > 0) calls_.emplace_back(FillRowsCall{dq, 0.0F});
    unpack(keys, &KeyValueOperand::key_gradient, empty);
    unpack(keys, &KeyValueOperand::value_gradient, empty);
    return;
  }
  const Output dq_out = output(op().q_gradient, dq);
  AttentionBackwardCall call;
  call.q_rows = q.rows;
  call.k_rows = keys.rows;
  call.q_heads = op().q_heads;
  call.kv_heads = op().kv_heads;
  call.head_dim = op().head_dim;
  call.pieces = keys.pieces;
  call.q = tight(q);
  call.k = pack(keys, &KeyValueOperand::key);
  call.v = pack(keys, &KeyValueOperand::value);
  call.o = tight(o);
  call.lse = tight(lse);
  call.d_o = tight(d_o);
  call.dq = dq_out.made.base;
  // Gradients of keys: straight into the operand's, or packed like the keys.
  const auto gradient = [&](View KeyValueOperand::*which) -> Output {
    if (keys.whole) {
      const View& view = keys.sources.front().operand->*which;
      return output(view, rank_.binder_.rows(at_, position_, view, keys.sources.front().chunk));
    }
    Output out;
    out.made = scratch_rows(keys.rows, width, ElementType::kBf16);
    return out;
  };
  const Output dk = gradient(&KeyValueOperand::key_gradient);
  const Output dv = gradient(&KeyValueOperand::value_gradient);
  call.dk = dk.made.base;
  call.dv = dv.made.base;
  calls_.emplace_back(call);
  finish(dq_out);
  if (keys.whole) {
    finish(dk);
    finish(dv);
    return;
  }
  unpack(keys, &KeyValueOperand::key_gradient, dk.made);
  unpack(keys, &KeyValueOperand::value_gradient, dv.made);
}

void OpLowering::merge() {
  require_operands(4);
  const Rows part_o = operand(0);
  const Rows part_lse = operand(1);
  const Rows o = operand(2);
  const Rows lse = operand(3);
  require_equal(part_o, o);
  require_equal(part_lse, lse);
  if (o.rows != lse.rows || lse.columns == 0 || o.columns % lse.columns != 0) fail("lse is not rows x heads");
  if (o.stride != o.columns || lse.stride != lse.columns || o.index != lse.index) {
    fail("a merge into columns of wider rows, or into other rows of o than of lse");
  }
  MergeCall call;
  call.rows = o.rows;
  call.heads = lse.columns;
  call.head_dim = o.columns / lse.columns;
  call.part_o = tight(part_o);
  call.part_lse = tight(part_lse);
  call.o = o.base;
  call.lse = lse.base;
  call.index = o.index;
  calls_.emplace_back(call);
}

}  // namespace longhaul
