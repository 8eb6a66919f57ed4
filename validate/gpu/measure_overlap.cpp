#include "validate/gpu/measure_overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "validate/gpu/load.h"
#include "validate/gpu/loop_samples.h"
#include "validate/gpu/machine.h"
#include "validate/gpu/measure_collectives.h"

namespace longhaul {
namespace {

constexpr double kLoopMs = 40;
constexpr double kCallsOfTheLonger = 14;
constexpr int kMaxCalls = 1000;
constexpr std::size_t kMinSamples = 9;
constexpr int kTries = 4;
constexpr int kEstimateCalls = 5;

std::string priority_name(Stream::Priority priority) { return priority == Stream::Priority::kHigh ? "high" : "normal"; }

std::string ctas_name(const Load& neighbour) {
  return neighbour.max_ctas == 0 ? "default" : fmt::to_string(neighbour.max_ctas);
}

std::vector<std::string> key_of(const Load& compute, const Load& neighbour, int gpus) {
  return {compute.name,
          neighbour.name,
          fmt::to_string(neighbour.bytes),
          ctas_name(neighbour),
          priority_name(neighbour.priority),
          fmt::to_string(gpus)};
}

// A load, the stream it runs on, and how long a call takes about.
struct Loop {
  const Load* load = nullptr;
  cudaStream_t stream = nullptr;
  double estimate_ms = 0;
  int calls = 0;
};

// Enqueues loops and reads back when every call started and ended.
class LoopRunner {
 public:
  // The loops run at once, each on its stream; starting times are from one common event.
  std::vector<std::vector<CallSpan>> run(const std::vector<Loop>& loops) {
    std::size_t needed = 0;
    for (const Loop& loop : loops) needed += static_cast<std::size_t>(loop.calls) + 1;
    while (events_.size() < needed) events_.emplace_back();

    base_.record(loops.front().stream);
    std::vector<std::size_t> first(loops.size()), done(loops.size(), 0);
    std::size_t next_event = 0;
    for (std::size_t i = 0; i < loops.size(); ++i) {
      LH_CUDA_CHECK(cudaStreamWaitEvent(loops[i].stream, base_.get(), 0));
      first[i] = next_event;
      next_event += static_cast<std::size_t>(loops[i].calls) + 1;
      events_[first[i]].record(loops[i].stream);
    }
    // In the order in which the calls will about start, so that neither queue runs full while the other is empty.
    for (std::size_t i = earliest(loops, done); i < loops.size(); i = earliest(loops, done)) {
      loops[i].load->enqueue(loops[i].stream);
      ++done[i];
      events_[first[i] + done[i]].record(loops[i].stream);
    }
    return read_back(loops, first);
  }

 private:
  static std::size_t earliest(const std::vector<Loop>& loops, const std::vector<std::size_t>& done) {
    std::size_t best = loops.size();
    double best_ms = 0;
    for (std::size_t i = 0; i < loops.size(); ++i) {
      const double start_ms = static_cast<double>(done[i]) * loops[i].estimate_ms;
      if (done[i] < static_cast<std::size_t>(loops[i].calls) && (best == loops.size() || start_ms < best_ms)) {
        best = i;
        best_ms = start_ms;
      }
    }
    return best;
  }

  std::vector<std::vector<CallSpan>> read_back(const std::vector<Loop>& loops, const std::vector<std::size_t>& first) {
    for (const Loop& loop : loops) LH_CUDA_CHECK(cudaStreamSynchronize(loop.stream));
    std::vector<std::vector<CallSpan>> spans(loops.size());
    for (std::size_t i = 0; i < loops.size(); ++i) {
      for (int call = 0; call < loops[i].calls; ++call) {
        const std::size_t at = first[i] + static_cast<std::size_t>(call);
        spans[i].push_back({events_[at].milliseconds_since(base_), events_[at + 1].milliseconds_since(base_)});
      }
    }
    return spans;
  }

  Event base_;
  std::vector<Event> events_;
};

struct PairTimes {
  SampleSummary compute_alone, compute_together, neighbour_alone, neighbour_together;
};

class PairMeasurement {
 public:
  explicit PairMeasurement(RankTeam::Member& member) : member_(member), high_(Stream::Priority::kHigh) {}

  PairTimes measure(const Load& compute, const Load& neighbour) {
    Loop a{&compute, compute_stream_.get(), 0, 0};
    Loop b{&neighbour, neighbour.priority == Stream::Priority::kHigh ? high_.get() : normal_.get(), 0, 0};
    a.estimate_ms = estimate(a);
    b.estimate_ms = estimate(b);
    double loop_ms = std::max(kLoopMs, kCallsOfTheLonger * std::max(a.estimate_ms, b.estimate_ms));
    set_calls(a, loop_ms);
    set_calls(b, loop_ms);
    PairTimes times;
    times.compute_alone = alone(a);
    times.neighbour_alone = alone(b);
    for (int attempt = 0; attempt < kTries; ++attempt, loop_ms *= 2) {
      set_calls(a, loop_ms);
      set_calls(b, loop_ms);
      member_.barrier();
      const std::vector<std::vector<CallSpan>> spans = runner_.run({a, b});
      const CallSpan common = common_time(spans[0], spans[1]);
      const auto computes = member_.gather(durations_between(spans[0], common.start_ms, common.end_ms));
      const auto neighbours = member_.gather(durations_between(spans[1], common.start_ms, common.end_ms));
      if (std::min(computes.size(), neighbours.size()) < kMinSamples * static_cast<std::size_t>(member_.ranks())) {
        continue;
      }
      times.compute_together = summarize(computes);
      times.neighbour_together = summarize(neighbours);
      return times;
    }
    throw LimitError(fmt::format("{} beside {} of {} bytes: fewer than {} calls lie beside each other: other sizes",
                                 compute.name, neighbour.name, neighbour.bytes, kMinSamples));
  }

