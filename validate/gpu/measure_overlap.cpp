#include "validate/gpu/measure_overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "validate/gpu/load.h"
#include "validate/gpu/loop_runner.h"
#include "validate/gpu/loop_samples.h"
#include "validate/gpu/machine.h"
#include "validate/gpu/measure_collectives.h"

namespace longhaul {
namespace {

constexpr double kLoopMs = 15;
constexpr double kCallsOfTheLonger = 6;
constexpr int kMaxCalls = 1000;
constexpr std::size_t kMinSamples = 9;
constexpr int kTurns = 3, kMostTurns = 6;
constexpr int kCoveredTurns = 5;
constexpr double kSlowDown = 2.0, kMostSlowDown = 20;
constexpr int kEstimateCalls = 3;

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

// Samples of all turns and ranks.
struct PairSamples {
  std::vector<double> compute_alone, compute_together, neighbour_alone, neighbour_together;

  bool enough(int ranks) const {
    return std::min(compute_together.size(), neighbour_together.size()) >=
           kMinSamples * static_cast<std::size_t>(ranks);
  }
};

void append(std::vector<double>& samples, const std::vector<double>& more) {
  samples.insert(samples.end(), more.begin(), more.end());
}

class PairMeasurement {
 public:
  explicit PairMeasurement(RankTeam::Member& member) : member_(member), high_(Stream::Priority::kHigh) {}

  PairSamples loops(const Load& compute, const Load& neighbour) {
    Loop a = loop_of(compute), b = loop_of(neighbour);
    PairSamples samples;
    double loop_ms = std::max(kLoopMs, kCallsOfTheLonger * std::max(a.estimate_ms, b.estimate_ms));
    for (int turn = 0; turn < kTurns || (turn < kMostTurns && !samples.enough(member_.ranks())); ++turn) {
      if (turn >= kTurns) loop_ms *= 2;  // one side takes so much longer that the other had few calls
      set_calls(a, loop_ms);
      set_calls(b, loop_ms);
      append(samples.compute_alone, alone(a));
      append(samples.neighbour_alone, alone(b));
      member_.barrier();
      const std::vector<std::vector<CallSpan>> spans = runner_.run({a, b});
      add_common(spans[0], spans[1], samples);
    }
    return samples;
  }

  PairSamples covered(const Load& compute, const Load& neighbour) {
    Loop a = loop_of(compute), b = loop_of(neighbour);
    b.calls = 1;
    PairSamples samples;
    double slow_down = kSlowDown;
    for (int turn = 0; turn < kCoveredTurns;) {
      // Compute alone follows a collective, as it does together: clocks that fall with power start as high.
      append(samples.neighbour_alone, single(b));
      set_calls(a, b.estimate_ms);
      append(samples.compute_alone, alone(a));
      append(samples.neighbour_alone, single(b));
      set_calls(a, slow_down * b.estimate_ms);
      member_.barrier();
      const std::vector<std::vector<CallSpan>> spans = runner_.run({b, a}, LoopRunner::Start::kFirstAhead);
      const bool covered = spans[1].back().end_ms >= spans[0].back().end_ms;
      if (member_.max(covered ? 0 : 1) > 0) {  // somewhere compute ended first
        slow_down *= 2;
        if (slow_down > kMostSlowDown) {
          throw LimitError(
              fmt::format("{} beside {} takes over {} times as long", neighbour.name, compute.name, kMostSlowDown));
        }
        continue;
      }
      add_common(spans[1], spans[0], samples);
      ++turn;
    }
    return samples;
  }

 private:
  Loop loop_of(const Load& load) {
    const bool high = load.priority == Stream::Priority::kHigh;
    const cudaStream_t beside = high ? high_.get() : normal_.get();
    Loop loop{&load, load.bytes > 0 ? beside : compute_stream_.get(), 1, kEstimateCalls};
    member_.barrier();
    const std::vector<CallSpan> spans = runner_.run({loop}).front();
    // The same on every rank, so that all enqueue as many collectives.
    loop.estimate_ms = member_.max((spans.back().end_ms - spans[1].start_ms) / (kEstimateCalls - 1));
    return loop;
  }

  static void set_calls(Loop& loop, double loop_ms) {
    const double calls = std::ceil(loop_ms / loop.estimate_ms);
    loop.calls = static_cast<int>(std::clamp(calls, kCallsOfTheLonger, double{kMaxCalls}));
  }

