#include "validate/gpu/measure_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "validate/gpu/call_graph.h"
#include "validate/gpu/communicator.h"
#include "validate/gpu/device_data.h"
#include "validate/gpu/exchange_plan.h"
#include "validate/gpu/loop_samples.h"
#include "validate/gpu/machine.h"

namespace longhaul {
namespace {

constexpr int kWarmUps = 5;
constexpr int kBatches = 5;
constexpr int kGraphCalls = 20;  // divides the calls of every batch
constexpr const char* kElementType = "float";
// Left to NCCL's own buffers and the context.
constexpr std::size_t kReservedBytes = std::size_t{4} << 30;

int calls_of(std::int64_t bytes) {
  if (bytes <= (std::int64_t{1} << 20)) return 200;
  return bytes <= (std::int64_t{16} << 20) ? 60 : 20;
}

// One point to measure: what is enqueued, what must come out, and the buffers that it needs.
struct Point {
  std::vector<std::string> key;
  std::int64_t bytes = 0;
  std::function<std::int64_t(int rank)> send_count, receive_count;  // elements
  std::function<void(const Communicator&, const float*, float*, cudaStream_t)> enqueue;
  std::function<std::vector<ReceivedRun>(int rank)> runs;
  // The row of a measured time.
  std::function<std::vector<std::string>(const SampleSummary& us)> row;

  std::int64_t buffer_bytes(int ranks) const {
    std::int64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) most = std::max(most, send_count(rank) + receive_count(rank));
    return most * kElementBytes;
  }
};

class RankMeasurement {
 public:
  RankMeasurement(RankTeam::Member& member, const ncclUniqueId& id, std::int64_t send_count, std::int64_t receive_count,
                  bool graph)
      : member_(member),
        graph_(graph),
        comm_(id, member.ranks(), member.rank()),
        send_(static_cast<std::size_t>(send_count)),
        receive_(static_cast<std::size_t>(receive_count)) {
    fill_pattern(send_.data(), send_count, member.rank(), stream_.get());
    stream_.synchronize();
  }

  // Microseconds a call, over the batches; the same on every rank.
  SampleSummary measure(const Point& point) {
    receive_.poison(stream_.get());
    const auto call = [&] { point.enqueue(comm_, send_.data(), receive_.data(), stream_.get()); };
    run_batch(kWarmUps, call);
    std::function<void()> step = call;
    int calls_a_step = 1;
    if (graph_) {
      const auto graph = std::make_shared<CallGraph>(stream_.get(), [&] {
        for (int i = 0; i < kGraphCalls; ++i) call();
      });
      step = [this, graph] { graph->launch(stream_.get()); };
      calls_a_step = kGraphCalls;
      run_batch(1, step);
    }
    const int steps = calls_of(point.bytes) / calls_a_step;
    std::vector<double> batches;
    for (int batch = 0; batch < kBatches; ++batch) {
      batches.push_back(member_.mean(run_batch(steps, step) / calls_a_step));
    }
    expect_right(point);
    return summarize(batches);
  }

 private:
  // Microseconds a step.
  double run_batch(int steps, const std::function<void()>& step) {
    stream_.synchronize();
    member_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step();
    stream_.synchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    comm_.check_health();
    return took.count() / steps;
  }

  void expect_right(const Point& point) {
    const std::int64_t wrong =
        count_mismatches(receive_.data(), point.runs(member_.rank()), member_.ranks(), stream_.get());
    if (wrong > 0) {
      throw WrongResult(
          fmt::format("{}: {} elements of rank {} are wrong", fmt::join(point.key, " "), wrong, member_.rank()));
    }
    member_.barrier();  // a wrong result is reported before anything is written
  }

