#include "reports/double_trace.h"

#include <fmt/format.h>

#include <set>

#include "reports/trace_events.h"

namespace longhaul {
namespace {

int predicted_thread(StreamId stream) { return 2 * stream; }
int measured_thread(StreamId stream) { return 2 * stream + 1; }

void write_names(const DoubleTraceHead& head, const DoubleTimeline& timeline, TraceEvents& events) {
  std::set<std::int32_t> ranks;
  std::set<std::pair<std::int32_t, StreamId>> streams;
  for (const DoubleOp& op : timeline.ops) {
    ranks.insert(op.rank);
    streams.insert({op.rank, op.stream});
  }
  for (const std::int32_t rank : ranks) events.name_process(rank, fmt::format("rank {}", rank));
  for (const auto& [rank, stream] : streams) {
    const std::string& name = timeline.streams.at(static_cast<std::size_t>(stream));
    events.name_thread(rank, predicted_thread(stream), name + ": predicted");
    events.name_thread(rank, measured_thread(stream), name + (head.composed ? ": composed" : ": measured"));
  }
}

void write_event(const DoubleOp& op, bool measured, TraceEvents& events) {
  const auto [start, end] = measured ? *op.measured : op.predicted;
  std::string args = fmt::format(R"("start_ps":{},"duration_ps":{},"pass":"{}","chunk":{},"shape":{})", start.ps(),
                                 (end - start).ps(), op.pass, op.chunk, trace_string(op.shape));
  if (op.layer != kNoLayer) args += fmt::format(R"(,"layer":{})", op.layer);
  if (measured) {
    const Time predicted = op.predicted.second - op.predicted.first;
    args += fmt::format(R"(,"predicted_ps":{})", predicted.ps());
    if (op.modelled) {
      args += R"(,"source":"model")";
    } else if (end > start) {
      args += fmt::format(R"(,"error":{:.6f})", predicted.seconds() / (end - start).seconds() - 1);
    }
  }
  events.add(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                         trace_string(op.label), op.kind, op.rank,
                         measured ? measured_thread(op.stream) : predicted_thread(op.stream),
                         trace_microseconds(start.ps()), trace_microseconds((end - start).ps()), args));
}

}  // namespace

void write_double_trace(std::ostream& out, const DoubleTraceHead& head, const DoubleTimeline& timeline) {
  out << fmt::format(R"({{"displayTimeUnit":"ns","otherData":{{"case":{},"strategy":{},"lower_rows":"{}"}},)"
                     R"("traceEvents":[)",
                     trace_string(head.study_case), trace_string(head.strategy),
                     head.composed ? "measured kernels, modelled transfers" : "measured");
  TraceEvents events(out);
  write_names(head, timeline, events);
  for (const DoubleOp& op : timeline.ops) {
    write_event(op, false, events);
    if (op.measured) write_event(op, true, events);
  }
  out << "\n]}\n";
}

}  // namespace longhaul
