#include "reports/chrome_trace.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "reports/trace_events.h"
#include "sim/schedule/op_kind_name.h"

namespace longhaul {
namespace {

std::string stream_name(const Traced& traced, StreamId stream) {
  const auto index = static_cast<std::size_t>(stream);
  return index < traced.streams.size() ? traced.streams[index] : fmt::format("stream {}", stream);
}

std::string rank_name(const Traced& traced, std::int32_t rank) {
  if (traced.gpus_per_node <= 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (node {}, GPU {})", rank, rank / traced.gpus_per_node, rank % traced.gpus_per_node);
}

void write_names(const Traced& traced, TraceEvents& events) {
  std::set<std::int32_t> ranks;
  std::set<std::pair<std::int32_t, StreamId>> streams;
  for (const OpRecord& op : traced.timeline->ops) {
    ranks.insert(op.rank);
    streams.insert({op.rank, op.stream});
  }
  for (const auto& sample : traced.timeline->samples) ranks.insert(sample.rank);
  for (const std::int32_t rank : ranks) events.name_process(rank, rank_name(traced, rank));
  for (const auto& [rank, stream] : streams) events.name_thread(rank, stream, stream_name(traced, stream));
}

void write_op(const OpRecord& op, TraceEvents& events) {
  const int tid = op.stream;
  if (op.kind == OpKind::kCollective && op.arrival < op.start) {
    events.add(fmt::format(R"({{"ph":"X","name":"wait for members","cat":"wait","pid":{},"tid":{},"ts":{},"dur":{},)"
                           R"("args":{{"start_ps":{},"duration_ps":{},"for":{}}}}})",
                           op.rank, tid, trace_microseconds(op.arrival.ps()),
                           trace_microseconds((op.start - op.arrival).ps()), op.arrival.ps(),
                           (op.start - op.arrival).ps(), trace_string(op.label)));
  }
  std::string args = fmt::format(R"("start_ps":{},"duration_ps":{},"pass":"{}","chunk":{})", op.start.ps(),
                                 (op.end - op.start).ps(), to_string(op.pass), op.chunk);
  if (op.layer != kNoLayer) args += fmt::format(R"(,"layer":{})", op.layer);
  if (op.group >= 0) args += fmt::format(R"(,"group":{})", op.group);
  events.add(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                         trace_string(op.label), op_kind_name(op.kind), op.rank, tid, trace_microseconds(op.start.ps()),
                         trace_microseconds((op.end - op.start).ps()), args));
}

}  // namespace

void write_chrome_trace(std::ostream& out, const Traced& traced) {
  out << fmt::format(R"({{"displayTimeUnit":"ns","otherData":{{"case":{},"strategy":{},"step_ps":"{}",)"
                     R"("memory_limit_bytes":"{}"}},"traceEvents":[)",
                     trace_string(traced.case_name), trace_string(traced.strategy), traced.step.ps(),
                     traced.memory_limit_bytes);
  TraceEvents events(out);
  write_names(traced, events);
  for (const OpRecord& op : traced.timeline->ops) write_op(op, events);
  for (const auto& sample : traced.timeline->samples) {
    events.add(fmt::format(R"({{"ph":"C","name":"memory","pid":{},"tid":0,"ts":{},"args":{{"bytes":{}}}}})",
                           sample.rank, trace_microseconds(sample.time.ps()), sample.bytes));
  }
  out << "\n]}\n";
}

}  // namespace longhaul
