// Kept runs of random records: what is written reads back as the same run, and is written again as the same bytes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "validate/report/kept_run.h"

namespace longhaul {
namespace {

// As events tell them (floats of milliseconds of 32 ns ticks), or any number of picoseconds.
std::int64_t draw_time(bool events) {
  const std::int64_t ticks = *rc::gen::inRange<std::int64_t>(0, 100'000'000);
  if (!events) return *rc::gen::element(ticks, ticks << 35, (ticks << 35) + 1);
  return std::llround(static_cast<double>(static_cast<float>(static_cast<double>(ticks * 32000) / 1e9)) * 1e9);
}

MeasuredOp draw_op(std::int32_t ranks, std::int32_t repeats, bool events) {
  MeasuredOp op;
  op.rank = *rc::gen::inRange(0, ranks);
  op.position = *rc::gen::inRange(0, 50);
  op.stream = *rc::gen::element<StreamId>(0, 3);
  op.kind = static_cast<OpKind>(*rc::gen::inRange(0, static_cast<int>(OpKind::kCollective) + 1));
  op.pass = static_cast<Pass>(*rc::gen::inRange(0, static_cast<int>(Pass::kOptimizer) + 1));
  op.function = static_cast<Function>(*rc::gen::inRange(0, static_cast<int>(Function::kCrossEntropy) + 1));
  op.collective = static_cast<CollectiveKind>(*rc::gen::inRange(0, static_cast<int>(CollectiveKind::kExchange) + 1));
  op.segment = *rc::gen::element<SegmentId>(0, 1, std::numeric_limits<SegmentId>::max());
  op.index = *rc::gen::element<std::int16_t>(0, 7, 32767);
  op.layer = *rc::gen::element<std::int16_t>(-32768, -1, 0, 32767);
  op.chunk = *rc::gen::element(-1, 0, 2147483647);
  op.group = *rc::gen::element<GroupId>(-1, 0, 3);
  op.label = *rc::gen::element(std::string("qkv"), std::string("\"o\" \\ é"), std::string());
  op.kernel = *rc::gen::element(std::string("cublaslt"), std::string());
  op.bytes = *rc::gen::inRange<std::int64_t>(0, 3);
  op.communication = *rc::gen::arbitrary<bool>();
  for (std::int32_t r = 0; r < repeats; ++r) {
    const std::int64_t one = draw_time(events), other = draw_time(events);
    op.start_ps.push_back(std::min(one, other));
    op.end_ps.push_back(std::max(one, other));
  }
  return op;
}

RC_GTEST_PROP(KeptRuns, ReadBackAsTheyWere, ()) {
  KeptRun run;
  run.origin = "synthetic";
  run.study = Json::object();
  run.study_case = "case";
  run.strategy = "flashcp";
  RunRecord& record = run.record;
  record.ranks = *rc::gen::inRange(1, 4);
  record.repeats = *rc::gen::inRange(0, 4);
  const bool failed = *rc::gen::arbitrary<bool>();
  if (failed) record.failure.kind = "hang";
  const bool events = *rc::gen::arbitrary<bool>();
  const bool clocks = *rc::gen::arbitrary<bool>();
  for (std::int32_t rank = 0; rank < record.ranks; ++rank) {
    record.rank_runs.emplace_back().rank = rank;
    record.rank_runs.back().step_ps.assign(static_cast<std::size_t>(record.repeats), 7);
    if (clocks) record.rank_runs.back().clock_mhz.assign(static_cast<std::size_t>(record.repeats), 1500 + rank);
  }
  for (int i = *rc::gen::inRange(0, 40); i > 0; --i) {
    // A run that a fault ended has ops of fewer repeats.
    const std::int32_t repeats = failed ? *rc::gen::inRange(0, record.repeats + 1) : record.repeats;
    record.ops.push_back(draw_op(record.ranks, repeats, events));
  }
  const std::string text = kept_run_text(run);
  const Expected<Json> json = parse_json(text, "run.json");
  RC_ASSERT(json.has_value());
  RC_CLASSIFY((*json)["record"]["clock"]["float_ms"] == true, "ticks of events");
  const Expected<KeptRun> read = parse_kept_run(*json, "run.json");
  if (!read) RC_FAIL(read.error().front().to_string());
  RC_ASSERT(read->record == record);
  RC_ASSERT(kept_run_text(*read) == text);
}

}  // namespace
}  // namespace longhaul
