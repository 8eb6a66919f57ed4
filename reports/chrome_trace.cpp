#include "reports/chrome_trace.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace longhaul {
namespace {

const char* kind_name(const OpRecord& op) {
  switch (op.kind) {
    case OpKind::kGemm:
      return "gemm";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kMergePartials:
      return "merge";
    case OpKind::kElementwise:
      return "elementwise";
    case OpKind::kMove:
      return "move";
    case OpKind::kOptimizer:
      return "optimizer";
    case OpKind::kCollective:
      return "collective";
  }
  return "op";
}

// A JSON string literal; bytes that are no UTF-8 are replaced.
std::string json_string(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Picoseconds as microseconds: all six decimals, so nothing is lost.
std::string microseconds(std::int64_t ps) {
  return fmt::format("{}{}.{:06}", ps < 0 ? "-" : "", std::abs(ps) / 1'000'000, std::abs(ps) % 1'000'000);
}

class EventList {
 public:
  explicit EventList(std::ostream& out) : out_(out) {}
  void add(const std::string& event) {
    out_ << (first_ ? "\n" : ",\n") << event;
    first_ = false;
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

std::string stream_name(const Traced& traced, StreamId stream) {
  const auto index = static_cast<std::size_t>(stream);
  return index < traced.streams.size() ? traced.streams[index] : fmt::format("stream {}", stream);
}

std::string rank_name(const Traced& traced, std::int32_t rank) {
  if (traced.gpus_per_node <= 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (node {}, GPU {})", rank, rank / traced.gpus_per_node, rank % traced.gpus_per_node);
}

void write_names(const Traced& traced, EventList& events) {
  std::set<std::int32_t> ranks;
  std::set<std::pair<std::int32_t, StreamId>> streams;
  for (const OpRecord& op : traced.timeline->ops) {
    ranks.insert(op.rank);
    streams.insert({op.rank, op.stream});
  }
  for (const auto& sample : traced.timeline->samples) ranks.insert(sample.rank);
  for (const std::int32_t rank : ranks) {
    events.add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":{1}}}}})", rank,
                           json_string(rank_name(traced, rank))));
    events.add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", rank));
  }
  for (const auto& [rank, stream] : streams) {
    const int tid = stream;
    events.add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", rank, tid,
                           json_string(stream_name(traced, stream))));
    events.add(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                           rank, tid, tid));
  }
}

void write_op(const OpRecord& op, EventList& events) {
  const int tid = op.stream;
  if (op.kind == OpKind::kCollective && op.arrival < op.start) {
    events.add(fmt::format(R"({{"ph":"X","name":"wait for members","cat":"wait","pid":{},"tid":{},"ts":{},"dur":{},)"
                           R"("args":{{"start_ps":{},"duration_ps":{},"for":{}}}}})",
                           op.rank, tid, microseconds(op.arrival.ps()), microseconds((op.start - op.arrival).ps()),
                           op.arrival.ps(), (op.start - op.arrival).ps(), json_string(op.label)));
  }
  std::string args = fmt::format(R"("start_ps":{},"duration_ps":{},"pass":"{}","chunk":{})", op.start.ps(),
                                 (op.end - op.start).ps(), to_string(op.pass), op.chunk);
  if (op.layer != kNoLayer) args += fmt::format(R"(,"layer":{})", op.layer);
  if (op.group >= 0) args += fmt::format(R"(,"group":{})", op.group);
  events.add(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                         json_string(op.label), kind_name(op), op.rank, tid, microseconds(op.start.ps()),
                         microseconds((op.end - op.start).ps()), args));
}

}  // namespace

void write_chrome_trace(std::ostream& out, const Traced& traced) {
  out << fmt::format(R"({{"displayTimeUnit":"ns","otherData":{{"case":{},"strategy":{},"step_ps":"{}",)"
                     R"("memory_limit_bytes":"{}"}},"traceEvents":[)",
                     json_string(traced.case_name), json_string(traced.strategy), traced.step.ps(),
                     traced.memory_limit_bytes);
  EventList events(out);
  write_names(traced, events);
  for (const OpRecord& op : traced.timeline->ops) write_op(op, events);
  for (const auto& sample : traced.timeline->samples) {
    events.add(fmt::format(R"({{"ph":"C","name":"memory","pid":{},"tid":0,"ts":{},"args":{{"bytes":{}}}}})",
                           sample.rank, microseconds(sample.time.ps()), sample.bytes));
  }
  out << "\n]}\n";
}

}  // namespace longhaul
