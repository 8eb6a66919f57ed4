// What the ranks do together is what one device would do: attention pairs, rows, tokens and counted labels summed over
// ranks equal the undistributed values in every layer, for random batches of every strategy.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "tests/property/validate/verify_case.h"

namespace longhaul {
namespace {

std::int64_t draw_by_rapidcheck(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
}

struct LayerSums {
  std::int64_t pair_heads = 0;           // pairs x query heads of forward attention
  std::int64_t backward_pair_heads = 0;  // of backward attention
  std::int64_t tokens = 0;               // rows that are not padding, at the layer's first op
};

struct StepSums {
  std::map<std::int64_t, LayerSums> layers;
  std::int64_t embedded = 0;  // tokens that enter the first layer
  std::int64_t scored = 0;    // tokens whose logits are formed
  std::int64_t counted = 0;   // of these, those that the loss counts
};

const RowMap& rows_of(const Schedule& schedule, const OpInstance& at, const View& view) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(view.tensor.kind)];
  return *at.shape->row_maps[static_cast<std::size_t>(kind.rows)];
}

std::int64_t counted_rows(const Batch& batch, const RowMap& map) {
  std::int64_t counted = 0;
  for (const RowRun& run : map.runs) {
    for (std::int64_t i = 0; i < run.count && run.document >= 0; ++i) {
      const std::int64_t token = run.token(i);
      const bool last = token + 1 == batch.documents[static_cast<std::size_t>(run.document)];
      const bool diffusion = batch.objective.kind == ObjectiveKind::kBlockDiffusion;
      counted += diffusion ? is_corrupted(run.document, token) : !last;
    }
  }
  return counted;
}

StepSums sums_of(const Schedule& schedule) {
  StepSums sums;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Cursor cursor(static_cast<std::int32_t>(rank));
    OpInstance at;
    while (cursor.next(schedule, at)) {
      const Op& op = *at.op;
      if (op.kind == OpKind::kAttention && op.pass != Pass::kRecompute) {
        const std::int64_t pairs = at.shape->pieces[static_cast<std::size_t>(op.pieces)]->pairs * op.q_heads;
        LayerSums& layer = sums.layers[at.layer];
        (op.pass == Pass::kForward ? layer.pair_heads : layer.backward_pair_heads) += pairs;
      }
      if (op.label == "attention_norm" && op.pass == Pass::kForward) {
        sums.layers[at.layer].tokens += rows_of(schedule, at, op.operands[2]).tokens;
      }
      if (op.function == Function::kEmbedding) sums.embedded += rows_of(schedule, at, op.operands[1]).tokens;
      if (op.function == Function::kCrossEntropy) {
        sums.scored += rows_of(schedule, at, op.operands[0]).tokens;
        sums.counted += counted_rows(*schedule.batch, rows_of(schedule, at, op.operands[0]));
      }
    }
  }
  return sums;
}

class SumsOverRanks : public testing::TestWithParam<std::string> {};

TEST_P(SumsOverRanks, EqualTheUndistributedValues) {
  const Strategy& strategy = *find_strategy(GetParam());
  std::map<std::string, int> redrawn;
  EXPECT_TRUE(rc::check("sums over ranks: " + strategy.name, [&] {
    const VerifyCase drawn = draw_applicable(strategy, draw_by_rapidcheck, redrawn);
    RC_LOG() << describe(drawn.request) << "\n";
    const Batch& batch = *drawn.request.batch;
    const StepSums sums = sums_of(*drawn.schedule);
    const std::int64_t pairs = batch_pairs(batch) * drawn.request.model.q_heads;
    RC_ASSERT(static_cast<std::int64_t>(sums.layers.size()) == drawn.request.model.layers);
    for (const auto& [layer, of_layer] : sums.layers) {
      RC_ASSERT(of_layer.pair_heads == pairs);
      RC_ASSERT(of_layer.backward_pair_heads == pairs);
      RC_ASSERT(of_layer.tokens == batch_rows(batch));
    }
    RC_ASSERT(sums.embedded == batch_rows(batch));
    RC_ASSERT(sums.scored == batch.tokens());  // block diffusion scores its noisy rows alone
    RC_ASSERT(sums.counted == counted_tokens(batch));
  }));
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Strategy, SumsOverRanks, testing::ValuesIn(strategy_names()), test_name);

}  // namespace
}  // namespace longhaul
