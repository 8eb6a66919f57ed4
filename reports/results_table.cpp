#include "reports/results_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "reports/format.h"
#include "reports/result_rows.h"
#include "reports/step_bars.h"
#include "reports/verdict.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

// RFC 4180: quoted where needed, quotes doubled.
std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

// The shortest decimals that read back as the same double.
std::string csv_number(const std::optional<double>& value) { return value ? Json(*value).dump() : ""; }

std::string csv_part(const NamedValues& parts, const std::string& name) {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.first == name; });
  return found == parts.end() ? "" : csv_number(found->second);
}

std::string state(const ResultRow& row) {
  if (row.not_applicable) return "not_applicable";
  return row.does_not_fit ? "does_not_fit" : "runs";
}

struct CsvColumn {
  std::string name;
  std::function<std::string(const ResultCase&, const ResultRow&)> text;
};

CsvColumn number_column(const char* name, std::optional<double> ResultRow::*value) {
  return {name, [value](const ResultCase&, const ResultRow& row) { return csv_number(row.*value); }};
}

CsvColumn text_column(const char* name, std::string ResultRow::*value) {
  return {name, [value](const ResultCase&, const ResultRow& row) { return row.*value; }};
}

CsvColumn sent_column(const char* name, std::optional<SentBytes> ResultRow::*sent, double SentBytes::*value) {
  return {name, [sent, value](const ResultCase&, const ResultRow& row) {
            return row.*sent ? csv_number((*(row.*sent)).*value) : std::string();
          }};
}

std::vector<CsvColumn> csv_columns() {
  std::vector<CsvColumn> columns;
  columns.push_back({"case", [](const ResultCase& one, const ResultRow&) { return one.name; }});
  columns.push_back(text_column("label", &ResultRow::label));
  columns.push_back(text_column("strategy", &ResultRow::strategy));
  columns.push_back(text_column("layout", &ResultRow::layout));
  columns.push_back({"state", [](const ResultCase&, const ResultRow& row) { return state(row); }});
  columns.push_back(number_column("step_time_ms", &ResultRow::step_ms));
  columns.push_back(number_column("step_time_low_ms", &ResultRow::low_ms));
  columns.push_back(number_column("step_time_high_ms", &ResultRow::high_ms));
  columns.push_back(number_column("tokens_per_second_per_gpu", &ResultRow::tokens_per_second_per_gpu));
  columns.push_back(number_column("mfu", &ResultRow::mfu));
  columns.push_back(number_column("speedup", &ResultRow::speedup));
  columns.push_back(number_column("speedup_own", &ResultRow::speedup_own));
  for (const std::string& part : time_parts()) {
    columns.push_back(
        {part + "_ms", [part](const ResultCase&, const ResultRow& row) { return csv_part(row.time_ms, part); }});
  }
  columns.push_back(number_column("imbalance", &ResultRow::imbalance));
  columns.push_back(number_column("peak_memory_bytes", &ResultRow::peak_bytes));
  columns.push_back(number_column("headroom_bytes", &ResultRow::headroom_bytes));
  columns.push_back(sent_column("sent_intra_node_min_bytes", &ResultRow::sent_intra_node, &SentBytes::min));
  columns.push_back(sent_column("sent_intra_node_mean_bytes", &ResultRow::sent_intra_node, &SentBytes::mean));
  columns.push_back(sent_column("sent_intra_node_max_bytes", &ResultRow::sent_intra_node, &SentBytes::max));
  columns.push_back(sent_column("sent_inter_node_min_bytes", &ResultRow::sent_inter_node, &SentBytes::min));
  columns.push_back(sent_column("sent_inter_node_mean_bytes", &ResultRow::sent_inter_node, &SentBytes::mean));
  columns.push_back(sent_column("sent_inter_node_max_bytes", &ResultRow::sent_inter_node, &SentBytes::max));
  columns.push_back(text_column("bound_by", &ResultRow::bound_by));
  columns.push_back(
      {"reason", [](const ResultCase&, const ResultRow& row) { return row.not_applicable.value_or(""); }});
  return columns;
}

