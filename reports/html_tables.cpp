#include "reports/html_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "reports/format.h"
#include "reports/step_bars.h"

namespace longhaul {
namespace {

constexpr std::string_view kDash = "\u2013";

// A number cell; `value` is what the script sorts by.
std::string cell(std::optional<double> value, const std::function<std::string(double)>& text,
                 const std::string& below = "") {
  if (!value) return fmt::format("<td class=\"num none\">{}</td>", kDash);
  const std::string small = below.empty() ? "" : "<small>" + below + "</small>";
  return fmt::format("<td class=\"num\" data-value=\"{}\">{}{}</td>", *value, text(*value), small);
}

std::string head(const std::vector<std::pair<std::string, std::string>>& columns) {
  std::string out = "<thead><tr>";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto& [name, below] = columns[i];
    out += fmt::format("<th scope=\"col\"{}>{}{}</th>", i == 0 || name == "Bound by" ? "" : " class=\"num\"", name,
                       below.empty() ? "" : "<small>" + below + "</small>");
  }
  return out + "</tr></thead>\n";
}

std::string row_head(const ResultRow& row, bool leads) {
  std::string tags;
  if (leads) tags += " <span class=\"tag lead\">fastest</span>";
  if (row.baseline) tags += " <span class=\"tag\">baseline</span>";
  if (row.does_not_fit) tags += " <span class=\"tag warn\">does not fit</span>";
  return fmt::format("<th scope=\"row\">{}{}{}</th>", escape_html(row.label), tags,
                     row.layout.empty() ? "" : "<small>" + escape_html(row.layout) + "</small>");
}

double largest_high(const ResultCase& one) {
  double largest = 0;
  for (const ResultRow& row : one.rows) {
    if (row.timed()) largest = std::max({largest, *row.step_ms, row.high()});
  }
  return largest;
}

std::string sent_cell(const std::optional<SentBytes>& sent) {
  if (!sent) return cell(std::nullopt, format_bytes);
  std::string below;
  if (format_bytes(sent->min) != format_bytes(sent->max)) {
    below = format_bytes_range(sent->min, sent->max);
  }
  return cell(sent->mean, format_bytes, below);
}

std::string headroom_text(const std::optional<double>& bytes) {
  if (!bytes) return "";
  return *bytes >= 0 ? format_bytes(*bytes) + " free" : format_bytes(-*bytes) + " too much";
}

std::string result_row(const ResultRow& row, bool leads, TimeUnit unit, int decimals) {
  const auto in_unit = [&](double ms) { return format_number(ms * unit.per_ms, decimals); };
  std::string ends;
  if (row.timed() && row.low() != row.high()) ends = in_unit(row.low()) + "\u2009\u2013\u2009" + in_unit(row.high());
  const auto decimals2 = [](double value) { return format_number(value, 2); };
  std::string out = cell(row.step_ms, in_unit, ends);
  out += cell(row.tokens_per_second_per_gpu, [](double value) { return format_number(value, 0); });
  out += cell(row.mfu, [](double value) { return format_percent(value); });
  out += cell(row.speedup, format_ratio);
  out += cell(row.speedup_own, format_ratio, row.own_baseline.empty() ? "" : "to " + escape_html(row.own_baseline));
  out += cell(row.imbalance, decimals2);
  out += cell(row.peak_bytes, format_bytes, headroom_text(row.headroom_bytes));
  out += sent_cell(row.sent_intra_node);
  out += sent_cell(row.sent_inter_node);
  out += fmt::format("<td>{}</td>", row.bound_by.empty() ? std::string(kDash) : escape_html(row.bound_by));
  const char* state = leads ? " class=\"leads\"" : row.does_not_fit ? " class=\"too-large\"" : "";
  return fmt::format("<tr{}>{}{}</tr>\n", state, row_head(row, leads), out);
}

// A table of named values, one row a strategy: those parts that any row has, in the given order.
std::string named_table(const ResultCase& one, const NamedValues ResultRow::*values,
                        const std::vector<std::string>& parts, const std::pair<std::string, std::string>& total_name,
                        const std::function<std::optional<double>(const ResultRow&)>& total,
                        const std::function<std::string(double)>& text, const std::string& caption) {
  std::vector<std::pair<std::string, std::string>> columns = {{"Strategy", ""}};
  for (const std::string& part : parts) columns.emplace_back(escape_html(words(part)), "");
  columns.push_back(total_name);
  std::string out = fmt::format("<div class=\"scroll\"><table class=\"sortable\"><caption>{}</caption>{}<tbody>\n",
                                caption, head(columns));
  for (const ResultRow& row : one.rows) {
    if (!row.timed() || (row.*values).empty()) continue;
    out += "<tr>" + row_head(row, false);
    for (const std::string& part : parts) {
      const auto& list = row.*values;
      const auto found = std::find_if(list.begin(), list.end(), [&](const auto& value) { return value.first == part; });
      const bool none = found == list.end() || found->second == 0;
      out += cell(none ? std::nullopt : std::optional(found->second), text);
    }
    out += cell(total(row), text) + "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::vector<std::string> parts_of(const ResultCase& one, const NamedValues ResultRow::*values) {
  std::vector<std::string> parts;
  for (const ResultRow& row : one.rows) {
    for (const auto& [part, value] : row.*values) {
      if (value != 0 && std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
    }
  }
  return parts;
}

std::string does_not_fit_text(const FitFault& fault) {
  std::string text = "does not fit";
  if (fault.needed_bytes) text += ": needs " + format_bytes(*fault.needed_bytes);
  if (fault.limit_bytes) text += " of " + format_bytes(*fault.limit_bytes);
  if (fault.rank) text += fmt::format(" on rank {}", *fault.rank);
  if (!fault.category.empty()) text += fmt::format(", most of it {}", escape_html(fault.category));
  text += ". Its times are shown but it cannot win.";
  if (!fault.smallest_change.empty()) {
    text += fmt::format(" Smallest change that fits: {}.", escape_html(fault.smallest_change));
  }
  return text;
}

}  // namespace

std::string result_table_html(const ResultCase& one, const CaseVerdict& verdict) {
  const double largest = largest_high(one);
  const TimeUnit unit = time_unit(largest);
  const int decimals = time_decimals(unit, largest);
  const std::vector<std::pair<std::string, std::string>> columns = {
      {"Strategy", "layout"},
      {"Step time", fmt::format("{}, low\u2009\u2013\u2009high", unit.name)},
      {"Tokens/s", "a GPU"},
      {"MFU", ""},
      {"Speed-up", "to baseline"},
      {"Own speed-up", ""},
      {"Imbalance", "max/mean"},
      {"Peak memory", "headroom"},
      {"Sent in node", "a GPU"},
      {"Between nodes", "a GPU"},
      {"Bound by", ""}};
  std::string out =
      "<div class=\"scroll\"><table class=\"sortable results\"><caption>All strategies of this case</caption>" +
      head(columns) + "<tbody>\n";
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    const ResultRow& row = one.rows[i];
    if (row.not_applicable) {
      out += fmt::format("<tr class=\"absent\">{}<td colspan=\"{}\">not applicable: {}</td></tr>\n",
                         row_head(row, false), columns.size() - 1, escape_html(*row.not_applicable));
    } else {
      out += result_row(row, static_cast<int>(i) == verdict.leader, unit, decimals);
    }
  }
  return out + "</tbody></table></div>\n";
}

std::string time_table_html(const ResultCase& one) {
  const StepBars bars = step_bars(one);
  if (bars.parts.empty()) return "";
  const double largest = largest_high(one);
  const TimeUnit unit = time_unit(largest);
  const int decimals = time_decimals(unit, largest);
  return named_table(
      one, &ResultRow::time_ms, bars.parts, {"Step", std::string(unit.name)},
      [](const ResultRow& row) { return row.step_ms; },
      [&](double ms) { return format_number(ms * unit.per_ms, decimals); },
      fmt::format("Where the time goes, in {}", unit.name));
}

std::string memory_table_html(const ResultCase& one) {
  const std::vector<std::string> parts = parts_of(one, &ResultRow::memory_bytes);
  if (parts.empty()) return "";
  return named_table(
      one, &ResultRow::memory_bytes, parts, {"Peak", ""}, [](const ResultRow& row) { return row.peak_bytes; },
      format_bytes, "What fills memory at the peak of the fullest rank");
}

std::string remarks_html(const ResultCase& one) {
  std::string items;
  for (const ResultRow& row : one.rows) {
    const std::string name = fmt::format("<b>{}</b> ", escape_html(row.label));
    if (row.does_not_fit) items += fmt::format("<li>{}{}</li>\n", name, does_not_fit_text(*row.does_not_fit));
    for (const std::string& note : row.notes) items += fmt::format("<li>{}{}</li>\n", name, escape_html(note));
  }
  return items.empty() ? "" : "<div class=\"remarks\"><h3>Remarks</h3><ul>\n" + items + "</ul></div>\n";
}

}  // namespace longhaul
