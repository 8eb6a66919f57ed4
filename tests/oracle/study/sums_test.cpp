// What all ranks do together is the undistributed step: pairs, tokens and matmul FLOPs, for random batches and every
// strategy, from the schedules alone.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "sim/workload/arithmetic.h"
#include "tests/oracle/study/oracle_case.h"

namespace longhaul::oracle {
namespace {

constexpr std::int64_t kMostTokens = 2048;

ModelShape some_model() {
  ModelShape model;
  model.name = "small";
  model.hidden = 24;
  model.ffn = 40;
  model.q_heads = 8;
  model.kv_heads = *rc::gen::element<std::int64_t>(2, 8);
  model.head_dim = 6;
  model.layers = 4;
  model.vocab = 53;
  return model;
}

// `count` sequences of documents with log-uniform lengths from 1, at least `least` tokens each, and no more than
// kMostTokens in all beyond that.
std::vector<std::vector<std::int64_t>> some_sequences(std::int64_t count, std::int64_t least) {
  std::vector<std::vector<std::int64_t>> sequences(static_cast<std::size_t>(count));
  for (auto& documents : sequences) {
    std::int64_t left = *rc::gen::inRange<std::int64_t>(least, kMostTokens / count + least);
    while (left > 0) {
      const int bits = *rc::gen::inRange(0, 10);
      documents.push_back(std::min(left, *rc::gen::inRange<std::int64_t>(1 << bits, 2 << bits)));
      left -= documents.back();
    }
  }
  return sequences;
}

Degrees some_degrees(StrategyFamily family) {
  Degrees degrees;
  if (family == StrategyFamily::kData) {
    degrees.dp = *rc::gen::element(1, 2, 3, 8);
    return degrees;
  }
  degrees.dp = *rc::gen::element(1, 2);
  if (family == StrategyFamily::kContext) degrees.cp = *rc::gen::element(2, 3, 4, 8);
  if (family == StrategyFamily::kSequence) degrees.sp = *rc::gen::element(2, 4, 8);
  if (family == StrategyFamily::kPipeline) {
    degrees.pp = *rc::gen::element(2, 3, 4);
    degrees.sp = *rc::gen::element(1, 2);
  }
  return degrees;
}

StepCase some_case(const Strategy& strategy) {
  StepCase of;
  of.strategy = strategy.name;
  of.model = some_model();
  of.degrees = some_degrees(strategy.family);
  of.zero_stage = *rc::gen::element(0, 3);
  of.recompute = *rc::gen::element(Recompute::kNone, Recompute::kFull);
  of.micro_batch_sequences = *rc::gen::element(1, 2);
  of.sequences = some_sequences(of.degrees.dp * of.micro_batch_sequences * *rc::gen::inRange(1, 4), of.degrees.cp);
  if (strategy.objective == ObjectiveKind::kBlockDiffusion) {
    of.objective = {strategy.objective, of.degrees.cp * *rc::gen::inRange<std::int64_t>(1, 5)};
  }
  if (strategy.name == "seq1f1b") of.options["slices"] = *rc::gen::inRange(1, 5);
  if (strategy.name == "flashcp") {
    of.options["cut_rule"] = *rc::gen::element<std::string>("equalise", "equalise-swap", "naive");
  }
  return of;
}

struct Sums {
  std::map<std::pair<int, int>, std::int64_t> pairs;    // [pass, layer]: of all query heads
  std::map<int, std::int64_t> tokens;                   // by layer
  std::map<int, std::int64_t> layer_flops, head_flops;  // by pass
};

// A GEMM whose padding rows do not count. Operand 0 has the token rows: m, or the reduced k of a weight gradient.
std::int64_t useful_flops(const Schedule& schedule, const OpInstance& at) {
  const GemmShape shape = gemm_shape(schedule, at);
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(at.op->operands.front().tensor.kind)];
  const RowMap& rows = *at.shape->row_maps[static_cast<std::size_t>(kind.rows)];
  RC_ASSERT((at.op->transpose_a ? shape.k : shape.m) == rows.rows);
  return 2 * rows.tokens * shape.n * (at.op->transpose_a ? shape.m : shape.k);
}

Sums sums_of(const Schedule& schedule) {
  Sums sums;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for_each_op(schedule, rank, [&](const OpInstance& at) {
      const int pass = static_cast<int>(at.op->pass);
      if (at.op->kind == OpKind::kAttention) {
        sums.pairs[{pass, at.layer}] +=
            at.shape->pieces[static_cast<std::size_t>(at.op->pieces)]->pairs * at.op->q_heads;
      } else if (at.op->kind == OpKind::kGemm) {
        const bool head = at.op->label.starts_with("logits");
        (head ? sums.head_flops : sums.layer_flops)[pass] += useful_flops(schedule, at);
      }
    });
    for (int layer = 0; layer < schedule.model.layers; ++layer) {
      sums.tokens[layer] += tokens_of(schedule, rank, layer);
    }
  }
  return sums;
}

// Forward: 2 x matmul parameters x rows; backward twice that; recompute does not repeat the layer's last product, whose
// result is the next layer's input. The head sees every row, or the noisy ones (csbp.md 2.3).
void check_sums(const Schedule& schedule, const StepCase& of) {
  const Batch& batch = *schedule.batch;
  const Sums sums = sums_of(schedule);
  const int forward = static_cast<int>(Pass::kForward), backward = static_cast<int>(Pass::kBackward);
  const int again = static_cast<int>(Pass::kRecompute);
  const bool full = of.recompute == Recompute::kFull;
  const std::int64_t rows = batch_rows(batch), pairs = batch_pairs(batch) * of.model.q_heads;
  RC_ASSERT(sums.pairs.size() == static_cast<std::size_t>((full ? 3 : 2) * of.model.layers));
  for (const auto& [place, sum] : sums.pairs) RC_ASSERT(sum == pairs);
  for (const auto& [place, sum] : sums.tokens) RC_ASSERT(sum == rows);
  const std::int64_t layers = 2 * layer_parameters(of.model).matmul() * rows * of.model.layers;
  const std::int64_t last = 2 * layer_parameters(of.model).down * rows * of.model.layers;
  RC_ASSERT(sums.layer_flops.at(forward) == layers);
  RC_ASSERT(static_cast<double>(layers) ==
            layer_matmul_flops(of.model, rows).value * static_cast<double>(of.model.layers));
  RC_ASSERT(sums.layer_flops.at(backward) == 2 * layers);
  RC_ASSERT(sums.layer_flops.contains(again) == full);
  if (full) RC_ASSERT(sums.layer_flops.at(again) == layers - last);
  const std::int64_t head = 2 * of.model.vocab * of.model.hidden * batch.tokens();
  RC_ASSERT(sums.head_flops.at(forward) == head);
  RC_ASSERT(sums.head_flops.at(backward) == 2 * head);
}

// Draws that the strategy refuses are drawn again; 20 refusals in a row are a failure.
RC_GTEST_PROP(SumsOverRanks, AreTheUndistributedStep, ()) {
  for (const Strategy& strategy : strategies()) {
    bool ran = false;
    for (int attempt = 0; attempt < 20 && !ran; ++attempt) {
      const StepCase of = some_case(strategy);
      const auto schedule = try_schedule(of);
      if (!schedule) continue;
      check_sums(**schedule, of);
      ran = true;
    }
    if (!ran) RC_FAIL("no case of " + strategy.name + " in 20 draws");
  }
}

}  // namespace
}  // namespace longhaul::oracle