  RankTeam::Member& member_;
  bool graph_;
  Stream stream_;
  Communicator comm_;
  DeviceBuffer<float> send_, receive_;
};

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  LH_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

// Those that are not in the file and fit the memory.
std::vector<Point> points_to_do(std::vector<Point> points, const ResultFile& file, int ranks) {
  const std::size_t free = free_bytes();
  const std::size_t usable = free > kReservedBytes ? free - kReservedBytes : 0;
  std::vector<Point> todo;
  for (Point& point : points) {
    if (file.has(point.key)) continue;
    if (static_cast<std::size_t>(point.buffer_bytes(ranks)) > usable) {
      fmt::print(stderr, "{}: left out, needs {} bytes of device memory, {} are free\n", fmt::join(point.key, " "),
                 point.buffer_bytes(ranks), usable);
      continue;
    }
    todo.push_back(std::move(point));
  }
  return todo;
}

void measure_points(const std::vector<Point>& points, const CollectivesOptions& options, ResultFile& file,
                    const RankTeam::OnFault& on_fault) {
  const int ranks = options.gpus;
  if (points.empty()) return;
  std::int64_t send = 0, receive = 0;
  for (const Point& point : points) {
    for (int rank = 0; rank < ranks; ++rank) {
      send = std::max(send, point.send_count(rank));
      receive = std::max(receive, point.receive_count(rank));
    }
  }
  const ncclUniqueId id = make_nccl_id();
  RankTeam(ranks, on_fault).run([&](RankTeam::Member& member) {
    RankMeasurement measurement(member, id, send, receive, options.graph);
    std::size_t done = 0;
    for (const Point& point : points) {
      const SampleSummary us = measurement.measure(point);
      if (member.rank() != 0) continue;
      file.append(point.row(us));
      ++done;
      if (options.quiet) continue;
      fmt::print(stderr, "[{}/{}] {}: {:.2f} us\n", done, points.size(), fmt::join(point.key, " "), us.median);
    }
    member.barrier();  // no rank leaves its communicator while another still uses it
  });
}

// The columns that say on what and how, in the order of the tables.
std::vector<std::string> place_fields(const CollectivesOptions& options, std::string_view collective) {
  return {std::string(collective),
          gpu_name(0),
          fmt::to_string(options.gpus),
          "1",
          fmt::to_string(options.gpus_per_node),
          kElementType};
}

std::vector<std::string> harness_fields(const CollectivesOptions& options) {
  return {options.fabric, nccl_version(), "nccl-tests"};
}

std::vector<std::string> identity_lines(const CollectivesOptions& options, std::string_view what) {
  std::vector<std::string> lines = {fmt::format("source: longhaul-measure collectives: {}", what)};
  for (std::string& line : machine_lines(options.gpus)) lines.push_back(std::move(line));
  lines.emplace_back(
      "method: as nccl-tests: one process, a host thread a GPU, out of place, 5 warm-ups, median of 5 batches of "
      "back-to-back calls (200 up to 1 MiB; 60 up to 16 MiB; 20 above), host clock, mean over ranks");
  if (options.graph) lines.emplace_back("launches: a batch replays a CUDA graph of 20 calls, as nccl-tests -G");
  lines.emplace_back("checked: every element of the last call's result, exactly");
  return lines;
}

std::vector<std::string> join(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Point collective_point(const CollectivesOptions& options, const CollectiveShape& shape) {
  Point point;
  const std::string name(collective_name(shape.collective));
  point.bytes = shape.size_bytes();
  point.key = {name, fmt::to_string(point.bytes)};
  point.send_count = [shape](int) { return shape.send_count; };
  point.receive_count = [shape](int) { return shape.receive_count; };
  point.enqueue = [shape](const Communicator& comm, const float* send, float* receive, cudaStream_t stream) {
    comm.enqueue(shape, send, receive, stream);
  };
  point.runs = [shape](int rank) { return received_runs(shape, rank); };
  point.row = [options, shape, name](const SampleSummary& us) {
    const double algbw = static_cast<double>(shape.size_bytes()) / us.median / 1000;
    const double busbw = algbw * bus_factor(shape.collective, shape.ranks);
    const std::vector<std::string> measured = {fmt::to_string(shape.size_bytes()),
                                               fmt::to_string(shape.count),
                                               fmt::format("{:.2f}", us.median),
                                               fmt::format("{:.3f}", algbw),
                                               fmt::format("{:.3f}", busbw),
                                               "",
                                               "",
                                               ""};
    return join(join(place_fields(options, name), measured), harness_fields(options));
  };
  return point;
}

using EnqueueExchange = void (Communicator::*)(const ExchangePlan&, const float*, float*, cudaStream_t) const;

// The largest message between two ranks and the most that a rank sends or receives, its part for itself left out.
std::pair<std::int64_t, std::int64_t> busiest(const ExchangePlan& plan) {
  std::int64_t message = 0, rank_bytes = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::int64_t out = 0, in = 0;
    for (int peer = 0; peer < plan.ranks; ++peer) {
      if (peer == rank) continue;
      out += plan.count(rank, peer);
      in += plan.count(peer, rank);
      message = std::max(message, plan.count(rank, peer));
    }
    rank_bytes = std::max({rank_bytes, out, in});
  }
  return {message * kElementBytes, rank_bytes * kElementBytes};
}

Point uneven_point(const CollectivesOptions& options, const ExchangePlan& plan, std::int64_t bytes,
                   const std::string& method, EnqueueExchange enqueue) {
  Point point;
  const std::string name = plan.gather ? "all_gatherv" : "alltoallv";
  point.bytes = bytes;
  point.key = {name, fmt::to_string(bytes), plan.distribution, method};
  point.send_count = [plan](int rank) { return plan.send_count(rank); };
  point.receive_count = [plan](int rank) { return plan.receive_count(rank); };
  point.enqueue = [plan, enqueue](const Communicator& comm, const float* send, float* receive, cudaStream_t stream) {
    (comm.*enqueue)(plan, send, receive, stream);
  };
  point.runs = [plan](int rank) { return received_runs(plan, rank); };
  point.row = [options, plan, method, name, bytes](const SampleSummary& us) {
    const auto [message, rank_bytes] = busiest(plan);
    const std::vector<std::string> measured = {fmt::to_string(bytes),
                                               plan.distribution,
                                               method,
                                               plan.bytes_text(),
                                               fmt::to_string(message),
                                               fmt::to_string(rank_bytes),
                                               fmt::format("{:.2f}", us.median),
                                               fmt::format("{:.2f}", us.min),
                                               fmt::format("{:.2f}", us.max)};
    return join(join(place_fields(options, name), measured), harness_fields(options));
  };
  return point;
}

}  // namespace

