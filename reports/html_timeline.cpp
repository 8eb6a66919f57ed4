#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "reports/format.h"
#include "reports/html_charts.h"

namespace longhaul {
namespace {

constexpr std::int64_t kUnits = 10'000'000;  // across the picture: a float holds them exactly
constexpr int kCollectiveColours = 4;        // then they repeat

const OpRecord& first_op(const Traced& traced, const Mark& mark) {
  return traced.timeline->ops[static_cast<std::size_t>(mark.first)];
}

std::int64_t unit_ps(const TimelineView& view) { return (view.end - view.begin).ps() / kUnits + 1; }

std::int64_t to_units(const TimelineView& view, Time time) { return (time - view.begin).ps() / unit_ps(view); }

// Start and length of a mark in units; at least one long, so that it is there at all.
std::pair<std::int64_t, std::int64_t> place(const TimelineView& view, const Mark& mark) {
  const std::int64_t start = to_units(view, mark.start);
  return {start, std::max<std::int64_t>(to_units(view, mark.end) - start, 1)};
}

int css_class(int colour) {
  if (colour < kFirstCollectiveClass) return colour;
  return kFirstCollectiveClass + (colour - kFirstCollectiveClass) % kCollectiveColours;
}

std::string stream_name(const Traced& traced, StreamId stream) {
  const auto index = static_cast<std::size_t>(stream);
  return index < traced.streams.size() ? traced.streams[index] : fmt::format("stream {}", stream);
}

// Horizontal strokes of one class, each written relative to the one before.
struct Strokes {
  std::string path;
  std::int64_t reach = 0;

