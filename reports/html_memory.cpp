#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "reports/html_charts.h"

namespace longhaul {
namespace {

constexpr int kTop = 18;  // room for the limit's label
constexpr int kPlotHeight = 120;
constexpr int kBottom = 20;    // room for the time axis
constexpr int kGrid = 10'000;  // units of the stretched plot, both ways

struct Frame {
  double right_ms = 1;
  double top_bytes = 1;
  std::vector<double> time_ticks_ms;
  std::vector<double> byte_ticks;
  TimeUnit unit;
};

Frame common_frame(const std::vector<MemoryPanel>& panels) {
  double ms = 0, bytes = 0;
  for (const MemoryPanel& panel : panels) {
    ms = std::max(ms, panel.step.ms());
    if (!panel.curve.points.empty()) ms = std::max(ms, panel.curve.points.back().time.ms());
    bytes = std::max({bytes, static_cast<double>(panel.limit_bytes), static_cast<double>(panel.curve.peak.bytes),
                      panel.highest_bytes.value_or(0)});
  }
  Frame frame;
  frame.unit = time_unit(ms);
  frame.right_ms = ms > 0 ? ms : 1;
  frame.time_ticks_ms = axis_ticks(ms, 4);
  frame.byte_ticks = axis_ticks(bytes, 3);
  frame.top_bytes = std::max(bytes * 1.02, 1.0);
  return frame;
}

int grid_x(const Frame& frame, Time time) { return static_cast<int>(time.ms() / frame.right_ms * kGrid + 0.5); }
int grid_y(const Frame& frame, double bytes) { return kGrid - static_cast<int>(bytes / frame.top_bytes * kGrid + 0.5); }
double plot_y(const Frame& frame, double bytes) { return kTop + (1 - bytes / frame.top_bytes) * kPlotHeight; }

// The curve as steps, to the end of the step.
std::string step_path(const Frame& frame, const MemoryPanel& panel) {
  const std::vector<MemoryPoint>& points = panel.curve.points;
  std::string path = fmt::format("M{} {}", grid_x(frame, points.front().time),
                                 grid_y(frame, static_cast<double>(points.front().bytes)));
  for (std::size_t i = 1; i < points.size(); ++i) {
    path += fmt::format("H{}V{}", grid_x(frame, points[i].time), grid_y(frame, static_cast<double>(points[i].bytes)));
  }
  return path + fmt::format("H{}", grid_x(frame, std::max(points.back().time, panel.step)));
}

std::string grid_lines(const Frame& frame) {
  std::string out;
  for (const double tick : frame.byte_ticks) {
    if (tick > frame.top_bytes) continue;
    const double y = plot_y(frame, tick);
    out += fmt::format(R"(<line class="grid" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>)", y);
    const bool crowded = frame.top_bytes - tick < frame.top_bytes * 0.12;  // the limit's label is there
    if (tick > 0 && !crowded)
      out += fmt::format(R"(<text class="tick" x="2" y="{:.1f}">{}</text>)", y - 3, format_bytes(tick));
  }
  const int decimals = tick_decimals({0, frame.time_ticks_ms[1] * frame.unit.per_ms});
  for (const double tick : frame.time_ticks_ms) {
    const double percent = tick / frame.right_ms * 100;
    if (percent > 94) continue;
    out += fmt::format(R"(<text class="tick" x="{:.2f}%" y="{}" text-anchor="{}">{}{}</text>)", percent,
                       kTop + kPlotHeight + 14, tick == 0 ? "start" : "middle",
                       format_number(tick * frame.unit.per_ms, decimals),
                       tick == 0 ? fmt::format(" {}", frame.unit.name) : "");
  }
  return out;
}

std::string limit_line(const Frame& frame, const MemoryPanel& panel) {
  if (panel.limit_bytes <= 0) return "";
  const double y = plot_y(frame, static_cast<double>(panel.limit_bytes));
  return fmt::format(R"(<line class="limit" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>)"
                     R"(<text class="limit-text" x="100%" y="{1:.1f}" text-anchor="end">limit {2}</text>)",
                     y, y - 4, format_bytes(static_cast<double>(panel.limit_bytes)));
}

std::string peak_mark(const Frame& frame, const MemoryPanel& panel) {
  const double percent = panel.curve.peak.time.ms() / frame.right_ms * 100;
  return fmt::format(R"(<circle class="peak" cx="{:.2f}%" cy="{:.1f}" r="3"/>)", percent,
                     plot_y(frame, static_cast<double>(panel.curve.peak.bytes)));
}

std::string panel_html(const Frame& frame, const MemoryPanel& panel) {
  const auto peak = static_cast<double>(panel.curve.peak.bytes);
  std::string below = fmt::format("rank {}", panel.curve.rank);
  if (panel.highest_bytes && *panel.highest_bytes > peak) {
    below += fmt::format("; the highest of all ranks reaches {}", format_bytes(*panel.highest_bytes));
  }
  const std::string path = step_path(frame, panel);
  const int right = grid_x(frame, std::max(panel.curve.points.back().time, panel.step));
  std::string out = fmt::format("<div class=\"panel\"><h4>{} <span>peak {}</span></h4>", escape_html(panel.label),
                                format_bytes(peak));
  out += fmt::format(
      "<svg class=\"memory\" width=\"100%\" height=\"{}\" role=\"img\"><title>Memory of {} over a step"
      "</title><desc>Peak {} at {} on rank {}.</desc>",
      kTop + kPlotHeight + kBottom, escape_html(panel.label), format_bytes(peak),
      format_duration(panel.curve.peak.time.ms()), panel.curve.rank);
  out += grid_lines(frame);
  out +=
      fmt::format(R"(<svg x="0" y="{}" width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">)"
                  R"(<path class="area" d="{}V{}H{}Z"/><path class="curve" d="{}"/></svg>)",
                  kTop, kPlotHeight, kGrid, kGrid, path, kGrid, grid_x(frame, panel.curve.points.front().time), path);
  out += limit_line(frame, panel) + peak_mark(frame, panel);
  // The end of this step, where another row's takes longer.
  if (right < kGrid) {
    out += fmt::format(R"(<line class="step-end" x1="{0:.2f}%" x2="{0:.2f}%" y1="{1}" y2="{2}"/>)",
                       right * 100.0 / kGrid, kTop, kTop + kPlotHeight);
  }
  return out + fmt::format("</svg><p class=\"note\">{}</p></div>\n", below);
}

}  // namespace

std::string memory_html(const std::vector<MemoryPanel>& panels) {
  std::string body;
  const Frame frame = common_frame(panels);
  for (const MemoryPanel& panel : panels) {
    if (!panel.curve.points.empty()) body += panel_html(frame, panel);
  }
  if (body.empty()) return "";
  return "<figure class=\"memory-figure\">\n<figcaption><h3>Memory over the step</h3><p>The traced rank with the "
         "highest "
         "peak, against what a rank may hold. All panels share both axes; of very large runs only the first chunks are "
         "recorded.</p></figcaption>\n<div class=\"panels\">\n" +
         body + "</div></figure>\n";
}

}  // namespace longhaul
