// Layout candidates, baselines, reduction, fit search and results, on a small study.
#include <gtest/gtest.h>

#include "sim/study/baselines.h"
#include "sim/study/find_entry.h"
#include "sim/study/memory_envelope.h"
#include "sim/study/reduce.h"
#include "sim/study/results_json.h"

namespace longhaul {
namespace {

constexpr const char* kStudy = R"({
  "schema": "study/1", "name": "small", "topology": "dgx-h200-ndr", "gpus": 8, "model": "llama3-8b",
  "documents": {"explicit": [[4096, 100], [3000], [2000, 2000], [4000]]},
  "training": {"zero_stage": 3, "recompute": "full"},
  "strategies": [
    "allgather-cp", "flashcp", {"name": "basp", "micro_batch_sequences": 2}, "dpp", "csbp",
    {"name": "flashcp", "label": "best", "layout": "best"}],
  "baseline": "allgather-cp"})";

Study study_of(const std::string& text) {
  const auto json = parse_json(text, "small.json");
  EXPECT_TRUE(json.has_value());
  const auto study = parse_study(*json, "small.json", study_options());
  if (!study) {
    for (const InputError& error : study.error()) ADD_FAILURE() << error.to_string();
  }
  return *study;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

const EntryResult& entry_of(const CaseResult& of, const std::string& label) {
  for (const EntryResult& entry : of.entries) {
    if (entry.label == label) return entry;
  }
  ADD_FAILURE() << "no entry " << label;
  return of.entries.front();
}

TEST(Study, CandidateDegreesAreAllProducts) {
  const Study study = study_of(kStudy);
  const CaseSetup setup = *set_up_case(study.cases[0], study.file);
  EXPECT_EQ(candidate_degrees(StrategyFamily::kData, setup), (std::vector<Degrees>{{1, 1, 1, 8}}));
  EXPECT_EQ(candidate_degrees(StrategyFamily::kContext, setup),
            (std::vector<Degrees>{{1, 8, 1, 1}, {1, 4, 1, 2}, {1, 2, 1, 4}}));
  EXPECT_EQ(candidate_degrees(StrategyFamily::kPipeline, setup),
            (std::vector<Degrees>{{8, 1, 1, 1}, {4, 1, 2, 1}, {4, 1, 1, 2}, {2, 1, 4, 1}, {2, 1, 2, 2}, {2, 1, 1, 4}}));
}

TEST(Study, BaselinesRunAtTheEntrysMicroBatch) {
  const Study study = study_of(kStudy);
  const CaseSetup setup = *set_up_case(study.cases[0], study.file);
  const std::vector<PlannedEntry> entries = with_baselines(setup, {});
  const PlannedEntry& basp = entries[2];
  const PlannedEntry& own = entries[static_cast<std::size_t>(basp.own)];
  EXPECT_EQ(own.entry.name, "ulysses");
  EXPECT_TRUE(own.hidden);
  EXPECT_EQ(own.entry.micro_batch_sequences, 2);
  const PlannedEntry& other = entries[static_cast<std::size_t>(basp.alternative)];
  EXPECT_EQ(other.entry.micro_batch_sequences, 1);
  EXPECT_EQ(other.entry.layout.degrees.sp, 4);
  EXPECT_EQ(other.entry.layout.degrees.dp, 2);
  EXPECT_EQ(entries[1].own, 0) << "flashcp is compared with the allgather-cp of the study";
  EXPECT_TRUE(entries[static_cast<std::size_t>(entries[5].own)].entry.layout.best);
}

// A row's own library moves its times and those of the baseline that comes along for it, and no other row's.
TEST(Study, ARowMayAttendByAnotherLibrary) {
  const std::string text = replaced(kStudy, R"({"name": "basp", "micro_batch_sequences": 2})",
                                    R"({"name": "flashcp", "label": "fa2", "attention_library": "flash-attention-2"})");
  RunOptions options;
  options.labels = {"flashcp", "fa2"};
  const StudyResult result = *run_study(study_of(text), options);
  const CaseResult& of = result.cases[0];
  const EntryResult& plain = entry_of(of, "flashcp");
  const EntryResult& other = entry_of(of, "fa2");
  EXPECT_NE(other.summary->step, plain.summary->step);
  EXPECT_EQ(plain.own_baseline, "allgather-cp");
  EXPECT_EQ(other.own_baseline, "allgather-cp (baseline of fa2)");
  EXPECT_NE(entry_of(of, other.own_baseline).summary->step, entry_of(of, "allgather-cp").summary->step);
  EXPECT_NE(other.note.find("attention: flash-attention-2"), std::string::npos) << other.note;
  EXPECT_EQ(plain.note.find("attention:"), std::string::npos) << plain.note;
  // What two libraries are wrong by is not shared: the ratio of their rows is less sure than of two rows of one.
  const auto width = [](const Ratio& ratio) { return (ratio.high - ratio.low) / ratio.value; };
  EXPECT_GT(width(*other.over_baseline), 1.5 * width(*plain.over_baseline));
  // The case's own library by name: as a row that names none, its baseline the study's own row.
  const std::string named = replaced(text, "flash-attention-2", "cudnn");
  const StudyResult same = *run_study(study_of(named), options);
  EXPECT_EQ(entry_of(same.cases[0], "fa2").own_baseline, "allgather-cp");
  EXPECT_EQ(entry_of(same.cases[0], "fa2").over_baseline->low, plain.over_baseline->low);
  options.labels = {"flashcp"};
  const StudyResult before = *run_study(study_of(kStudy), options);
  EXPECT_EQ(entry_of(before.cases[0], "flashcp").summary->step, plain.summary->step);
}

TEST(Study, OneLabelBringsTheBaselineAlong) {
  const Study study = study_of(kStudy);
  RunOptions options;
  options.labels = {"flashcp"};
  const StudyResult result = *run_study(study, options);
  const CaseResult& of = result.cases[0];
  ASSERT_EQ(of.entries.size(), 2U);
  EXPECT_TRUE(entry_of(of, "allgather-cp").hidden);
  EXPECT_EQ(of.entries[static_cast<std::size_t>(of.winner)].label, "flashcp") << "a hidden row never wins";
  const EntryResult& flashcp = entry_of(of, "flashcp");
  EXPECT_DOUBLE_EQ(*flashcp.speedup,
                   entry_of(of, "allgather-cp").summary->step.seconds() / flashcp.summary->step.seconds());
}

// The document of 16,000 tokens waits until there is one for each of the two micro-batches: the step trains 24,000 of
// 40,000 tokens, and step times cannot be compared as they are.
TEST(Study, SpeedUpsCountTheTokensTrained) {
  const std::string text = R"({
    "schema": "study/1", "name": "waits", "topology": "dgx-h200-ndr", "gpus": 8, "model": "llama3-8b",
    "documents": {"explicit": [[16000, 1000, 1000, 2000], [5000, 5000, 5000, 5000]]},
    "strategies": ["per-doc-cp", {"name": "wlb-cp", "packing": "delayed"}]})";
  const Study study = study_of(text);
  const StudyResult result = *run_study(study, {});
  const EntryResult& fixed = entry_of(result.cases[0], "per-doc-cp");
  const EntryResult& delayed = entry_of(result.cases[0], "wlb-cp");
  EXPECT_EQ(fixed.summary->tokens, 40'000);
  EXPECT_EQ(delayed.summary->tokens, 24'000);
  const double tokens = 24'000.0 / 40'000.0;
  const double steps = fixed.summary->step.seconds() / delayed.summary->step.seconds();
  EXPECT_DOUBLE_EQ(*delayed.speedup, steps * tokens);
  EXPECT_NEAR(*delayed.speedup, delayed.summary->tokens_per_second_per_gpu / fixed.summary->tokens_per_second_per_gpu,
              1e-9);
  EXPECT_LT(delayed.over_baseline->low, *delayed.speedup);
  EXPECT_GT(delayed.over_baseline->high, *delayed.speedup);
  EXPECT_DOUBLE_EQ(delayed.over_baseline->value, *delayed.speedup);
  const bool wins = *delayed.speedup > 1;
  EXPECT_EQ(result.cases[0].entries[static_cast<std::size_t>(result.cases[0].winner)].label,
            wins ? "wlb-cp" : "per-doc-cp");
  EXPECT_NE(delayed.note.find("speed-ups count the tokens trained"), std::string::npos) << delayed.note;
}

// One document is cut alike by both rules, and a tie goes to the sequence; of a long document beside short ones the
// sequence's rule leaves ranks unequal.
TEST(Study, TellsHowAdaptiveShardingCut) {
  const std::string text = R"({
    "schema": "study/1", "name": "cuts", "topology": "dgx-h200-ndr", "gpus": 8, "model": "llama3-8b",
    "documents": {"explicit": [[131072], [100000, 20000, 11072], [131072]]},
    "strategies": ["per-doc-cp", "wlb-cp"]})";
  const StudyResult result = *run_study(study_of(text), {});
  EXPECT_EQ(entry_of(result.cases[0], "wlb-cp").note, "sequences cut: 1 by document, 2 by sequence");
  EXPECT_EQ(entry_of(result.cases[0], "per-doc-cp").note, "");
  EXPECT_EQ(results_json(study_of(text), result)["strategies"][1]["note"],
            "sequences cut: 1 by document, 2 by sequence");
}

