// Properties of packing, pair counts and length tables on random inputs.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "sim/workload/documents.h"

namespace longhaul {
namespace {

rc::Gen<LengthTable> any_table() {
  return rc::gen::exec([] {
    const int inner = *rc::gen::inRange(0, 6);
    std::vector<LengthRow> rows = {{0, static_cast<double>(*rc::gen::inRange(1, 50))}};
    for (int i = 1; i <= inner + 1; ++i) {
      rows.push_back({static_cast<double>(i) / (inner + 1), rows.back().tokens + *rc::gen::inRange(0, 400)});
    }
    return LengthTable("random", rows);
  });
}

Objective any_objective() {
  const bool diffusion = *rc::gen::arbitrary<bool>();
  return diffusion ? Objective{ObjectiveKind::kBlockDiffusion, *rc::gen::inRange<std::int64_t>(1, 64)} : Objective{};
}

void run(const std::string& name, const std::function<void()>& property) { EXPECT_TRUE(rc::check(name, property)); }

TEST(Packing, SampledSequencesAreFullAndOrdered) {
  run("sampled", [] {
    const LengthTable table = *any_table();
    const auto context = *rc::gen::inRange<std::int64_t>(1, 5000);
    const auto sequences = *rc::gen::inRange<std::int64_t>(1, 9);
    Rng rng(static_cast<std::uint64_t>(*rc::gen::arbitrary<int>()), "s");
    const Batch batch = sampled_batch(table, any_objective(), context, sequences, rng);
    RC_ASSERT(static_cast<std::int64_t>(batch.sequences.size()) == sequences);
    DocumentId next = 0;
    for (const Sequence& sequence : batch.sequences) {
      std::int64_t tokens = 0;
      for (const DocumentId id : sequence.documents) {
        RC_ASSERT(id == next++);
        const std::int64_t length = batch.documents[static_cast<std::size_t>(id)];
        RC_ASSERT(length >= 1);
        // Only the last document of a sequence may be shorter than the table's shortest: it is cut.
        if (id != sequence.documents.back()) RC_ASSERT(static_cast<double>(length) >= table.rows().front().tokens);
        RC_ASSERT(static_cast<double>(length) <= table.rows().back().tokens);
        tokens += length;
      }
      RC_ASSERT(tokens == context);
      RC_ASSERT(sequence.tokens == context);
    }
    RC_ASSERT(static_cast<std::size_t>(next) == batch.documents.size());
  });
}

TEST(Packing, PackedSequencesKeepTheOrderAndCutAtTheEnd) {
  run("packed", [] {
    const auto lengths =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 300)));
    const auto context = *rc::gen::inRange<std::int64_t>(1, 500);
    const auto sequences = *rc::gen::inRange<std::int64_t>(1, 6);
    const Batch batch = packed_batch(lengths, {}, context, sequences);
    RC_ASSERT(static_cast<std::int64_t>(batch.sequences.size()) <= sequences);
    RC_ASSERT(batch.documents.size() <= lengths.size());
    for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
      const Sequence& sequence = batch.sequences[s];
      if (s + 1 < batch.sequences.size()) RC_ASSERT(sequence.tokens == context);
      for (const DocumentId id : sequence.documents) {
        const auto d = static_cast<std::size_t>(id);
        RC_ASSERT(batch.documents[d] <= lengths[d]);
        if (batch.documents[d] < lengths[d]) RC_ASSERT(id == sequence.documents.back() && sequence.tokens == context);
      }
    }
    // Documents are left over only when the sequences ran out.
    if (batch.documents.size() < lengths.size()) RC_ASSERT(batch.sequences.back().tokens == context);
  });
}

TEST(Packing, ExplicitBatchIsTheInput) {
  run("explicit", [] {
    const auto lists = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::vector<std::int64_t>>>(
        rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 300)))));
    const Batch batch = explicit_batch(lists, any_objective());
    std::vector<std::vector<std::int64_t>> back;
    for (const Sequence& sequence : batch.sequences) {
      back.emplace_back();
      for (const DocumentId id : sequence.documents)
        back.back().push_back(batch.documents[static_cast<std::size_t>(id)]);
    }
    RC_ASSERT(back == lists);
  });
}

TEST(Pairs, SumOverTheBlocksOfADocument) {
  run("pairs", [] {
    const auto tokens = *rc::gen::inRange<std::int64_t>(1, 100'000);
    const auto block = *rc::gen::inRange<std::int64_t>(1, 5'000);
    std::int64_t sum = 0;
    for (std::int64_t start = 0; start < tokens; start += block) {
      const std::int64_t size = std::min(block, tokens - start);
      sum += size * size + size * start + size * (start + size);  // noisy local, noisy to clean, clean
    }
    RC_ASSERT(document_pairs(tokens, {ObjectiveKind::kBlockDiffusion, block}) == sum);
    RC_ASSERT(document_pairs(tokens, {}) == document_pairs(tokens - 1, {}) + tokens);
  });
}

TEST(Pairs, BlockOfOneIsTwoCausalMasks) {
  run("block of one", [] {
    const auto tokens = *rc::gen::inRange<std::int64_t>(1, 1'000'000);
    RC_ASSERT(document_pairs(tokens, {ObjectiveKind::kBlockDiffusion, 1}) == 2 * document_pairs(tokens, {}));
  });
}

TEST(Counting, CorruptedTokensOneByOne) {
  run("corrupted", [] {
    const auto lengths =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 300)));
    const Batch batch = explicit_batch({lengths}, {ObjectiveKind::kBlockDiffusion, 8});
    std::int64_t count = 0;
    for (std::size_t d = 0; d < lengths.size(); ++d) {
      for (std::int64_t p = 0; p < lengths[d]; ++p) count += is_corrupted(static_cast<DocumentId>(d), p) ? 1 : 0;
    }
    RC_ASSERT(counted_tokens(batch) == count);
  });
}

TEST(Lengths, QuantileFunctionRisesWithinTheTable) {
  run("quantiles", [] {
    const LengthTable table = *any_table();
    const double a = *rc::gen::inRange(0, 1'000'001) * 1e-6;
    const double b = *rc::gen::inRange(0, 1'000'001) * 1e-6;
    RC_ASSERT(table.at(std::min(a, b)) <= table.at(std::max(a, b)) * (1 + 1e-12));
    RC_ASSERT(table.at(a) >= table.rows().front().tokens);
    RC_ASSERT(table.at(a) <= table.rows().back().tokens * (1 + 1e-12));
  });
}

// The mean of many samples is the table's less the half token that rounding down takes (tokens spread over integers).
TEST(Lengths, SampleMeanIsTheTablesMean) {
  Errors errors;
  const LengthTable table("t", {{0, 1}, {0.3, 100}, {0.9, 2000}, {1, 9000}});
  Rng rng(7, "mean");
  constexpr int kDraws = 400'000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) sum += static_cast<double>(table.sample(rng));
  // Standard deviation about 1,400: standard error 2.2, five of them.
  EXPECT_NEAR(sum / kDraws, table.mean() - 0.5, 11);
}

}  // namespace
}  // namespace longhaul
