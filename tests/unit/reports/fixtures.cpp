#include "tests/unit/reports/fixtures.h"

#include <algorithm>
#include <utility>

namespace longhaul::testing {

Json row(const std::string& label, double step_ms, double low_ms, double high_ms) {
  return {{"name", label},
          {"case", ""},
          {"strategy", label},
          {"layout", {{"pp", 1}, {"cp", 8}, {"sp", 1}, {"dp", 2}}},
          {"step_time_ms", step_ms},
          {"step_time_low_ms", low_ms},
          {"step_time_high_ms", high_ms},
          {"tokens_per_second_per_gpu", 5294.25},
          {"mfu", 0.298},
          {"speedup", 1.25},
          {"speedup_own", 1.5},
          {"own_baseline", "zigzag-cp"},
          {"bound_by", "compute: gemm"},
          {"time_ms", {{"imbalance", 0.25 * step_ms}, {"compute", 0.75 * step_ms}, {"bubble", 0}}},
          {"peak_memory_bytes", 60'000'000'000},
          {"memory_limit_bytes", 100'000'000'000},
          {"headroom_bytes", 40'000'000'000},
          {"memory_bytes", {{"parameters", 20'000'000'000}, {"activations", 40'000'000'000}}},
          {"bytes_sent",
           {{"intra_node", {{"min", 1e9}, {"mean", 2e9}, {"max", 3e9}}},
            {"inter_node", {{"min", 0}, {"mean", 0}, {"max", 0}}}}},
          {"imbalance", 1.125}};
}

Json results_of(std::vector<Json> rows, const std::string& baseline) {
  Json results = {
      {"schema", "results/1"},
      {"version", "0.1.0"},
      {"calibration",
       Json::array(
           {{{"case", ""}, {"name", "h200"}, {"date", "2026-08-01"}, {"collectives", "not calibrated: +-25 %"}}})},
      {"seed", 7},
      {"study",
       {{"schema", "study/1"},
        {"name", "a-study"},
        {"topology", "dgx-h200-ndr"},
        {"gpus", 16},
        {"model", "llama3-8b"},
        {"baseline", baseline}}},
      {"strategies", Json::array()}};
  for (Json& one : rows) results["strategies"].push_back(std::move(one));
  return results;
}

OpRecord op(std::int32_t rank, StreamId stream, OpKind kind, std::string_view label, std::int64_t start_ps,
            std::int64_t end_ps) {
  OpRecord record;
  record.rank = rank;
  record.stream = stream;
  record.kind = kind;
  record.label = label;
  record.issue = record.arrival = record.start = Time::from_ps(start_ps);
  record.end = Time::from_ps(end_ps);
  return record;
}

Traced traced_of(const std::string& strategy, std::vector<OpRecord> ops,
                 std::vector<RecordedTimeline::MemorySample> samples) {
  auto timeline = std::make_shared<RecordedTimeline>();
  timeline->ops = std::move(ops);
  timeline->samples = std::move(samples);
  Traced traced;
  traced.strategy = strategy;
  traced.streams = {"compute", "copy-in", "copy-out", "cp"};
  traced.gpus_per_node = 8;
  traced.memory_limit_bytes = 100'000'000'000;
  for (const OpRecord& record : timeline->ops) traced.step = std::max(traced.step, record.end);
  traced.timeline = std::move(timeline);
  return traced;
}

Traced small_trace(const std::string& strategy) {
  constexpr std::int64_t kUs = 1'000'000;
  std::vector<OpRecord> ops;
  std::vector<RecordedTimeline::MemorySample> samples;
  for (const std::int32_t rank : {0, 9}) {
    const std::int64_t late = rank == 0 ? 0 : 20 * kUs;
    ops.push_back(op(rank, kComputeStream, OpKind::kGemm, "qkv", 0, 100 * kUs + late));
    ops.push_back(op(rank, 3, OpKind::kCollective, "gather kv", 120 * kUs, 220 * kUs + 1));
    ops.back().arrival = Time::from_ps(100 * kUs + late);
    ops.push_back(op(rank, kComputeStream, OpKind::kAttention, "attention", 220 * kUs + 1, 500 * kUs));
    ops.push_back(op(rank, kComputeStream, OpKind::kElementwise, "swiglu <fused>", 500 * kUs, 520 * kUs));
    ops.push_back(op(rank, kComputeStream, OpKind::kOptimizer, "adamw", 520 * kUs, 640 * kUs));
    samples.push_back({rank, Time(), 20'000'000'000});
    samples.push_back({rank, Time::from_us(120), 60'000'000'000 - rank});
    samples.push_back({rank, Time::from_us(500), 30'000'000'000});
    samples.push_back({rank, Time::from_us(640), 20'000'000'000});
  }
  return traced_of(strategy, std::move(ops), std::move(samples));
}

Json small_results() {
  Json large = row("no-shards", 0.6, 0.55, 0.65);
  large["does_not_fit"] = {{"needed_bytes", 160'000'000'000},
                           {"limit_bytes", 100'000'000'000},
                           {"rank", 3},
                           {"category", "activations"},
                           {"smallest_change", "recompute full"}};
  const Json absent = {
      {"name", "csbp"}, {"case", ""}, {"strategy", "csbp"}, {"not_applicable", "the model is causal </script><b>"}};
  return results_of({row("allgather-cp", 0.8, 0.75, 0.85), row("flashcp", 0.64, 0.6, 0.68), large, absent},
                    "allgather-cp");
}

TraceBundle small_bundle() { return {{small_trace("allgather-cp"), small_trace("flashcp")}}; }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace longhaul::testing