// Five sequences of the 8 GPUs fill no dp 8; whether that is the user's fault depends on who chose dp.
TEST(Study, OnlyAWrittenLayoutThatDoesNotFillIsAnInputError) {
  const std::string text = R"({
    "schema": "study/1", "name": "small", "topology": "dgx-h200-ndr", "gpus": 8, "model": "llama3-8b",
    "documents": {"explicit": [[4096], [3000], [2000], [4000], [1000]]},
    "strategies": ["data-parallel", "allgather-cp"]})";
  const StudyResult result = *run_study(study_of(text), {});
  EXPECT_EQ(entry_of(result.cases[0], "data-parallel").not_applicable,
            "5 sequences do not fill dp 8 x micro-batches of 1; nearest counts: 8");
  EXPECT_TRUE(entry_of(result.cases[0], "allgather-cp").summary.has_value());
  EXPECT_EQ(result.cases[0].entries[static_cast<std::size_t>(result.cases[0].winner)].label, "allgather-cp");
  // tp 1 is no layout of the user's.
  EXPECT_TRUE(run_study(study_of(replaced(text, R"("strategies")", R"("layout": {"tp": 1}, "strategies")")), {}));

  const std::string dp2 =
      "small.json: /strategies/1: 5 sequences do not fill dp 2 x micro-batches of 1 for \"allgather-cp\"; expected 4 "
      "or 6 sequences";
  const std::string entry = R"({"name": "allgather-cp", "layout": {"cp": 4}})";
  const auto written = run_study(study_of(replaced(text, R"("allgather-cp")", entry)), {});
  ASSERT_FALSE(written.has_value());
  ASSERT_EQ(written.error().size(), 1U);
  EXPECT_EQ(written.error()[0].to_string(), dp2);
  const std::string cp4 = R"("layout": {"cp": 4}, "strategies": ["allgather-cp", "flashcp"])";
  const auto of_case =
      run_study(study_of(replaced(text, R"("strategies": ["data-parallel", "allgather-cp"])", cp4)), {});
  ASSERT_FALSE(of_case.has_value());
  EXPECT_EQ(of_case.error().size(), 2U);
}

