// zigzag-cp run on virtual ranks against the undistributed reference: loss, every gradient, O, dQ, dK and dV, in every
// order that streams and events leave open.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/core/rng.h"
#include "tests/unit/strategies/ring_case.h"
#include "validate/cpu/verify.h"

namespace longhaul {
namespace {

// Documents of one sequence: 1 to 5 of them, often of 1 token, at most `most` tokens each.
std::vector<std::int64_t> some_sequence(Rng& rng, std::int64_t most) {
  std::vector<std::int64_t> documents;
  const std::int64_t count = rng.integer(1, 5);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t kind = rng.integer(0, 3);
    documents.push_back(kind == 0 ? 1 : rng.integer(1, kind == 1 ? 5 : most));
  }
  return documents;
}

std::string describe(const RingCase& of) {
  std::string text = fmt::format("cp {} dp {} zero {} recompute {} micro {} kv {}:", of.cp, of.dp, of.zero_stage,
                                 static_cast<int>(of.recompute), of.micro_batch_sequences, of.kv_heads);
  for (const auto& documents : of.sequences) text += fmt::format(" [{}]", fmt::join(documents, " "));
  return text;
}

void expect_equal_to_reference(const RingCase& of) {
  SCOPED_TRACE(describe(of));
  const Planned planned = plan_zigzag_step(of);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  for (const ExecutionOrder order : {ExecutionOrder::kProgram, ExecutionOrder::kComputeFirst,
                                     ExecutionOrder::kCommunicationFirst, ExecutionOrder::kRandom}) {
    VerifyOptions options;
    options.order = order;
    const VerifyReport report = verify(*planned->schedule, options);
    EXPECT_TRUE(report.pass) << "order " << static_cast<int>(order);
    EXPECT_TRUE(report.violations.empty()) << fmt::format("{}", fmt::join(report.violations, "\n"));
    for (const QuantityError& quantity : report.quantities) {
      EXPECT_LE(quantity.error, 1e-10) << quantity.name << " " << quantity.worst;
    }
  }
}

class RingVerify : public testing::TestWithParam<int> {};

TEST_P(RingVerify, EqualsTheReference) {
  Rng rng(static_cast<std::uint64_t>(GetParam()), "ring");
  for (const int zero_stage : {0, 3}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      for (const std::int64_t kv_heads : {4, 4, 2, 2, 1}) {
        RingCase of;
        of.cp = GetParam();
        of.zero_stage = zero_stage;
        of.recompute = recompute;
        of.kv_heads = kv_heads;
        of.dp = of.cp <= 3 ? static_cast<int>(rng.integer(1, 2)) : 1;
        of.micro_batch_sequences = rng.integer(1, 2);
        const std::int64_t chunks = rng.integer(1, 3);
        for (std::int64_t i = 0; i < of.dp * of.micro_batch_sequences * chunks; ++i) {
          of.sequences.push_back(some_sequence(rng, 40));
          std::vector<std::int64_t>& documents = of.sequences.back();  // at least a token a rank
          while (std::accumulate(documents.begin(), documents.end(), std::int64_t{0}) < of.cp) documents.push_back(1);
        }
        expect_equal_to_reference(of);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingVerify, testing::Values(1, 2, 3, 4, 5, 8));

// Every document is one token, padded to 16 rows: nearly all rows are padding, and most steps have no pieces.
TEST(RingVerifySmall, DocumentsOfOneTokenOnEightRanks) {
  RingCase of;
  of.cp = 8;
  of.sequences = {std::vector<std::int64_t>(8, 1)};
  expect_equal_to_reference(of);
}

}  // namespace
}  // namespace longhaul