  std::vector<double> alone(const Loop& loop) {
    member_.barrier();
    const std::vector<CallSpan> spans = runner_.run({loop}).front();
    // The first call starts on an idle device.
    return member_.gather(durations_between(spans, spans[1].start_ms, spans.back().end_ms));
  }

  std::vector<double> single(const Loop& loop) {
    member_.barrier();
    const CallSpan span = runner_.run({loop}).front().front();
    return member_.gather({span.end_ms - span.start_ms});
  }

  void add_common(const std::vector<CallSpan>& compute, const std::vector<CallSpan>& neighbour, PairSamples& samples) {
    const CallSpan common = common_time(compute, neighbour);
    append(samples.compute_together, member_.gather(durations_between(compute, common.start_ms, common.end_ms)));
    // A single long call began ahead of its neighbour.
    const double from_ms = neighbour.size() == 1 ? neighbour.front().start_ms : common.start_ms;
    append(samples.neighbour_together, member_.gather(durations_between(neighbour, from_ms, common.end_ms)));
  }

  RankTeam::Member& member_;
  Stream compute_stream_, normal_, high_;
  LoopRunner runner_;
};

struct PairTimes {
  SampleSummary compute_alone, compute_together, neighbour_alone, neighbour_together;
};

PairTimes times_of(const PairSamples& samples, const std::vector<std::string>& key) {
  if (samples.compute_together.empty() || samples.neighbour_together.empty()) {
    throw LimitError(fmt::format("{}: no calls lie beside each other: other sizes", fmt::join(key, " ")));
  }
  return {summarize(samples.compute_alone), summarize(samples.compute_together), summarize(samples.neighbour_alone),
          summarize(samples.neighbour_together)};
}

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
void measure_pairs(RankTeam::Member& member, const NeighbourLoads& neighbours, const OverlapOptions& options,
                   ResultFile& file) {
  const ComputeLoads computes;
  PairMeasurement measurement(member);
  for (const Load& compute : computes.loads()) {
    for (const Load& neighbour : neighbours.loads()) {
      const std::vector<std::string> key = key_of(compute, neighbour, member.ranks());
      const bool done = file.has(key);
      member.barrier();
      if (done) continue;
      const PairTimes times = times_of(
          options.covered ? measurement.covered(compute, neighbour) : measurement.loops(compute, neighbour), key);
      const std::int64_t wrong = neighbour.count_wrong ? neighbour.count_wrong() : 0;
      if (wrong > 0) {
        throw WrongResult(
            fmt::format("{}: {} elements of rank {} are wrong", fmt::join(key, " "), wrong, member.rank()));
      }
      member.barrier();
      if (member.rank() == 0) {
        file.append(row_of(compute, neighbour, member.ranks(), times));
        if (!options.quiet) report_progress(key, times, file.row_count());
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
      options.covered
          ? "method: one long call beside, its blocks on the device before the compute loop starts; an event after "
            "each "
            "call; *_together: compute calls within it, and it; 5 turns of the other alone, compute alone (as long), "
            "the "
            "other alone, together"
          : "method: loops of back-to-back calls on two streams, an event after each call; *_together: calls wholly "
            "within the time in which both loops ran; 3 turns (up to 6 for 9 samples a rank) of compute alone, the "
            "other "
            "alone, together; all ranks");
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
  if (!options.covered) {
    RankTeam(1, on_fault).run([&](RankTeam::Member& member) {
      measure_pairs(member, NeighbourLoads::on_one_gpu(options.sizes), options, file);
    });
  }
  if (options.gpus < 2) return;
  std::vector<ncclUniqueId> ids;
  for (std::size_t i = 0; i < options.max_ctas.size(); ++i) ids.push_back(make_nccl_id());
  RankTeam(options.gpus, on_fault).run([&](RankTeam::Member& member) {
    const auto neighbours =
        options.covered
            ? NeighbourLoads::long_calls(member.ranks(), member.rank(), ids, options.max_ctas)
            : NeighbourLoads::among_gpus(member.ranks(), member.rank(), ids, options.max_ctas, options.sizes);
    measure_pairs(member, neighbours, options, file);
  });
}

}  // namespace longhaul
