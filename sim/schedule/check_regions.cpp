#include "sim/schedule/check_regions.h"

#include <algorithm>

namespace longhaul {

Spans sorted_spans(Spans spans) {
  std::sort(spans.begin(), spans.end(), [](const RowSpan& a, const RowSpan& b) { return a.begin < b.begin; });
  Spans merged;
  for (const RowSpan& span : spans) {
    if (span.count <= 0) continue;
    if (!merged.empty() && merged.back().begin + merged.back().count >= span.begin) {
      RowSpan& last = merged.back();
      last.count = std::max(last.begin + last.count, span.begin + span.count) - last.begin;
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

bool overlap(const Spans& a, const Spans& b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i].begin + a[i].count <= b[j].begin) {
      ++i;
    } else if (b[j].begin + b[j].count <= a[i].begin) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

bool covers(const Spans& outer, const Spans& inner) {
  std::size_t i = 0;
  for (const RowSpan& span : inner) {  // both are merged: one outer span holds all of it
    while (i < outer.size() && outer[i].begin + outer[i].count < span.begin + span.count) ++i;
    if (i == outer.size() || outer[i].begin > span.begin) return false;
  }
  return true;
}

bool overlap(const TensorRegion& a, const TensorRegion& b) {
  if (a.empty() || b.empty()) return false;
  if (a.column_end <= b.column_begin || b.column_end <= a.column_begin) return false;
  return a.rows == nullptr || b.rows == nullptr || a.rows == b.rows || overlap(*a.rows, *b.rows);
}

bool covers(const TensorRegion& outer, const TensorRegion& inner) {
  if (inner.empty()) return true;
  if (outer.column_begin > inner.column_begin || outer.column_end < inner.column_end) return false;
  if (outer.rows == nullptr || outer.rows == inner.rows) return true;
  return inner.rows != nullptr && covers(*outer.rows, *inner.rows);
}

bool covered(const TensorRegion& region, const std::vector<TensorRegion>& parts, std::int64_t rows) {
  if (region.empty() || rows == 0) return true;
  if (std::any_of(parts.begin(), parts.end(), [&](const TensorRegion& part) { return covers(part, region); }))
    return true;
  const Spans all = {{0, rows}};
  const auto rows_of = [&](const TensorRegion& of) -> const Spans& { return of.rows == nullptr ? all : *of.rows; };
  std::vector<std::int64_t> cuts = {region.column_begin, region.column_end};
  for (const TensorRegion& part : parts) {
    for (const std::int64_t cut : {part.column_begin, part.column_end}) {
      if (cut > region.column_begin && cut < region.column_end) cuts.push_back(cut);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
    Spans held;
    for (const TensorRegion& part : parts) {
      if (part.column_begin > cuts[c] || part.column_end < cuts[c + 1]) continue;
      const Spans& spans = rows_of(part);
      held.insert(held.end(), spans.begin(), spans.end());
    }
    if (!covers(sorted_spans(std::move(held)), rows_of(region))) return false;
  }
  return true;
}

const Spans* ShapeRegions::rows(RowListSlot slot) {
  if (slot == kAllRows) return nullptr;
  Lists& list = lists_[static_cast<std::size_t>(slot)];
  if (!list.made) {
    list.spans = sorted_spans(shape_->row_lists[static_cast<std::size_t>(slot)]->spans);
    list.made = true;
  }
  return &list.spans;
}

// Rows of a view as rows of its tensor.
void ShapeRegions::place(RowListSlot rows, const RowSpan& of_view, Spans& out) const {
  if (rows == kAllRows) {
    out.push_back(of_view);
    return;
  }
  std::int64_t first = 0;  // of the view
  for (const RowSpan& span : shape_->row_lists[static_cast<std::size_t>(rows)]->spans) {
    const std::int64_t begin = std::max(first, of_view.begin);
    const std::int64_t end = std::min(first + span.count, of_view.begin + of_view.count);
    if (begin < end) out.push_back({span.begin + begin - first, end - begin});
    first += span.count;
    if (first >= of_view.begin + of_view.count) return;
  }
}

const std::vector<TensorRegion>& ShapeRegions::exchange(ExchangeSlot slot, RowListSlot rows, bool send) {
  const auto [entry, is_new] = exchanges_.try_emplace({slot, rows, send});
  if (!is_new) return entry->second;
  const ExchangeListPtr& list = shape_->exchanges[static_cast<std::size_t>(slot)];
  if (list == nullptr) return entry->second;
  std::map<std::pair<std::int64_t, std::int64_t>, Spans> by_columns;
  for (const PeerExchange& peer : *list) {
    const RowListPtr& peer_rows = send ? peer.send_rows : peer.receive_rows;
    if (peer_rows == nullptr) continue;
    const std::int64_t begin = send ? peer.send_column : peer.receive_column;
    const std::int64_t end = begin + (send ? peer.send_columns : peer.receive_columns);
    for (const RowSpan& span : peer_rows->spans) place(rows, span, by_columns[{begin, end}]);
  }
  for (auto& [columns, spans] : by_columns) {
    owned_.push_back(sorted_spans(std::move(spans)));
    entry->second.push_back({&owned_.back(), columns.first, columns.second});
  }
  return entry->second;
}

const Spans* ShapeRegions::pieces(PieceSlot slot, int operand, RowListSlot rows) {
  const auto [entry, is_new] = pieces_.try_emplace({slot, operand, rows});
  if (!is_new) return &entry->second;
  Spans of_view;
  for (const Piece& piece : shape_->pieces[static_cast<std::size_t>(slot)]->pieces) {
    if (operand < 0) of_view.push_back({piece.q_row, piece.q_count});
    if (operand == piece.operand) of_view.push_back({piece.k_row, piece.k_count});
  }
  Spans of_tensor;
  for (const RowSpan& span : sorted_spans(std::move(of_view))) place(rows, span, of_tensor);
  entry->second = sorted_spans(std::move(of_tensor));
  return &entry->second;
}

namespace {

class Lister {
 public:
  Lister(const Schedule& schedule, const OpInstance& at, ShapeRegions* shape, std::vector<Use>& uses)
      : schedule_(schedule), at_(at), shape_(shape), uses_(uses) {}

  void list() {
    const Op& op = *at_.op;
    switch (op.kind) {
      case OpKind::kAttention:
        return attention();
      case OpKind::kCollective:
        return collective();
      case OpKind::kGemm:
      case OpKind::kMergePartials:
      case OpKind::kElementwise:
      case OpKind::kMove:
      case OpKind::kOptimizer:
        break;
    }
    for (const View& view : op.operands) {
      if (view.tensor.kind >= 0 && view.tensor.chunks >= 0) {
        every_chunk(view);
      } else {
        whole(view, at_.chunk);
      }
    }
  }

 private:
  bool flat(const View& view) const {
    return schedule_.tensors[static_cast<std::size_t>(view.tensor.kind)].rows == kFlat;
  }

  void add(const View& view, std::int32_t chunk, const TensorRegion& region) {
    if (!region.empty()) uses_.push_back({resolve(at_, view.tensor, chunk), view.access, region});
  }

  // Whole view, or the given rows of it.
  void add_rows(const View& view, std::int32_t chunk, const Spans* rows) {
    add(view, chunk, {rows, view.column_begin, view.column_begin + view.columns});
  }

  void whole(const View& view, std::int32_t chunk) {
    if (view.tensor.kind < 0) return;
    if (flat(view)) {
      add(view, chunk, {nullptr, view.flat_begin, view.flat_begin + view.flat_rows * view.columns});
    } else {
      add_rows(view, chunk, view.rows == kAllRows ? nullptr : shape_->rows(view.rows));
    }
  }

  void every_chunk(const View& view) {
    const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(view.tensor.kind)];
    const std::int64_t end = kind.rows == kFlat ? kind.flat_rows * kind.columns : kind.columns;
    for (const std::int32_t chunk : at_.shape->chunk_lists[static_cast<std::size_t>(view.tensor.chunks)]) {
      add(view, chunk, {nullptr, 0, end});
    }
  }

  void of_pieces(const View& view, std::int32_t chunk, int operand) {
    if (view.tensor.kind >= 0) add_rows(view, chunk, shape_->pieces(at_.op->pieces, operand, view.rows));
  }

  void attention() {
    const Op& op = *at_.op;
    const bool backward = op.pass == Pass::kBackward;
    of_pieces(op.q, at_.chunk, -1);
    if (backward) {
      for (const View* view : {&op.o, &op.lse, &op.o_gradient}) of_pieces(*view, at_.chunk, -1);
      whole(op.q_gradient, at_.chunk);
    } else {
      whole(op.o, at_.chunk);
      whole(op.lse, at_.chunk);
    }
    const std::vector<ExpandedOperand> operands = expand_operands(at_);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const KeyValueOperand& operand = *operands[i].operand;
      of_pieces(operand.key, operands[i].chunk, static_cast<int>(i));
      of_pieces(operand.value, operands[i].chunk, static_cast<int>(i));
      if (!backward) continue;
      whole(operand.key_gradient, operands[i].chunk);
      whole(operand.value_gradient, operands[i].chunk);
    }
  }

  void exchange(const View& view, ExchangeSlot slot, bool send) {
    if (view.tensor.kind < 0 || slot < 0) return;
    for (const TensorRegion& region : shape_->exchange(slot, view.rows, send)) {
      add(view, at_.chunk,
          {region.rows, view.column_begin + region.column_begin, view.column_begin + region.column_end});
    }
  }

  void collective() {
    const Op& op = *at_.op;
    const bool first = op.collective != CollectiveKind::kBroadcast || schedule_.member_index(at_.rank, op.role) == 0;
    for (const CollectivePart& part : op.parts) {
      if (op.collective == CollectiveKind::kExchange) {
        exchange(part.send, part.exchange, true);
        exchange(part.receive, part.exchange, false);
        continue;
      }
      if (op.collective != CollectiveKind::kAllReduce && first) whole(part.send, at_.chunk);
      if (op.collective != CollectiveKind::kBroadcast || !first) whole(part.receive, at_.chunk);
    }
  }

  const Schedule& schedule_;
  const OpInstance& at_;
  ShapeRegions* shape_;
  std::vector<Use>& uses_;
};

}  // namespace

void list_uses(const Schedule& schedule, const OpInstance& at, ShapeRegions* shape, std::vector<Use>& uses) {
  Lister(schedule, at, shape, uses).list();
}

}  // namespace longhaul