// A cell of a Markdown table: pipes and line breaks would end it.
std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|')
      out += "\\|";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  return out;
}

std::string markdown_cell(const std::optional<double>& value, const std::function<std::string(double)>& text) {
  return value ? text(*value) : "\u2013";
}

std::string markdown_row(const ResultRow& row, bool leads) {
  const auto ms = [](double value) { return format_duration(value); };
  std::string step = markdown_cell(row.step_ms, ms);
  if (row.timed() && row.low() != row.high()) {
    step += fmt::format(" ({} to {})", format_duration(row.low()), format_duration(row.high()));
  }
  const std::string name = markdown_text(row.label + (row.layout.empty() ? "" : " (" + row.layout + ")"));
  const auto sent = [](const std::optional<SentBytes>& bytes) {
    return bytes ? format_bytes(bytes->mean) : std::string("\u2013");
  };
  if (row.not_applicable) return fmt::format("| {} | not applicable | | | | | | | | | |\n", name);
  return fmt::format("| {} | {}{} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", leads ? "**" + name + "**" : name,
                     step, row.does_not_fit ? ", does not fit" : "",
                     markdown_cell(row.tokens_per_second_per_gpu, [](double value) { return format_number(value, 0); }),
                     markdown_cell(row.mfu, [](double value) { return format_percent(value); }),
                     markdown_cell(row.speedup, format_ratio), markdown_cell(row.speedup_own, format_ratio),
                     markdown_cell(row.imbalance, [](double value) { return format_number(value, 2); }),
                     markdown_cell(row.peak_bytes, format_bytes), sent(row.sent_intra_node), sent(row.sent_inter_node),
                     row.bound_by.empty() ? "\u2013" : markdown_text(row.bound_by));
}

}  // namespace

std::string results_csv(const Json& results) {
  const std::vector<CsvColumn> columns = csv_columns();
  std::string out;
  for (std::size_t i = 0; i < columns.size(); ++i) out += (i > 0 ? "," : "") + columns[i].name;
  out += "\r\n";
  for (const ResultCase& one : read_result_rows(results)) {
    for (const ResultRow& row : one.rows) {
      for (std::size_t i = 0; i < columns.size(); ++i) {
        out += (i > 0 ? "," : "") + csv_field(columns[i].text(one, row));
      }
      out += "\r\n";
    }
  }
  return out;
}

std::string results_markdown(const Json& results) {
  std::string out;
  for (const ResultCase& one : read_result_rows(results)) {
    const CaseVerdict verdict = case_verdict(one);
    if (!out.empty()) out += "\n";
    if (!one.name.empty()) out += fmt::format("### {}\n\n", one.name);
    out += verdict.sentence() + "\n\n";
    out +=
        "| strategy | step time (low to high) | tokens/s/GPU | MFU | speed-up | own speed-up | imbalance | peak memory "
        "| sent in node, a GPU | sent between nodes, a GPU | bound by |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for (std::size_t i = 0; i < one.rows.size(); ++i) {
      out += markdown_row(one.rows[i], static_cast<int>(i) == verdict.leader);
    }
    std::string remarks;
    for (const ResultRow& row : one.rows) {
      if (row.not_applicable) remarks += fmt::format("* {}: not applicable: {}\n", row.label, *row.not_applicable);
      if (row.does_not_fit && row.does_not_fit->needed_bytes && row.does_not_fit->limit_bytes) {
        remarks +=
            fmt::format("* {}: does not fit: needs {} of {}\n", row.label,
                        format_bytes(*row.does_not_fit->needed_bytes), format_bytes(*row.does_not_fit->limit_bytes));
      }
    }
    if (!remarks.empty()) out += "\n" + remarks;
  }
  return out;
}

}  // namespace longhaul
