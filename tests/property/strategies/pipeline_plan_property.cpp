#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "sim/strategies/pipeline/grouping.h"
#include "sim/strategies/pipeline/planners.h"
#include "sim/strategies/pipeline/sequence_processor.h"

namespace longhaul {
namespace {

// Up to 40 documents, lengths log-uniform in 1..2048, in sequences of `per_sequence` documents.
Batch some_batch(std::size_t per_sequence) {
  Batch batch;
  const auto count = *rc::gen::inRange<std::size_t>(1, 11) * 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t high = std::int64_t{1} << *rc::gen::inRange(1, 12);
    if (i % per_sequence == 0) batch.sequences.emplace_back();
    batch.sequences.back().documents.push_back(static_cast<DocumentId>(i));
    batch.documents.push_back(*rc::gen::inRange<std::int64_t>(std::max<std::int64_t>(1, high / 2), high + 1));
    batch.sequences.back().tokens += batch.documents.back();
  }
  return batch;
}

DppCostModel some_costs() {
  DppCostModel model;
  model.forward = {*rc::gen::inRange(0, 5) * 1e-9, *rc::gen::inRange(0, 5) * 1e-7, 1e-6, 1e-9, 1e-6};
  model.backward = {2 * model.forward.alpha1, 2 * model.forward.alpha2, 2e-6, 1e-9, 1e-6};
  model.recompute = *rc::gen::arbitrary<bool>();
  return model;
}

// Every token once, slices in order in consecutive chunks of one stream, rows padded at the chunk's end.
// Independent of check_plan: counts tokens one by one.
void assert_every_token_once(const PipelinePlan& plan, const Batch& batch) {
  std::vector<std::vector<int>> seen;
  for (const std::int64_t tokens : batch.documents) seen.emplace_back(static_cast<std::size_t>(tokens), 0);
  std::int64_t pairs = 0;
  for (const ReplicaPlan& replica : plan.replicas) {
    for (std::size_t i = 0; i < replica.chunks.size(); ++i) {
      const PipelineChunk& chunk = replica.chunks[i];
      RC_ASSERT(chunk.rows % plan.layout.sp == 0);
      RC_ASSERT(chunk.rows - chunk.tokens < plan.layout.sp);
      pairs += chunk.pairs();
      for (const DocumentPiece& piece : chunk.pieces) {
        RC_ASSERT(piece.first_chunk + piece.slice == static_cast<std::int32_t>(i));
        for (std::int64_t token = piece.first; token < piece.end(); ++token) {
          ++seen[static_cast<std::size_t>(piece.document)][static_cast<std::size_t>(token)];
        }
      }
    }
  }
  for (const std::vector<int>& tokens : seen) {
    RC_ASSERT(std::all_of(tokens.begin(), tokens.end(), [](int count) { return count == 1; }));
  }
  std::int64_t expected = 0;  // sum x(x+1)/2: pairs sum to the undistributed value
  for (const std::int64_t tokens : batch.documents) expected += tokens * (tokens + 1) / 2;
  RC_ASSERT(pairs == expected);
}

RC_GTEST_PROP(PlanSliced, EveryTokenOnce, ()) {
  const Batch batch = some_batch(2);
  const PipelineLayout layout{*rc::gen::inRange(1, 3), *rc::gen::inRange(2, 5), *rc::gen::element(1, 2, 4, 8)};
  const SlicedOptions options{1, *rc::gen::inRange(1, 7),
                              *rc::gen::element(SlicePolicy::kEqualTokens, SlicePolicy::kEqualTime)};
  const Applicable<PipelinePlan> plan = plan_sliced_1f1b(batch, 5, layout, some_costs(), options);
  RC_ASSERT(plan.has_value());
  assert_every_token_once(*plan, batch);
  for (const ReplicaPlan& replica : plan->replicas) {
    RC_ASSERT(replica.streams.size() == 1u);
    RC_ASSERT(replica.streams[0].n_split() <= options.slices);
  }
}

RC_GTEST_PROP(PlanDpp, KeepsEveryRuleOfThePaper, ()) {
  const Batch batch = some_batch(1);
  const PipelineLayout layout{*rc::gen::inRange(1, 4), *rc::gen::inRange(2, 6), *rc::gen::element(1, 2, 4, 8)};
  const DppOptions options{*rc::gen::element<std::int64_t>(300, 700, 3000), *rc::gen::element<std::int64_t>(0, 3000),
                           0};
  const DppCostModel model = some_costs();
  const Applicable<PipelinePlan> plan = plan_dpp(batch, 7, layout, model, options);
  RC_PRE(plan.has_value());
  assert_every_token_once(*plan, batch);
  for (const ReplicaPlan& replica : plan->replicas) {
    std::int32_t before = std::numeric_limits<std::int32_t>::max();
    for (const PipelineStream& stream : replica.streams) {
      for (const std::int32_t slices : stream.slices) {
        RC_ASSERT(slices <= before);  // descending, also from stream to stream (4.1, 4.3)
        before = slices;
      }
      std::vector<std::int64_t> rows;
      for (std::int32_t i = 0; i < stream.chunks(); ++i) {
        rows.push_back(replica.chunks[static_cast<std::size_t>(stream.first_chunk + i)].rows);
      }
      if (options.window_tokens > 0 && replica.window_fits) {
        RC_ASSERT(peak_live_rows(layout.pp, stream, rows) <= options.window_tokens);
      }
    }
    for (const PipelineChunk& chunk : replica.chunks) {
      RC_ASSERT(chunk.rows <= options.chunk_tokens);
      RC_ASSERT(chunk.tokens <= replica.token_cap);
      const auto sliced = std::count_if(chunk.pieces.begin(), chunk.pieces.end(),
                                        [](const DocumentPiece& piece) { return piece.slices > 1; });
      RC_ASSERT(sliced <= 1);  // two tails never share a chunk (2.1)
      // Only a tail may have company.
      RC_ASSERT(sliced == 0 || chunk.pieces.size() == 1 || chunk.pieces[0].slice + 1 == chunk.pieces[0].slices);
      for (const DocumentPiece& piece : chunk.pieces) RC_ASSERT(piece.first % layout.sp == 0);
    }
  }
}

// More values of K to choose from never make the plan slower, and the K named is one of them.
RC_GTEST_PROP(PlanDpp, KeepsTheFastestK, ()) {
  const Batch batch = some_batch(1);
  const DppCostModel model = some_costs();
  double before = std::numeric_limits<double>::infinity();
  for (const std::int32_t most : {1, 2, 4, 8}) {
    const Applicable<PipelinePlan> plan = plan_dpp(batch, 4, {1, 3, 2}, model, {4096, 0, most});
    RC_ASSERT(plan.has_value());
    const ReplicaPlan& replica = plan->replicas[0];
    RC_ASSERT(replica.modelled_seconds <= before);
    RC_ASSERT(replica.mesh_slices >= 1);
    RC_ASSERT(replica.mesh_slices <= most);
    RC_ASSERT(replica.streams[0].n_split() == replica.mesh_slices);  // the longest document has K slices
    before = replica.modelled_seconds;
  }
}

RC_GTEST_PROP(PlanDpp, IsDeterministic, ()) {
  const Batch batch = some_batch(1);
  const DppCostModel model = some_costs();
  const Applicable<PipelinePlan> a = plan_dpp(batch, 4, {2, 2, 2}, model, {3000, 0, 0});
  const Applicable<PipelinePlan> b = plan_dpp(batch, 4, {2, 2, 2}, model, {3000, 0, 0});
  RC_ASSERT(a.has_value() && b.has_value());
  for (std::size_t i = 0; i < 2; ++i) {
    RC_ASSERT(a->replicas[i].order.stages == b->replicas[i].order.stages);
    RC_ASSERT(a->replicas[i].modelled_seconds == b->replicas[i].modelled_seconds);
  }
}

// S[i] of 4.3 and Alg. 1's limits: slices follow from the mesh, chunks stay under T_m and the loosened T_t, which is
// the mesh's or the time of some bucket.
RC_GTEST_PROP(SequenceProcessor, BucketsRespectBothLimits, ()) {
  const Batch batch = some_batch(1);
  const StageCost cost(some_costs(), 4, {1, 2, 2});
  const std::int64_t longest = *std::max_element(batch.documents.begin(), batch.documents.end());
  const std::optional<SliceMesh> mesh = make_mesh(cost, longest, *rc::gen::inRange(1, 9), 2);
  RC_PRE(mesh.has_value());
  const std::int64_t cap = mesh->most_tokens() + *rc::gen::inRange(0, 500);
  const ProcessedDocuments processed = process_documents(batch.documents, cost, *mesh, cap);
  std::multiset<double> times;
  std::multiset<std::int32_t> shorts;
  for (const ChunkBucket& bucket : processed.buckets) {
    RC_ASSERT(bucket.tokens <= cap);
    RC_ASSERT(bucket.seconds <= processed.target_seconds);
    times.insert(bucket.seconds);
    shorts.insert(bucket.shorts.begin(), bucket.shorts.end());
  }
  RC_ASSERT(processed.target_seconds == mesh->cell_seconds || times.count(processed.target_seconds) > 0);
  for (std::size_t i = 0; i < batch.documents.size(); ++i) {
    const auto slices = static_cast<std::size_t>(processed.slices[i]);
    RC_ASSERT(mesh->cuts[slices - 1] < batch.documents[i]);
    RC_ASSERT(batch.documents[i] <= mesh->cuts[slices]);
    RC_ASSERT(shorts.count(static_cast<std::int32_t>(i)) == (slices == 1 ? 1u : 0u));
  }
}

// Eq. 14 against all 2^(n-1) ways to cut n classes into consecutive pipelines.
RC_GTEST_PROP(GroupClasses, IsTheBestOfAllGroupings, ()) {
  const std::int32_t classes = *rc::gen::inRange(1, 9);
  std::vector<std::vector<double>> costs(static_cast<std::size_t>(classes));
  for (std::vector<double>& row : costs) {
    for (std::int32_t i = 0; i < classes; ++i) {
      const int cost = *rc::gen::inRange(0, 60);
      row.push_back(cost > 50 ? std::numeric_limits<double>::infinity() : cost);
    }
  }
  const auto cost = [&](ClassRange range) {
    return costs[static_cast<std::size_t>(range.first)][static_cast<std::size_t>(range.last)];
  };
  double best = std::numeric_limits<double>::infinity();
  for (std::uint32_t cuts = 0; cuts < (1u << (classes - 1)); ++cuts) {
    double total = 0;
    std::int32_t first = 0;
    for (std::int32_t i = 0; i < classes; ++i) {
      if (i + 1 < classes && ((cuts >> i) & 1u) == 0) continue;
      total += cost({first, i});
      first = i + 1;
    }
    best = std::min(best, total);
  }
  const Grouping grouping = group_classes(classes, cost);
  RC_ASSERT(grouping.seconds == best);
  RC_ASSERT(grouping.pipelines.empty() == (best == std::numeric_limits<double>::infinity()));
  double total = 0;
  std::int32_t next = 0;
  for (const ClassRange& range : grouping.pipelines) {
    RC_ASSERT(range.first == next);
    next = range.last + 1;
    total += cost(range);
  }
  RC_ASSERT(grouping.pipelines.empty() || (next == classes && total == best));
}

}  // namespace
}  // namespace longhaul