TEST(Study, UnknownLabelNamesTheNearest) {
  RunOptions options;
  options.labels = {"flashpc"};
  const auto result = run_study(study_of(kStudy), options);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().front().to_string(),
            "<command line>: --strategy: the study has no strategy \"flashpc\"; expected one of allgather-cp, flashcp, "
            "basp, dpp, csbp, best; did you mean \"flashcp\"?");
  const Study study = study_of(kStudy);
  EXPECT_TRUE(find_entry(study, "best", "").has_value());
  EXPECT_EQ(find_entry(study, "best", "smal").error().front().nearest, "small");
}

TEST(Study, BestIsTheFastestLayoutAndPrunesNoFasterOne) {
  const Study study = study_of(kStudy);
  const CaseSetup setup = *set_up_case(study.cases[0], study.file);
  const EntryResult best = run_entry(setup, study.cases[0].strategies[5], TraceMode::kNone);
  Time fastest = Time::max();
  for (const Degrees& degrees : candidate_degrees(StrategyFamily::kContext, setup)) {
    StrategyEntry entry = study.cases[0].strategies[1];
    entry.layout.degrees.cp = degrees.cp;
    entry.layout.degrees.dp = degrees.dp;
    const EntryResult one = run_entry(setup, entry, TraceMode::kNone);
    if (one.summary) fastest = std::min(fastest, one.summary->step);
  }
  EXPECT_EQ(best.summary->step, fastest);
  EXPECT_EQ(best.layouts_legal, 3);
  EXPECT_GE(best.layouts_simulated, 1);
}

TEST(Study, ResultsDoNotDependOnThreads) {
  const Study study = study_of(kStudy);
  RunOptions options;
  options.trace = TraceMode::kChosen;
  const std::string one = results_text(results_json(study, *run_study(study, options)));
  options.threads = 3;
  EXPECT_EQ(one, results_text(results_json(study, *run_study(study, options))));
  const auto parsed = parse_json(one, "results.json");
  ASSERT_TRUE(parsed.has_value());
  int rows = 0;
  for (const Json& row : (*parsed)["strategies"]) {
    if (!row.contains("time_ms")) {
      EXPECT_EQ(row["name"], "csbp");
      EXPECT_EQ(row["not_applicable"], "runs block diffusion, not causal language models");
      continue;
    }
    // Picoseconds again: the parts sum exactly, digit by digit.
    const auto ps = [](const Json& value) { return static_cast<std::int64_t>(value.get<double>() * 1e9 + 0.5); };
    std::int64_t sum = 0;
    for (const Json& part : row["time_ms"]) sum += ps(part);
    EXPECT_EQ(sum, ps(row["step_time_ms"])) << row["name"];
    EXPECT_LT(row["step_time_low_ms"], row["step_time_ms"]);
    EXPECT_GT(row["step_time_high_ms"], row["step_time_ms"]);
    ++rows;
  }
  EXPECT_EQ(rows, 9);  // five of the study; hidden: ulysses at 2 and at 1, dpp's baseline, allgather-cp with best
}