ResultFormat collectives_format(const CollectivesOptions& options) {
  ResultFormat format;
  format.identity = identity_lines(options, "collectives of equal parts");
  format.notes = {fmt::format("date: {}", today())};
  format.columns = {"collective",    "gpu",           "n_gpu",       "n_nodes",        "gpus_per_node",  "dtype",
                    "size_bytes",    "count",         "oop_time_us", "oop_algbw_GBps", "oop_busbw_GBps", "ip_time_us",
                    "ip_algbw_GBps", "ip_busbw_GBps", "fabric",      "nccl_version",   "harness"};
  format.key_columns = {"collective", "size_bytes"};
  return format;
}

void measure_collectives(const CollectivesOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault) {
  std::vector<Point> points;
  for (const MeasuredCollective collective : options.collectives) {
    for (const std::int64_t bytes : options.sizes) {
      const std::optional<CollectiveShape> shape = shape_of(collective, options.gpus, bytes);
      if (shape) points.push_back(collective_point(options, *shape));
    }
  }
  measure_points(points_to_do(std::move(points), file, options.gpus), options, file, on_fault);
}

ResultFormat uneven_format(const CollectivesOptions& options) {
  ResultFormat format;
  format.identity = identity_lines(options, "exchanges of uneven parts");
  format.identity.emplace_back(
      "size_bytes: alltoallv: mean send buffer of a rank; all_gatherv: the gathered buffer. pair_bytes: what each rank "
      "(between ';') sends to each (between '/'); busiest_*: largest message and largest sum a rank; own part left "
      "out");
  format.notes = {fmt::format("date: {}", today())};
  format.columns = {
      "collective", "gpu",          "n_gpu",       "n_nodes",    "gpus_per_node",         "dtype",
      "size_bytes", "distribution", "method",      "pair_bytes", "busiest_message_bytes", "busiest_rank_bytes",
      "time_us",    "time_min_us",  "time_max_us", "fabric",     "nccl_version",          "harness"};
  format.key_columns = {"collective", "size_bytes", "distribution", "method"};
  return format;
}

void measure_uneven(const CollectivesOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault) {
  std::vector<Point> points;
  for (const std::int64_t bytes : options.sizes) {
    for (const ExchangePlan& plan : all_to_all_plans(options.gpus, bytes)) {
      points.push_back(uneven_point(options, plan, bytes, "sends", &Communicator::enqueue_exchange));
    }
    for (const ExchangePlan& plan : all_gather_plans(options.gpus, bytes)) {
      points.push_back(uneven_point(options, plan, bytes, "sends", &Communicator::enqueue_exchange));
      points.push_back(uneven_point(options, plan, bytes, "broadcasts", &Communicator::enqueue_broadcasts));
    }
  }
  measure_points(points_to_do(std::move(points), file, options.gpus), options, file, on_fault);
}

}  // namespace longhaul
