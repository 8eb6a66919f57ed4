#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "reports/html_charts.h"

namespace longhaul {
namespace {

constexpr double kLabelShare = 0.045;  // of the axis: a stretch this wide holds a percentage
constexpr int kBarTop = 7;
constexpr int kBarHeight = 20;
constexpr int kRowHeight = 34;

struct Axis {
  double right_ms = 1;
  TimeUnit unit;
  const std::vector<double>* ticks = nullptr;

  double percent(double ms) const { return ms / right_ms * 100; }
};

std::string legend(const std::vector<std::string>& parts) {
  std::string out = "<ul class=\"legend\">";
  for (const std::string& part : parts) {
    out += fmt::format("<li><span class=\"swatch p{}\"></span>{}</li>", part_colour(part), escape_html(words(part)));
  }
  return out + "</ul>\n";
}

std::string grid_lines(const Axis& axis, int height) {
  std::string out;
  for (const double tick : *axis.ticks) {
    out += fmt::format("<line class=\"grid\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"0\" y2=\"{1}\"/>", axis.percent(tick),
                       height);
  }
  return out;
}

std::string segment(const BarSegment& part, const StepBar& bar, const Axis& axis) {
  const double share = bar.step_ms > 0 ? part.length_ms / bar.step_ms : 0;
  std::string out = fmt::format(
      R"(<rect class="part p{}" x="{:.3f}%" y="{}" width="{:.3f}%" height="{}"><title>{}: {} ({})</title></rect>)",
      part.colour, axis.percent(part.start_ms), kBarTop, axis.percent(part.length_ms), kBarHeight,
      escape_html(words(part.part)), format_duration(part.length_ms), format_percent(share));
  // Left of the whisker, so that neither hides the other.
  const double end_ms =
      bar.low_ms < bar.high_ms ? std::min(part.start_ms + part.length_ms, bar.low_ms) : part.start_ms + part.length_ms;
  if (axis.percent(end_ms - part.start_ms) < kLabelShare * 100) return out;
  return out + fmt::format(R"(<text class="in-bar t{}" x="{:.3f}%" y="{}">{}</text>)", part.colour,
                           axis.percent((part.start_ms + end_ms) / 2), kBarTop + kBarHeight / 2 + 4,
                           format_percent(share, 0));
}

// The low and the high end about the end of the bar; a halo below keeps it apart from what it crosses.
std::string whisker(const StepBar& bar, const Axis& axis) {
  if (bar.low_ms == bar.high_ms) return "";
  const double low = axis.percent(bar.low_ms), high = axis.percent(bar.high_ms);
  const int middle = kBarTop + kBarHeight / 2;
  std::string lines = fmt::format(R"(<line x1="{:.3f}%" x2="{:.3f}%" y1="{}" y2="{}"/>)", low, high, middle, middle);
  for (const double end : {low, high}) {
    lines += fmt::format(R"(<line x1="{0:.3f}%" x2="{0:.3f}%" y1="{1}" y2="{2}"/>)", end, middle - 6, middle + 6);
  }
  return fmt::format(R"(<g class="halo">{0}</g><g class="whisker">{0}</g>)", lines);
}

std::string bar_name(const ResultRow& row, bool leads) {
  std::string tags;
  if (leads) tags += " <span class=\"tag lead\">fastest</span>";
  if (row.baseline) tags += " <span class=\"tag\">baseline</span>";
  if (row.does_not_fit) tags += " <span class=\"tag warn\">does not fit</span>";
  return fmt::format("<div class=\"bar-name\">{}{}<small>{}</small></div>", escape_html(row.label), tags,
                     escape_html(row.layout));
}

std::string bar_row(const ResultRow& row, const StepBar& bar, const Axis& axis, bool leads) {
  const int decimals = time_decimals(axis.unit, axis.right_ms);
  const auto in_unit = [&](double ms) { return format_number(ms * axis.unit.per_ms, decimals); };
  const std::string ends =
      bar.low_ms == bar.high_ms ? "" : fmt::format("{}\u2009\u2013\u2009{}", in_unit(bar.low_ms), in_unit(bar.high_ms));
  std::string svg = fmt::format(
      R"(<svg class="bar" width="100%" height="{}" role="img"><title>{}: {} {} a step{}</title>)", kRowHeight,
      escape_html(row.label), in_unit(bar.step_ms), axis.unit.name, ends.empty() ? "" : " (" + ends + ")");
  svg += grid_lines(axis, kRowHeight);
  for (const BarSegment& part : bar.segments) svg += segment(part, bar, axis);
  svg += whisker(bar, axis) + "</svg>";
  return fmt::format("<div class=\"bar-row{}{}\">{}{}<div class=\"bar-value\">{} {}<small>{}</small></div></div>\n",
                     leads ? " leads" : "", row.does_not_fit ? " too-large" : "", bar_name(row, leads), svg,
                     in_unit(bar.step_ms), axis.unit.name, ends);
}

std::string axis_row(const Axis& axis) {
  const double step = axis.ticks->size() > 1 ? axis.ticks->at(1) : axis.right_ms;
  const int decimals = tick_decimals({0, step * axis.unit.per_ms});
  std::string out = "<div class=\"bar-row axis\" aria-hidden=\"true\"><div></div><svg width=\"100%\" height=\"20\">";
  for (const double tick : *axis.ticks) {
    const char* anchor = tick == 0 ? "start" : axis.percent(tick) > 97 ? "end" : "middle";
    out += fmt::format(R"(<text x="{:.3f}%" y="14" text-anchor="{}">{}</text>)", axis.percent(tick), anchor,
                       format_number(tick * axis.unit.per_ms, decimals));
  }
  return out + fmt::format("</svg><div class=\"bar-value\">{}</div></div>\n", axis.unit.name);
}

}  // namespace

std::string bars_html(const ResultCase& one, const StepBars& bars, const CaseVerdict& verdict) {
  if (bars.bars.empty()) return "";
  const Axis axis{bars.right_ms, time_unit(bars.right_ms), &bars.ticks};
  std::string out =
      "<figure class=\"bars\">\n<figcaption><h3>Step time</h3><p>Parts of the step of the rank that ends "
      "last, as shares of that step. Whiskers: low and high end of the prediction.</p></figcaption>\n";
  out += legend(bars.parts);
  for (const StepBar& bar : bars.bars) {
    out += bar_row(one.rows[static_cast<std::size_t>(bar.row)], bar, axis, bar.row == verdict.leader);
  }
  return out + axis_row(axis) + "</figure>\n";
}

}  // namespace longhaul
