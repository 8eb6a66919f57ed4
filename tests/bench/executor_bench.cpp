// Speed of the executor on a synthetic step: tp 8 inside a node, dp over nodes, 75 ops a layer pass: 68 kernels that
// each acquire an output, read the one before and release the one before that, 4 tensor-parallel collectives that
// compute waits for, 3 weight collectives beside compute (prefetched one layer ahead, slowing it down). Every
// data-parallel replica has its own shapes, so no two replicas are in lock-step.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/executor/simulate.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

constexpr int kTp = 8;
constexpr int kOpsPerPass = 75;
constexpr EventSlot kComputeDone = 0;
constexpr EventSlot kTpDone = 1;
constexpr EventSlot kWeights = 2;

TensorRef layer_tensor(TensorKindId kind) {
  TensorRef ref;
  ref.kind = kind;
  return ref;
}

View whole(const TensorRef& tensor, Access access) {
  View view;
  view.tensor = tensor;
  view.access = access;
  view.columns = 64;
  return view;
}

// 68 kernels in five runs, with a collective of role 0 after each of the first four, and three of role 1 at the front.
std::vector<Op> layer_ops(Pass pass) {
  std::vector<Op> ops;
  for (int i = 0; i < 3; ++i) ops.push_back(with(all_reduce("weights", 1, 1000 + i), {}, i == 2 ? kWeights : kNoEvent));
  int kernels = 0;
  for (int run = 0; run < 5; ++run) {
    const int length = run == 4 ? 12 : 14;
    for (int i = 0; i < length; ++i, ++kernels) {
      Op op;
      op.kind = kernels % 7 == 0 ? OpKind::kMove : OpKind::kElementwise;
      op.function = Function::kNone;
      op.pass = pass;
      op.label = "kernel";
      const auto out = static_cast<TensorKindId>(2 + kernels);
      op.acquire = {layer_tensor(out)};
      op.operands = {whole(layer_tensor(out), Access::kWrite)};
      if (kernels > 0) op.operands.push_back(whole(layer_tensor(static_cast<TensorKindId>(out - 1)), Access::kRead));
      if (kernels > 1) op.release = {layer_tensor(static_cast<TensorKindId>(out - 2))};
      if (kernels == 67) {
        op.release.push_back(layer_tensor(static_cast<TensorKindId>(out - 1)));
        op.release.push_back(layer_tensor(out));
      }
      if (i == 0 && run > 0) op.waits = {kTpDone};
      if (i == 0 && run == 0) op.waits = {kWeights};
      if (i == length - 1) op.record = kComputeDone;
      ops.push_back(op);
    }
    if (run < 4) ops.push_back(with(all_reduce("tp", 0, 2000), {kComputeDone}, kTpDone));
  }
  return ops;
}

Schedule synthetic(int ranks, int layers, int chunks) {
  Schedule schedule = make_schedule(ranks, {"tp", "dp"});
  for (int i = 0; i < 68; ++i) {
    schedule.tensors.push_back({"t" + std::to_string(i), 0, 0, 64, ElementType::kBf16, MemoryCategory::kActivations});
  }
  const int replicas = ranks / kTp;
  schedule.shapes.clear();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int replica = 0; replica < replicas; ++replica) {
      ShapeSet shape;
      shape.row_maps = {make_row_map({{0, TokenView::kClean, 0, 1000 + (replica * 37 + chunk * 11) % 101}})};
      schedule.shapes.push_back(shape);
    }
  }
  schedule.segments = {{"forward", layer_ops(Pass::kForward)}, {"backward", layer_ops(Pass::kBackward)}};
  Program program;
  program.resident = {step_tensor(kOutKind), step_tensor(kBufferKind)};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    program.blocks.push_back({0, 0, static_cast<std::int16_t>(layers), 1, chunk});
    program.blocks.push_back({1, static_cast<std::int16_t>(layers - 1), static_cast<std::int16_t>(layers), -1, chunk});
  }
  schedule.programs = {program};
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<std::int32_t> members;
    for (int i = 0; i < kTp; ++i) members.push_back(replica * kTp + i);
    add_group(schedule, members, 0);
  }
  // Weight groups of 8 neighbouring replicas, so that replicas meet but are not all in lock-step.
  for (int first = 0; first < replicas; first += 8) {
    for (int i = 0; i < kTp; ++i) {
      std::vector<std::int32_t> members;
      for (int r = first; r < std::min(first + 8, replicas); ++r) members.push_back(r * kTp + i);
      add_group(schedule, members, 1);
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    RankInfo& info = schedule.ranks[static_cast<std::size_t>(rank)];
    info.shapes.clear();
    for (int chunk = 0; chunk < chunks; ++chunk) info.shapes.push_back(chunk * replicas + rank / kTp);
  }
  return schedule;
}

void Simulate(benchmark::State& state) {
  const Schedule schedule = synthetic(static_cast<int>(state.range(0)), 32, static_cast<int>(state.range(1)));
  FixedDurations durations;
  durations.launch_ps = 1'000'000;
  durations.beside_communication = 1.1;
  durations.rule = [](const OpInstance& at) { return at.shape->row_maps[0]->rows * (10'000 + 997 * (at.index % 13)); };
  std::int64_t ops = 0;
  std::int64_t events = 0;
  for (auto _ : state) {
    FixedNetwork network;
    network.rule = [](const CollectiveCall& call) { return call.buffer_bytes * 20'000; };
    const Totals totals = simulate(schedule, durations, network);
    ops += totals.ops;
    events += totals.events;
    benchmark::DoNotOptimize(totals.step);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["ops"] = static_cast<double>(ops) / static_cast<double>(state.iterations());
  state.counters["events_per_op"] = static_cast<double>(events) / static_cast<double>(ops);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
  state.SetItemsProcessed(ops);
}
BENCHMARK(Simulate)->Args({8, 1})->Args({1024, 1})->Args({1024, 5})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
