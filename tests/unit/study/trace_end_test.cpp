// A traced run that ends early records what the whole run would have recorded of the chosen chunks.
#include "sim/study/trace_end.h"

#include <gtest/gtest.h>

#include "sim/executor/simulate.h"
#include "sim/study/entry_run.h"
#include "sim/study/setup.h"

namespace longhaul {
namespace {

constexpr const char* kTracedStudy = R"({
  "schema": "study/1", "name": "small", "topology": "dgx-h200-ndr", "gpus": 4, "model": "llama3.2-1b",
  "documents": {"explicit": [[4096, 100], [3000], [2000, 2000]]}, "strategies": ["per-doc-cp"]})";

std::vector<OpRecord> of_chunks(const std::vector<OpRecord>& ops) {
  std::vector<OpRecord> chosen;
  for (const OpRecord& op : ops) {
    if (op.chunk >= 0) chosen.push_back(op);
  }
  return chosen;
}

TEST(TraceEnd, RecordsAllOpsOfTheChosenChunksAndStops) {
  const Study study = *parse_study(*parse_json(kTracedStudy, "small.json"), "small.json", study_options());
  const CaseSetup setup = *set_up_case(study.cases[0], study.file);
  Degrees degrees;
  degrees.cp = 4;
  const PlannedStep planned = *plan_entry(setup, study.cases[0].strategies[0], degrees, 0);
  RecordedTimeline whole;
  SimulationOptions options;
  options.trace = {{0, 3}, 1};
  options.sink = &whole;
  const Totals totals = simulate(*planned.schedule, setup.cluster, setup.kernels, options);
  const std::vector<OpRecord> expected = of_chunks(whole.ops);
  ASSERT_EQ(traced_ops(*planned.schedule, options.trace.ranks, options.trace.chunks_below),
            static_cast<std::int64_t>(expected.size()));

  RecordedTimeline cut;
  UntilRecorded until(cut, static_cast<std::int64_t>(expected.size()));
  options.sink = &until;
  EXPECT_THROW(simulate(*planned.schedule, setup.cluster, setup.kernels, options), TraceComplete);
  EXPECT_EQ(fingerprint(of_chunks(cut.ops)), fingerprint(expected));
  EXPECT_LT(cut.ops.back().end, totals.step);
}

}  // namespace
}  // namespace longhaul
