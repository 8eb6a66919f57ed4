// Memory over time, and the checks on tensors: acquired once, written before read, released once, nothing left over.
#include "sim/executor/memory.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "sim/core/rng.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

constexpr TensorKindId kT = 2, kU = 3;

TensorRef tensor(TensorKindId kind) {
  TensorRef ref;
  ref.kind = kind;
  return ref;
}

// Tensors t (100 bytes, activations) and u (48 bytes, logits), both flat.
Schedule with_tensors(std::vector<Op> ops, std::int16_t iterations = 1) {
  Schedule schedule = make_schedule(1, {});
  schedule.tensors.push_back({"t", kFlat, 50, 1, ElementType::kBf16, MemoryCategory::kActivations});
  schedule.tensors.push_back({"u", kFlat, 12, 1, ElementType::kFp32, MemoryCategory::kLogits});
  add_program(schedule, 0, std::move(ops), iterations);
  schedule.tensors[kBufferKind].flat_rows = 1;
  return schedule;
}

Op touching(std::string label, std::vector<std::pair<TensorKindId, Access>> operands, std::vector<TensorKindId> acquire,
            std::vector<TensorKindId> release, StreamId stream = kComputeStream) {
  Op op = kernel(std::move(label), stream);
  for (const auto& [kind, access] : operands) op.operands.push_back(flat_view(tensor(kind), 10, access));
  for (const TensorKindId kind : acquire) op.acquire.push_back(tensor(kind));
  for (const TensorKindId kind : release) op.release.push_back(tensor(kind));
  return op;
}

Totals run(const Schedule& schedule, TimelineSink* sink = nullptr) {
  FixedDurations durations;
  durations.rule = [](const OpInstance&) { return 10; };
  FixedNetwork network;
  SimulationOptions options;
  options.sink = sink;
  if (sink != nullptr) options.trace.ranks = {0};
  return simulate(schedule, durations, network, options);
}

TEST(Memory, CountsFromTheStartOfTheAcquiringOpToTheEndOfTheReleasingOp) {
  // Resident 4 bytes (out and buffer, one bf16 element each). t: 0-20, u: 10-30. Peak 4 + 100 + 48 at 10.
  const Schedule schedule = with_tensors({touching("a", {{kT, Access::kWrite}}, {kT}, {}),
                                          touching("b", {{kT, Access::kRead}, {kU, Access::kWrite}}, {kU}, {kT}),
                                          touching("c", {{kU, Access::kAccumulate}}, {}, {kU})});
  RecordedTimeline timeline;
  const Totals totals = run(schedule, &timeline);
  const RankTotals& rank = totals.ranks[0];
  EXPECT_EQ(rank.resident_bytes, 4);
  EXPECT_EQ(rank.peak_bytes, 152);
  EXPECT_EQ(rank.peak_time.ps(), 10);
  EXPECT_EQ(rank.peak_categories[static_cast<std::size_t>(MemoryCategory::kActivations)], 102);
  EXPECT_EQ(rank.peak_categories[static_cast<std::size_t>(MemoryCategory::kLogits)], 48);
  std::vector<std::pair<std::int64_t, std::int64_t>> samples;
  for (const auto& sample : timeline.samples) samples.push_back({sample.time.ps(), sample.bytes});
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{0, 4}, {0, 104}, {10, 152}, {20, 52}, {30, 4}};
  EXPECT_EQ(samples, expected);
}

TEST(Memory, LayersHoldTensorsOfTheirOwn) {
  // t of layer l is released in layer l + 1 (offset -1), except the first, and the last is released by its guard.
  Op make = touching("make", {{kT, Access::kWrite}}, {kT}, {});
  Op drop = touching("drop", {}, {}, {kT});
  drop.release[0].layer_offset = -1;
  drop.guard = Guard::kNotFirstIteration;
  Schedule schedule = with_tensors({make, drop}, 4);
  Op last = touching("last", {}, {}, {kT});
  schedule.segments.push_back({"end", {last}});
  schedule.programs[0].blocks.push_back({1, 3, 1, 1, 0});
  EXPECT_EQ(run(schedule).ranks[0].peak_bytes, 4 + 200);
}

