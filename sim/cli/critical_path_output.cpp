#include "sim/cli/critical_path_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace longhaul {
namespace {

constexpr std::size_t kLongest = 10;
constexpr std::size_t kSegmentsInJson = 1000;

std::string left_out() {
  return fmt::format("left out: the step has more than {} ops; fewer GPUs or sequences make it traceable",
                     kCriticalPathOps);
}

double ms(Time time) { return static_cast<double>(time.ps()) / 1e9; }

double share(Time time, const CriticalPath& path) {
  return static_cast<double>(time.ps()) / static_cast<double>(path.step.ps());
}

std::string stream_name(const Schedule& schedule, StreamId stream) {
  switch (stream) {
    case kHostStream:
      return "host";
    case kComputeStream:
      return "compute";
    case kCopyInStream:
      return "copy-in";
    case kCopyOutStream:
      return "copy-out";
    default:
      return schedule.roles[static_cast<std::size_t>(stream - kFirstCommunicationStream)];
  }
}

const std::string& class_name(const CriticalPath& path, const PathSegment& segment) {
  return path.classes[static_cast<std::size_t>(segment.path_class)].name;
}

// "attention_backward, backward, layer 31, chunk 0: 20.5 ms".
std::string segment_text(const PathSegment& segment) {
  std::string text = fmt::format("{}, {}", segment.label, to_string(segment.pass));
  if (segment.layer >= 0) text += fmt::format(", layer {}", segment.layer);
  if (segment.chunk >= 0) text += fmt::format(", chunk {}", segment.chunk);
  return text + fmt::format(": {:.1f} ms", segment.time().ms());
}

std::string stretches_text(const CriticalPath& path) {
  std::string text = fmt::format("\n  {:<6} {:>9} {:>9}  {:<26} {}\n", "rank", "from ms", "time ms", "most of it",
                                 "longest op (the 10 longest stretches on one rank)");
  for (const PathStretch& stretch : longest_stretches(path, kLongest)) {
    const double part = static_cast<double>(stretch.most_time.ps()) / static_cast<double>(stretch.time().ps());
    const std::string most =
        fmt::format("{} {:.0f} %", path.classes[static_cast<std::size_t>(stretch.most)].name, 100 * part);
    text += fmt::format("  {:<6} {:>9.1f} {:>9.1f}  {:<26} {}\n", stretch.rank, stretch.begin.ms(), stretch.time().ms(),
                        most, segment_text(path.segments[stretch.longest]));
  }
  return text;
}

Json number_or_null(std::int64_t number) { return number < 0 ? Json() : Json(number); }

}  // namespace

std::string critical_path_text(const std::optional<CriticalPath>& path, std::int64_t steps) {
  if (!path) return "\n  critical path: " + left_out() + "\n";
  std::string text = fmt::format("\n  critical path{}: {:.1f} ms in {} segments, {} hop{} between ranks\n",
                                 steps > 1 ? " of step 1" : "", path->step.ms(), path->segments.size(), path->hops,
                                 path->hops == 1 ? "" : "s");
  if (path->segments.empty()) return text;
  text += fmt::format("  {:<26} {:>10} {:>9} {:>9}\n", "on the path", "time ms", "share %", "ops");
  for (const PathClass& one : path->classes) {
    text += fmt::format("  {:<26} {:>10.1f} {:>9.1f} {:>9}\n", one.name, one.time.ms(), 100 * share(one.time, *path),
                        one.ops);
  }
  const PathClass& most = path->classes.front();
  text += fmt::format(
      "  If {} took no time and all else as long as now, the step would shrink by at most {:.1f} ms; so for\n"
      "  every class: by at most its time on the path, less where another path is nearly as long.\n",
      most.name, most.time.ms());
  return text + stretches_text(*path);
}

Json critical_path_json(const Schedule& schedule, const std::optional<CriticalPath>& path) {
  if (!path) return {{"left_out", left_out()}};
  Json summary = Json::array();
  for (const PathClass& one : path->classes) {
    summary.push_back({{"class", one.name},
                       {"time_ms", ms(one.time)},
                       {"share", share(one.time, *path)},
                       {"ops", one.ops},
                       {"step_shrinks_by_at_most_ms", ms(one.time)}});
  }
  Json segments = Json::array();
  for (std::size_t i = 0; i < std::min(path->segments.size(), kSegmentsInJson); ++i) {
    const PathSegment& segment = path->segments[i];
    segments.push_back({{"rank", segment.rank},
                        {"stream", stream_name(schedule, segment.stream)},
                        {"label", segment.label},
                        {"class", class_name(*path, segment)},
                        {"pass", to_string(segment.pass)},
                        {"layer", number_or_null(segment.layer)},
                        {"chunk", number_or_null(segment.chunk)},
                        {"begin_ms", ms(segment.begin)},
                        {"end_ms", ms(segment.end)}});
  }
  return {{"step_time_ms", ms(path->step)},
          {"rank_hops", path->hops},
          {"segment_count", path->segments.size()},
          {"summary", std::move(summary)},
          {"segments", std::move(segments)}};
}

}  // namespace longhaul
