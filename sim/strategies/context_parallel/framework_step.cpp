#include "sim/strategies/context_parallel/framework_step.h"

#include <algorithm>
#include <map>

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/placed.h"
#include "sim/strategies/step/context_step.h"

namespace longhaul {
namespace {

// A shard, or the part of one that a call takes.
struct CallPart {
  PlacedShard placed;
  int call = 0;
};

// Rows in the first half of the rank are the first call's, a shard across the middle belongs to both.
std::vector<CallPart> halves(const std::vector<PlacedShard>& own, std::int64_t rows) {
  const std::int64_t half = rows / 2;
  std::vector<CallPart> parts;
  for (const PlacedShard& placed : own) {
    const std::int64_t front = std::clamp<std::int64_t>(half - placed.row, 0, placed.shard.tokens);
    const auto add = [&](int call, std::int64_t first, std::int64_t tokens) {
      if (tokens == 0) return;
      PlacedShard part = placed;
      part.row += first;
      part.shard.prefix += first;
      part.shard.tokens = tokens;
      parts.push_back({part, call});
    };
    add(0, 0, front);
    add(1, front, placed.shard.tokens - front);
  }
  return parts;
}

std::vector<CallPart> first_and_others(const std::vector<PlacedShard>& own) {
  std::vector<CallPart> parts;
  std::map<DocumentId, int> seen;
  for (const PlacedShard& placed : own) {
    const bool first = placed.shard.is_padding() || seen[placed.shard.document]++ == 0;
    parts.push_back({placed, first ? 0 : 1});
  }
  return parts;
}

// Query rows, slices of the ordered rows (from the beginning of each document to the furthest shard's end; `joined`:
// runs that adjoin as one) and pieces of one call.
FrameworkCallShape call_shape(const std::vector<CallPart>& parts, int call,
                              const std::map<DocumentId, std::int64_t>& base, bool joined) {
  std::map<DocumentId, std::int64_t> ends;
  for (const CallPart& part : parts) {
    if (part.call != call || part.placed.shard.is_padding()) continue;
    std::int64_t& end = ends[part.placed.shard.document];
    end = std::max(end, part.placed.shard.prefix + part.placed.shard.tokens);
  }
  FrameworkCallShape shape;
  std::map<DocumentId, std::int64_t> key_row;
  std::int64_t rows = 0;
  for (const auto& [document, end] : ends) {
    const RowSpan span{base.at(document), end};
    if (joined && !shape.slices.empty() && shape.slices.back().begin + shape.slices.back().count == span.begin) {
      shape.slices.back().count += span.count;
    } else {
      shape.slices.push_back(span);
    }
    key_row[document] = rows;
    rows += end;
  }
  std::vector<RowSpan> queries;
  std::vector<Piece> pieces;
  std::int64_t q_row = 0;
  for (const CallPart& part : parts) {
    if (part.call != call) continue;
    const Shard& shard = part.placed.shard;
    queries.push_back({part.placed.row, shard.tokens});
    if (!shard.is_padding()) pieces.push_back(causal_piece(shard, q_row, key_row.at(shard.document), 0));
    q_row += shard.tokens;
  }
  shape.query_rows = make_row_list(std::move(queries));
  shape.pieces = make_piece_list(std::move(pieces));
  return shape;
}

// Copies of shards, in order of their targets; those that adjoin on both sides are one.
class CopyBuilder {
 public:
  void add(std::int64_t from, std::int64_t to, std::int64_t rows) { copies_.push_back({{from, rows}, {to, rows}}); }
  std::vector<SliceCopy> take() {
    std::sort(copies_.begin(), copies_.end(),
              [](const SliceCopy& a, const SliceCopy& b) { return a.to.begin < b.to.begin; });
    std::vector<SliceCopy> joined;
    for (const SliceCopy& copy : copies_) {
      SliceCopy* last = joined.empty() ? nullptr : &joined.back();
      if (last != nullptr && last->from.begin + last->from.count == copy.from.begin &&
          last->to.begin + last->to.count == copy.to.begin) {
        last->from.count += copy.from.count;
        last->to.count += copy.to.count;
      } else {
        joined.push_back(copy);
      }
    }
    return joined;
  }