 private:
  // The same on every rank, so that all enqueue as many collectives.
  double estimate(Loop loop) {
    loop.calls = kEstimateCalls;
    loop.estimate_ms = 1;
    member_.barrier();
    const std::vector<CallSpan> spans = runner_.run({loop}).front();
    return member_.max((spans.back().end_ms - spans[1].start_ms) / (kEstimateCalls - 1));
  }

  static void set_calls(Loop& loop, double loop_ms) {
    const double least = kCallsOfTheLonger;
    loop.calls = static_cast<int>(std::clamp(std::ceil(loop_ms / loop.estimate_ms), least, double{kMaxCalls}));
  }

  SampleSummary alone(const Loop& loop) {
    member_.barrier();
    const std::vector<CallSpan> spans = runner_.run({loop}).front();
    // The first call starts on an idle device.
    return summarize(member_.gather(durations_between(spans, spans[1].start_ms, spans.back().end_ms)));
  }

  RankTeam::Member& member_;
  Stream compute_stream_, normal_, high_;
  LoopRunner runner_;
};

std::vector<std::string> row_of(const Load& compute, const Load& neighbour, int gpus, const PairTimes& times) {
  std::vector<std::string> row = key_of(compute, neighbour, gpus);
  const auto add = [&](const SampleSummary& summary) {
    for (const double ms : {summary.median, summary.min, summary.max, summary.mean}) {
      row.push_back(fmt::format("{:.5f}", ms));
    }
  };
  add(times.compute_alone);
  add(times.compute_together);
  add(times.neighbour_alone);
  add(times.neighbour_together);
  row.push_back(fmt::to_string(times.compute_together.count));
  row.push_back(fmt::to_string(times.neighbour_together.count));
  return row;
}

void report_progress(const std::vector<std::string>& key, const PairTimes& times, std::size_t rows) {
  fmt::print(stderr, "[{}] {}: compute {:.3f} ms x {:.3f}, beside {:.3f} ms x {:.3f}\n", rows, fmt::join(key, " "),
             times.compute_alone.mean, times.compute_together.mean / times.compute_alone.mean,
             times.neighbour_alone.mean, times.neighbour_together.mean / times.neighbour_alone.mean);
}

// Every rank skips and measures the same pairs: the file is written by rank 0 between two barriers.
void measure_pairs(RankTeam::Member& member, const NeighbourLoads& neighbours, ResultFile& file) {
  const ComputeLoads computes;
  PairMeasurement measurement(member);
  for (const Load& compute : computes.loads()) {
    for (const Load& neighbour : neighbours.loads()) {
      const std::vector<std::string> key = key_of(compute, neighbour, member.ranks());
      const bool done = file.has(key);
      member.barrier();
      if (done) continue;
      const PairTimes times = measurement.measure(compute, neighbour);
      const std::int64_t wrong = neighbour.count_wrong ? neighbour.count_wrong() : 0;
      if (wrong > 0) {
        throw WrongResult(
            fmt::format("{}: {} elements of rank {} are wrong", fmt::join(key, " "), wrong, member.rank()));
      }
      member.barrier();
      if (member.rank() == 0) {
        file.append(row_of(compute, neighbour, member.ranks(), times));
        report_progress(key, times, file.row_count());
      }
      member.barrier();
    }
  }
}

}  // namespace

ResultFormat overlap_format(const OverlapOptions& options) {
  ResultFormat format;
  format.identity = {"source: longhaul-measure overlap: compute and transfers that slow each other down"};
  for (std::string& line : machine_lines(options.gpus)) format.identity.push_back(std::move(line));
  format.identity.emplace_back(
      "method: loops of back-to-back calls on two streams, an event after each call; *_alone: the other stream idle; "
      "*_together: calls wholly within the time in which both loops ran, all ranks; at least 9 samples a rank");
  format.identity.emplace_back(
      "ctas: NCCL's maxCTAs; priority: of the stream beside compute, compute's is normal; bytes: as nccl-tests counts "
      "them, copies: payload, cast_fp32_bf16 beside: bytes of its input; collectives' results checked exactly");
  format.notes = {fmt::format("date: {}", today())};
  format.columns = {"compute", "beside", "bytes", "ctas", "priority", "gpus"};
  format.key_columns = format.columns;
  for (const char* what : {"alone", "together", "beside_alone", "beside_together"}) {
    for (const char* statistic : {"ms", "min_ms", "max_ms", "mean_ms"}) {
      format.columns.push_back(fmt::format("{}_{}", what, statistic));
    }
  }
  format.columns.emplace_back("samples");
  format.columns.emplace_back("beside_samples");
  return format;
}

void measure_overlap(const OverlapOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault) {
  RankTeam(1, on_fault).run([&](RankTeam::Member& member) {
    measure_pairs(member, NeighbourLoads::on_one_gpu(options.sizes), file);
  });
  if (options.gpus < 2) return;
  std::vector<ncclUniqueId> ids;
  for (std::size_t i = 0; i < options.max_ctas.size(); ++i) ids.push_back(make_nccl_id());
  RankTeam(options.gpus, on_fault).run([&](RankTeam::Member& member) {
    measure_pairs(
        member, NeighbourLoads::among_gpus(member.ranks(), member.rank(), ids, options.max_ctas, options.sizes), file);
  });
}

}  // namespace longhaul
