// Every strategy, studies of random size, machines of random size: the smaller version fits, is a valid study, is the
// same each time, and the strategy runs it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/executor/simulate.h"
#include "sim/strategies/registry.h"
#include "sim/study/find_entry.h"
#include "validate/report/prepared_run.h"
#include "validate/report/reduction.h"

namespace longhaul {
namespace {

// The last has the sizes of Llama 3.1 405B's config.json: one layer alone holds 51 GB of states.
Json draw_model() {
  const int which = *rc::gen::inRange(0, 3);
  if (which < 2) return which == 0 ? "llama3.2-1b" : "llama3-8b";
  return {{"_name_or_path", "large"},   {"model_type", "llama"},      {"hidden_size", 16384},
          {"intermediate_size", 53248}, {"num_attention_heads", 128}, {"num_key_value_heads", 8},
          {"num_hidden_layers", 126},   {"vocab_size", 128256},       {"tie_word_embeddings", false}};
}

Json draw_study(const Strategy& strategy) {
  const int nodes = *rc::gen::inRange(1, 9);
  const std::int64_t context = std::int64_t{4096} << *rc::gen::inRange(0, 7);
  const bool blocks = strategy.objective == ObjectiveKind::kBlockDiffusion;
  Json sequences = Json::array();
  const int count = 8 * nodes * 2;
  const int documents = blocks ? 1 : *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    Json lengths = Json::array();
    std::int64_t left = context;
    for (int d = 1; d < documents; ++d) {
      lengths.push_back(left / 2);
      left -= left / 2;
    }
    lengths.push_back(left);
    sequences.push_back(std::move(lengths));
  }
  Json study = {{"schema", "study/1"},
                {"name", "drawn"},
                {"topology", "dgx-h200-ndr"},
                {"gpus", 8 * nodes},
                {"model", draw_model()},
                {"documents", {{"explicit", std::move(sequences)}}},
                {"strategies", Json::array({strategy.name})}};
  study["training"] = {{"zero_stage", *rc::gen::element(0, 3)},
                       {"recompute", *rc::gen::element(std::string("none"), std::string("full"))}};
  if (blocks) study["objective"] = {{"kind", "block-diffusion"}, {"block_tokens", 32}};
  return study;
}

MachineAtHand draw_machine() {
  MachineAtHand machine;
  machine.device = *rc::gen::element(std::string("h200"), std::string("h100"), std::string("a100-40gb"));
  machine.ranks = *rc::gen::element(2, 4, 8);
  machine.virtual_ranks = *rc::gen::arbitrary<bool>();
  machine.memory_bytes = std::int64_t{16'000'000'000} * *rc::gen::inRange(1, 9);
  return machine;
}

std::int64_t fullest(const Totals& totals, bool virtual_ranks) {
  std::int64_t sum = 0, most = 0;
  for (const RankTotals& rank : totals.ranks) {
    sum += rank.peak_bytes;
    most = std::max(most, rank.peak_bytes);
  }
  return virtual_ranks ? sum : most;
}

RC_GTEST_PROP(Reduction, FitsIsValidIsRepeatableAndApplies, ()) {
  const std::vector<Strategy>& all = strategies();
  const Strategy& strategy = all[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(all.size())))];
  const Expected<Study> study = parse_study(draw_study(strategy), "drawn.json", study_options());
  RC_PRE(study.has_value());
  const FoundEntry found = *find_entry(*study, strategy.name, "");
  const MachineAtHand machine = draw_machine();
  const auto of = reduce_for_machine(*study, *found.study_case, *found.entry, machine);
  if (!of) {
    // Only a strategy that never applies may be refused: 16 GB hold some version of every one of these models.
    RC_TAG(strategy.name + ": " + of.error());
    RC_ASSERT(of.error().find("versions needs") == std::string::npos);
    return;
  }
  RC_TAG(strategy.name);
  const Expected<Prepared> prepared = prepare_run(of->study, "reduced.json", strategy.name, "drawn");
  if (!prepared) RC_FAIL(prepared.error().front().to_string());
  const PreparedRun& run = **prepared;
  RC_ASSERT(run.degrees.ranks() <= machine.ranks);
  const Totals totals = simulate(*run.planned.schedule, run.setup->cluster, run.setup->kernels);
  RC_ASSERT(fullest(totals, machine.virtual_ranks) == of->peak_bytes);
  RC_ASSERT(static_cast<double>(of->peak_bytes) <= kUsablePart * static_cast<double>(machine.memory_bytes));
  const ModelShape& model = run.study_case->model;
  RC_ASSERT(model.q_heads == found.study_case->model.q_heads);
  RC_ASSERT(model.kv_heads == found.study_case->model.kv_heads);
  RC_ASSERT(model.head_dim == found.study_case->model.head_dim);
  RC_ASSERT(run.setup->kernels.device().name == machine.device);
  const auto again = reduce_for_machine(*study, *found.study_case, *found.entry, machine);
  RC_ASSERT(again.has_value());
  RC_ASSERT(again->study == of->study);
}

}  // namespace
}  // namespace longhaul