  void add(std::int64_t start, std::int64_t length) {
    path += path.empty() ? fmt::format("M{} 8h{}", start, length) : fmt::format("m{} 0h{}", start - reach, length);
    reach = start + length;
  }
};

// One path a class, a stroke a mark. A merged mark shows how much of its time each class fills and leaves the idle rest
// blank, so that a stretch of short ops looks as busy as it is.
std::string row_paths(const TimelineView& view, const MarkRow& row) {
  std::map<int, Strokes> paths;
  for (const Mark& mark : row.marks) {
    auto [start, length] = place(view, mark);
    if (mark.shares.empty()) paths[mark.colour].add(start, length);
    for (const auto& [colour, busy] : mark.shares) {
      const std::int64_t share = busy.ps() / unit_ps(view);
      if (share == 0) continue;
      paths[colour].add(start, share);
      start += share;
    }
  }
  std::string out;
  for (const auto& [colour, strokes] : paths) {
    out += fmt::format(R"(<path class="c{}" d="{}"/>)", css_class(colour), strokes.path);
  }
  return out;
}

Time busy_time(const MarkRow& row) {
  Time busy;
  for (const Mark& mark : row.marks) busy += mark.busy;
  return busy;
}

std::string row_html(const Traced& traced, const TimelineView& view, const MarkRow& row, std::size_t index) {
  const Time span = view.end - view.begin;
  const std::string name = stream_name(traced, row.stream);
  const double busy = span.ps() > 0 ? static_cast<double>(busy_time(row).ps()) / static_cast<double>(span.ps()) : 0;
  return fmt::format(
      "<div class=\"tl-row\"><div class=\"tl-name\">{0}</div><svg class=\"tl-bar\" data-row=\"{1}\" data-marks=\"{2}\" "
      "width=\"100%\" height=\"16\" viewBox=\"0 0 {3} 16\" preserveAspectRatio=\"none\" role=\"img\"><title>rank {4}, "
      "{0}: "
      "{2} marks, busy {5}</title>{6}</svg><div class=\"tl-busy\">{5}</div></div>\n",
      escape_html(name), index, row.marks.size(), to_units(view, view.end) + 1, row.rank, format_percent(busy, 0),
      row_paths(view, row));
}

std::string legend(const Traced& traced, const TimelineView& view) {
  static const char* const kNames[] = {"gemm", "attention", "elementwise, move", "optimizer"};
  std::set<int> seen;
  for (const MarkRow& row : view.rows) {
    for (const Mark& mark : row.marks) {
      seen.insert(mark.colour);
      for (const auto& [colour, busy] : mark.shares) seen.insert(colour);
    }
  }
  std::string out = "<ul class=\"legend\">";
  for (const int colour : seen) {
    const std::string name =
        colour < kFirstCollectiveClass
            ? kNames[colour]
            : stream_name(traced, static_cast<StreamId>(colour - kFirstCollectiveClass + kFirstCommunicationStream));
    out += fmt::format("<li><span class=\"swatch c{}\"></span>{}</li>", css_class(colour), escape_html(name));
  }
  return out + "</ul>";
}

// Ticks in time since the start of the step. The script writes them anew after a zoom.
std::string axis_html(const TimelineView& view) {
  const double begin_ms = view.begin.ms(), span_ms = (view.end - view.begin).ms();
  const TimeUnit unit = time_unit(span_ms);
  const std::vector<double> ticks = axis_ticks(span_ms, 6);
  const int decimals = tick_decimals({0, ticks[1] * unit.per_ms});
  std::string out =
      "<div class=\"tl-row axis\"><div class=\"tl-name\"></div><svg class=\"tl-axis\" width=\"100%\" "
      "height=\"18\" aria-hidden=\"true\">";
  for (const double tick : ticks) {
    const double percent = span_ms > 0 ? tick / span_ms * 100 : 0;
    if (percent > 100) break;
    const char* anchor = percent < 3 ? "start" : percent > 97 ? "end" : "middle";
    out += fmt::format(R"(<text x="{:.2f}%" y="13" text-anchor="{}">{}</text>)", percent, anchor,
                       format_number((begin_ms + tick) * unit.per_ms, decimals));
  }
  return out + fmt::format("</svg><div class=\"tl-busy\">{}</div></div>\n", unit.name);
}

std::string caption(const Traced& traced, const TimelineView& view) {
  const TimeUnit unit = time_unit(view.end.ms());
  const int decimals = time_decimals(unit, view.end.ms());
  const auto in_unit = [&](Time time) { return format_number(time.ms() * unit.per_ms, decimals); };
  std::string out =
      fmt::format("{} launches from {} to {} {} of a step of {}", format_number(static_cast<double>(view.ops), 0),
                  in_unit(view.begin), in_unit(view.end), unit.name, format_duration(traced.step.ms()));
  if (view.resolution > Time()) {
    out += fmt::format(
        ", drawn as {} marks: neighbours of one stream within {} are merged, and show how "
        "much of that time each kind fills",
        format_number(static_cast<double>(view.marks()), 0), format_duration(view.resolution.ms()));
  }
  out += ".";
  if (view.ranks < view.ranks_traced) {
    out += fmt::format(" {} of {} traced ranks are drawn.", view.ranks, view.ranks_traced);
  }
  if (view.ops_outside > 0) {
    out += fmt::format(" {} more traced launches from {} to {} are not drawn; the trace file has them.",
                       format_number(static_cast<double>(view.ops_outside), 0),
                       format_duration(view.outside_begin.ms()), format_duration(view.outside_end.ms()));
  }
  return out;
}

}  // namespace

std::string timeline_html(const Traced& traced, const TimelineView& view, int id, bool open) {
  if (view.rows.empty()) return "";
  std::string out = fmt::format(
      "<details class=\"trace\"{}><summary>{} <span>{} ranks, {} marks</span></summary>\n"
      "<div class=\"timeline\" data-trace=\"{}\">\n",
      open ? " open" : "", escape_html(traced.strategy), view.ranks,
      format_number(static_cast<double>(view.marks()), 0), id);
  out += legend(traced, view);
  std::int32_t rank = -1;
  for (std::size_t i = 0; i < view.rows.size(); ++i) {
    if (view.rows[i].rank != rank) {
      rank = view.rows[i].rank;
      const std::string node = traced.gpus_per_node > 0 ? fmt::format(", node {}", rank / traced.gpus_per_node) : "";
      out += fmt::format("<div class=\"tl-rank\">rank {}{}</div>\n", rank, node);
    }
    out += row_html(traced, view, view.rows[i], i);
  }
  out += axis_html(view);
  return out + fmt::format("</div><p class=\"note\">{}</p></details>\n", caption(traced, view));
}

std::string timeline_json(const Traced& traced, const TimelineView& view) {
  std::vector<std::pair<std::string, std::string>> keys;
  std::map<std::pair<std::string, std::string>, std::size_t> key_index;
  std::string rows;
  for (const MarkRow& row : view.rows) {
    std::string marks;
    std::int64_t reach = 0;
    for (const Mark& mark : row.marks) {
      const OpRecord& op = first_op(traced, mark);
      const std::pair<std::string, std::string> key(op.label, to_string(op.pass));
      const auto [found, is_new] = key_index.try_emplace(key, keys.size());
      if (is_new) keys.push_back(key);
      const auto [start, length] = place(view, mark);
      const std::int64_t busy = mark.count == 1 ? 0 : mark.busy.ps() / unit_ps(view);
      const int layer = op.layer == kNoLayer ? -1 : op.layer;
      marks += fmt::format("{}{},{},{},{},{},{},{}", marks.empty() ? "" : ",", found->second, layer, op.chunk,
                           start - reach, length, mark.count, busy);
      reach = start + length;
    }
    rows += fmt::format("{}[{}]", rows.empty() ? "" : ",", marks);
  }
  nlohmann::json key_list = nlohmann::json::array();
  for (const auto& [label, pass] : keys) key_list.push_back({label, pass});
  return fmt::format(R"({{"unit_ps":{},"begin_ps":{},"keys":{},"rows":[{}]}})", unit_ps(view), view.begin.ps(),
                     key_list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), rows);
}

}  // namespace longhaul