 private:
  std::vector<SliceCopy> copies_;
};

// Rows of [0, rows) that no copy takes.
RowListPtr rest_of(const std::vector<SliceCopy>& copies, std::int64_t rows) {
  std::vector<RowSpan> taken;
  for (const SliceCopy& copy : copies) taken.push_back(copy.from);
  std::sort(taken.begin(), taken.end(), [](const RowSpan& a, const RowSpan& b) { return a.begin < b.begin; });
  std::vector<RowSpan> rest;
  std::int64_t row = 0;
  for (const RowSpan& span : taken) {
    rest.push_back({row, span.begin - row});
    row = span.begin + span.count;
  }
  rest.push_back({row, rows - row});
  return make_row_list(std::move(rest));
}

// Every document whole, in token order, the same on all ranks.
std::map<DocumentId, std::int64_t> order_all(const GatheredRows& gathered, FrameworkGatherShape& shape) {
  std::map<DocumentId, std::int64_t> base;
  std::vector<RowRun> runs;
  CopyBuilder copy;
  std::int64_t row = 0;
  for (const auto& [document, shards] : gathered.of_document) {
    base[document] = row;
    for (const PlacedShard& placed : shards) copy.add(placed.row, row + placed.shard.prefix, placed.shard.tokens);
    const std::int64_t tokens = shards.front().shard.document_tokens;
    runs.push_back({document, TokenView::kClean, 0, tokens});
    row += tokens;
  }
  shape.ordered_rows = make_row_map(std::move(runs));
  shape.gathered = copy.take();
  shape.gathered_zero = rest_of(shape.gathered, shape.gathered_rows->rows);
  return base;
}

// Each document of the rank up to the end of its furthest shard there: own rows from here, others as gathered.
std::map<DocumentId, std::int64_t> order_needed(const GatheredRows& gathered, const std::vector<PlacedShard>& own,
                                                std::size_t rank, FrameworkGatherShape& shape) {
  std::map<DocumentId, std::int64_t> ends;
  for (const PlacedShard& placed : own) {
    if (placed.shard.is_padding()) continue;
    std::int64_t& end = ends[placed.shard.document];
    end = std::max(end, placed.shard.prefix + placed.shard.tokens);
  }
  std::map<DocumentId, std::int64_t> base;
  std::vector<RowRun> runs;
  CopyBuilder remote, local;
  std::int64_t row = 0;
  for (const auto& [document, end] : ends) {
    base[document] = row;
    runs.push_back({document, TokenView::kClean, 0, end});
    const auto found = gathered.of_document.find(document);
    if (found != gathered.of_document.end()) {
      for (const PlacedShard& placed : found->second) {
        const std::int64_t rows = std::min(placed.shard.tokens, end - placed.shard.prefix);
        if (placed.rank != rank && rows > 0) remote.add(placed.row, row + placed.shard.prefix, rows);
      }
    }
    row += end;
  }
  for (const PlacedShard& placed : own) {
    if (placed.shard.is_padding()) continue;
    local.add(placed.row, base.at(placed.shard.document) + placed.shard.prefix, placed.shard.tokens);
  }
  shape.ordered_rows = make_row_map(std::move(runs));
  shape.gathered = remote.take();
  shape.local = local.take();
  shape.gathered_zero = make_row_list({{0, shape.gathered_rows->rows}});
  return base;
}

}  // namespace

std::vector<FrameworkGatherShape> framework_shapes(const CpPlan& plan, FrameworkStyle style) {
  const bool own_rows = style == FrameworkStyle::kOwnRows;
  const GatheredRows gathered = gather_rows(plan, own_rows);
  std::vector<FrameworkGatherShape> shapes;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const std::vector<PlacedShard> own = place(plan.ranks[rank], rank);
    FrameworkGatherShape shape;
    shape.send_rows = gathered.sent[rank];
    shape.padded_rows = gathered.padded;
    shape.gathered_rows = gathered.map;
    const auto base = own_rows ? order_needed(gathered, own, rank, shape) : order_all(gathered, shape);
    const bool by_document = own_rows || style == FrameworkStyle::kPadded;
    const std::vector<CallPart> parts = by_document ? first_and_others(own) : halves(own, plan.padded_tokens_per_rank);
    for (int call = 0; call < kFrameworkCalls; ++call) {
      shape.calls[call] = call_shape(parts, call, base, style == FrameworkStyle::kViews);
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

PlannedStep plan_framework_step(const StrategyRequest& request, std::vector<CpPlan> plans, FrameworkStyle style) {
  std::vector<std::vector<FrameworkGatherShape>> shapes;
  FrameworkGatherConfig config;
  config.packed = style == FrameworkStyle::kOwnRows;
  config.listed = style == FrameworkStyle::kSlices || style == FrameworkStyle::kOwnRows;
  config.sliced = style != FrameworkStyle::kViews;
  config.own_rows = style == FrameworkStyle::kOwnRows;
  config.padded = config.regather = style == FrameworkStyle::kPadded;
  for (const CpPlan& plan : plans) {
    shapes.push_back(framework_shapes(plan, style));
    if (config.padded) continue;  // whole copies, a launch each
    for (const FrameworkGatherShape& shape : shapes.back()) {
      for (const FrameworkCallShape& call : shape.calls) {
        config.call_slices = std::max(config.call_slices, call.slices.size());
      }
    }
  }
  FrameworkGatherScheme scheme(config);
  const auto set_shape = [&](ShapeSet& shape, const StepBuilder& builder, int micro, int member) {
    const auto at = static_cast<std::size_t>(micro);
    builder.set_rows(shape, rank_row_map(plans[at].ranks[static_cast<std::size_t>(member)]));
    scheme.set_shape(shape, shapes[at][static_cast<std::size_t>(member)]);
  };
  PlannedStep planned;
  planned.schedule = context_schedule(
      request, scheme, [&] { return scheme.role(); }, set_shape);
  const CpTraffic traffic = config.own_rows ? CpTraffic::kNonlast : CpTraffic::kFull;
  planned.plan = [kept = std::make_shared<const std::vector<CpPlan>>(std::move(plans)), request, traffic] {
    return plans_json(*kept, request, traffic);
  };
  return planned;
}

}  // namespace longhaul