TEST(Memory, ChunkListsStandForOneTensorAChunk) {
  // Chunks 0 and 1 each make a t; chunk 1 reads and releases both through its list.
  Op make = touching("make", {{kT, Access::kWrite}}, {kT}, {});
  Schedule schedule = with_tensors({make});
  Op use = touching("use", {}, {}, {});
  View all = flat_view(tensor(kT), 50, Access::kRead);
  all.tensor.chunks = 0;
  use.operands.push_back(all);
  use.release = {all.tensor};
  schedule.segments.push_back({"use", {use}});
  schedule.shapes.front().chunk_lists = {{0, 1}};
  schedule.ranks[0].shapes = {0, 0};
  schedule.programs[0].blocks.push_back({0, 0, 1, 1, 1});
  schedule.programs[0].blocks.push_back({1, 0, 1, 1, 1});
  EXPECT_EQ(run(schedule).ranks[0].peak_bytes, 4 + 200);
  schedule.programs[0].blocks.erase(schedule.programs[0].blocks.begin());
  EXPECT_DEATH(run(schedule), "`use` reads `t` layer 0 chunk 0 instance 0, which is not written");
}

// A rank that receives nothing has a tensor without rows: reading it beside others reads nothing.
TEST(Memory, TensorsOfNoBytesNeedNoWrite) {
  Schedule schedule = with_tensors({touching("r", {{kT, Access::kRead}, {kU, Access::kWrite}}, {kT, kU}, {kT, kU})});
  EXPECT_DEATH(run(schedule), "`r` reads `t` layer 0 chunk 0 instance 0, which is not written");
  schedule.tensors[static_cast<std::size_t>(kT)].flat_rows = 0;
  schedule.segments.front().ops.front().operands.front().flat_rows = 0;
  EXPECT_EQ(run(schedule).ranks[0].peak_bytes, 4 + 48);
}

TEST(MemoryDeathTest, ReadsNeedAnEarlierWrite) {
  // The write on the copy stream ends at 10; without an event the read starts at 0.
  const Schedule schedule = with_tensors(
      {touching("w", {{kT, Access::kWrite}}, {kT}, {}, kCopyInStream), touching("r", {{kT, Access::kRead}}, {}, {kT})});
  EXPECT_DEATH(run(schedule),
               "rank 0, segment s0, layer 0, chunk 0, `r` reads `t` layer 0 chunk 0 instance 0, which is not");
  const Schedule accumulate = with_tensors({touching("w", {{kT, Access::kAccumulate}}, {kT}, {kT})});
  EXPECT_DEATH(run(accumulate), "`w` reads `t`");
}

TEST(MemoryDeathTest, AcquireAndReleaseOnce) {
  EXPECT_DEATH(run(with_tensors({touching("a", {}, {kT}, {}), touching("b", {}, {kT}, {})})),
               "`b` acquires a tensor twice");
  EXPECT_DEATH(run(with_tensors({touching("a", {}, {kT}, {kT}), touching("b", {}, {}, {kT})})),
               "`b` releases a tensor that it does not hold");
  EXPECT_DEATH(run(with_tensors({touching("a", {{kT, Access::kWrite}}, {}, {})})), "`a` writes `t`.*which is not held");
}

TEST(MemoryDeathTest, NothingIsLeftOver) {
  EXPECT_DEATH(run(with_tensors({touching("a", {}, {kT}, {})})),
               "rank 0 ends with 3 tensors and 104 bytes, it began with 2 and 4");
}

// The table against std::map over many random operations: growth, collisions and backward shifts.
TEST(TensorTable, BehavesLikeAMap) {
  TensorTable table;
  std::map<std::uint64_t, bool> model;
  Rng rng(1, "tensor table");
  for (int step = 0; step < 200'000; ++step) {
    TensorId id;
    id.kind = static_cast<TensorKindId>(rng.integer(0, 3));
    id.layer = static_cast<std::int16_t>(rng.integer(0, 7));
    id.chunk = static_cast<std::int32_t>(rng.integer(0, step < 100'000 ? 3 : 15));
    const std::uint64_t key = id.key();
    const auto found = model.find(key);
    switch (rng.integer(0, 3)) {
      case 0:
        ASSERT_EQ(table.insert(key, false), found == model.end());
        model.emplace(key, false);
        break;
      case 1:
        ASSERT_EQ(table.erase(key), found != model.end());
        if (found != model.end()) model.erase(found);
        break;
      case 2:
        ASSERT_EQ(table.mark_written(key), found != model.end());
        if (found != model.end()) found->second = true;
        break;
      default:
        ASSERT_EQ(table.holds(key), found != model.end());
        ASSERT_EQ(table.is_written(key), found != model.end() && found->second);
    }
    ASSERT_EQ(table.size(), model.size());
  }
}

}  // namespace
}  // namespace longhaul