// A 8B model without ZeRO holds 16 bytes a parameter on every GPU: 128 GB, and 16,384 tokens a rank without recompute
// hold 16,384 x 32 layers x about 0.3 MB besides.
TEST(Study, ARowThatDoesNotFitKeepsItsTimesAndSaysWhatWouldFit) {
  std::string text =
      replaced(kStudy, "\"zero_stage\": 3, \"recompute\": \"full\"", "\"zero_stage\": 0, \"recompute\": \"none\"");
  text = replaced(text, "[[4096, 100], [3000], [2000, 2000], [4000]]", "[[131072], [131072], [131072], [131072]]");
  const Study study = study_of(text);
  const CaseSetup setup = *set_up_case(study.cases[0], study.file);
  const EntryResult result = run_entry(setup, study.cases[0].strategies[1], TraceMode::kNone);
  ASSERT_TRUE(result.does_not_fit.has_value());
  EXPECT_FALSE(result.fits());
  EXPECT_TRUE(result.summary.has_value());
  EXPECT_GT(result.does_not_fit->needed_bytes, result.does_not_fit->limit_bytes);
  EXPECT_EQ(result.does_not_fit->limit_bytes, setup.cluster.device().usable().value);
  ASSERT_FALSE(result.does_not_fit->checked.empty());
  EXPECT_EQ(result.does_not_fit->checked.front(), "recompute full");
  EXPECT_EQ(result.does_not_fit->change, result.does_not_fit->checked.back());
}

TEST(Reduce, ModelKeepsHeadsAndStages) {
  const Study study = study_of(kStudy);
  const ModelShape reduced = reduce_model(study.cases[0].model, 4);
  EXPECT_EQ(reduced.layers, 4);
  EXPECT_EQ(reduce_model(study.cases[0].model, 1).layers, 2);
  EXPECT_EQ(reduced.q_heads, 32);
  EXPECT_EQ(reduced.kv_heads, 8);
  EXPECT_EQ(reduced.head_dim, 8);
  EXPECT_EQ(reduced.hidden, 256);
  EXPECT_EQ(reduced.ffn, 1024);
  EXPECT_EQ(reduced.vocab, 97);
}

TEST(Reduce, DocumentsKeepTheirShares) {
  const std::vector<std::vector<std::int64_t>> few = {{10, 20}, {5}};
  EXPECT_EQ(reduce_documents(explicit_batch(few, {}), 35), few) << "no more than allowed: as given";
  // 7,000 tokens to 70: shares 60 and 10; a tenth of a token is one.
  EXPECT_EQ(reduce_documents(explicit_batch({{5990, 10}, {500, 500}}, {}), 70),
            (std::vector<std::vector<std::int64_t>>{{59, 1}, {5, 5}}));
  // More documents than tokens: the last ones go.
  EXPECT_EQ(reduce_documents(explicit_batch({{2, 2, 2, 2}}, {}), 3),
            (std::vector<std::vector<std::int64_t>>{{1, 1, 1}}));
}

TEST(ResultsText, MillisecondsHaveNinePlaces) {
  EXPECT_EQ(results_text({{"a_ms", 1.5}, {"time_ms", {{"b", 0.000000001}, {"c", 12345.678901234}}}, {"d", 0.5}}),
            "{\"a_ms\": 1.500000000, \"time_ms\": {\"b\": 0.000000001, \"c\": 12345.678901234}, \"d\": 0.5}\n");
}

TEST(MemoryEnvelope, KeepsTheLargestOfEachPartAndThePeak) {
  RecordedTimeline timeline;
  MemoryEnvelope envelope(Time::from_ps(kMemoryParts * 10), timeline);
  const auto at = [&](std::int64_t ps, std::int64_t bytes) { envelope.memory(3, Time::from_ps(ps), bytes, {}); };
  at(0, 5);
  at(4, 9);
  at(7, 9);
  at(12, 1);
  at(19, 2);
  envelope.finish();
  ASSERT_EQ(timeline.samples.size(), 2U);
  EXPECT_EQ(timeline.samples[0].time.ps(), 4);
  EXPECT_EQ(timeline.samples[0].bytes, 9);
  EXPECT_EQ(timeline.samples[1].time.ps(), 19);
  EXPECT_EQ(timeline.samples[1].rank, 3);
}

}  // namespace
}  // namespace longhaul
