#include "reports/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reports/format.h"
#include "reports/html_charts.h"
#include "reports/html_tables.h"
#include "reports/memory_curve.h"
#include "reports/result_rows.h"
#include "reports/step_bars.h"
#include "reports/timeline_marks.h"
#include "reports/verdict.h"
#include "reports/web_assets.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

// Marks of a timeline: those of the leader and the baseline of a case stand open and may have more.
constexpr double kMarksOpen = 3000;
constexpr double kMarksClosed = 1200;
constexpr std::size_t kCurvePoints = 600;
constexpr std::size_t kMaxStudyBytes = 200'000;

// Timelines and their data grow the page; everything else is small.
struct Page {
  std::string body;
  std::string traces_json;
  int traces = 0;
};

std::string study_text(const Json& results, const char* key) {
  if (!results.is_object() || !results.contains("study") || !results["study"].is_object()) return "";
  const Json& study = results["study"];
  if (!study.contains(key)) return "";
  const Json& value = study[key];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  for (const char* name : {"name", "_name_or_path", "base"}) {
    if (value.is_object() && value.contains(name) && value[name].is_string()) return value[name].get<std::string>();
  }
  return "";
}

// "llama3-8b on 16 GPUs of dgx-h200-ndr".
std::string facts(const Json& results) {
  const Json* first_case = nullptr;
  if (results.is_object() && results.contains("study") && results["study"].is_object()) {
    const Json& study = results["study"];
    if (study.contains("cases") && study["cases"].is_array() && !study["cases"].empty())
      first_case = &study["cases"][0];
  }
  const auto fact = [&](const char* key) {
    const std::string own = study_text(results, key);
    return own.empty() && first_case != nullptr ? study_text({{"study", *first_case}}, key) : own;
  };
  const std::string model = fact("model"), gpus = fact("gpus"), topology = fact("topology");
  std::string text = model;
  if (!gpus.empty()) text += fmt::format("{}{} GPU{}", text.empty() ? "" : " on ", gpus, gpus == "1" ? "" : "s");
  if (!topology.empty()) text += fmt::format("{}{}", text.empty() ? "" : " of ", topology);
  return text;
}

std::string verdict_card(const ResultCase& one, const CaseVerdict& verdict, std::size_t index) {
  const char* kind = verdict.kind == VerdictKind::kWins       ? "wins"
                     : verdict.kind == VerdictKind::kTooClose ? "close"
                                                              : "";
  const std::string name = one.name.empty() ? "Verdict" : escape_html(one.name);
  return fmt::format(
      "<article class=\"verdict {}\"><h2><a href=\"#case-{}\">{}</a></h2><p class=\"headline\">{}</p>"
      "<p>{}</p></article>\n",
      kind, index, name, escape_html(verdict.headline), escape_html(verdict.detail));
}

const ResultRow* row_of(const ResultCase& one, const Traced& traced) {
  if (traced.case_name != one.name) return nullptr;
  const auto found = std::find_if(one.rows.begin(), one.rows.end(),
                                  [&](const ResultRow& row) { return row.label == traced.strategy; });
  return found == one.rows.end() ? nullptr : &*found;
}

std::string case_memory(const ResultCase& one, const TraceBundle& bundle) {
  std::vector<MemoryPanel> panels;
  for (const Traced& traced : bundle.traced) {
    const ResultRow* row = row_of(one, traced);
    if (row == nullptr) continue;
    std::int64_t limit = traced.memory_limit_bytes;
    if (limit == 0 && row->limit_bytes) limit = static_cast<std::int64_t>(*row->limit_bytes);
    panels.push_back({row->label, memory_curve(traced, kCurvePoints), limit, row->peak_bytes, traced.step});
  }
  return memory_html(panels);
}

// Open are the leader's and the baseline's.
std::string case_timelines(const ResultCase& one, const CaseVerdict& verdict, const TraceBundle& bundle, double scale,
                           Page& page) {
  std::string out;
  for (const Traced& traced : bundle.traced) {
    const ResultRow* row = row_of(one, traced);
    if (row == nullptr || traced.timeline->ops.empty()) continue;
    const bool leads = verdict.leader >= 0 && row == &one.rows[static_cast<std::size_t>(verdict.leader)];
    const bool open = leads || row->baseline;
    const TimelineView view =
        timeline_view(traced, static_cast<std::size_t>((open ? kMarksOpen : kMarksClosed) * scale));
    out += timeline_html(traced, view, page.traces, open);
    page.traces_json += fmt::format("{}{}", page.traces > 0 ? ",\n" : "", timeline_json(traced, view));
    ++page.traces;
  }
  if (out.empty()) return "";
  return "<section class=\"timelines\"><h3>Timeline of the traced ranks</h3><p class=\"note\">One line a stream; the "
         "figure at the right is the share of the drawn time in which it is busy. Point at a bar for what it is; zoom "
         "with the buttons or Ctrl and the wheel, drag to move.</p>\n" +
         out + "</section>\n";
}

std::string case_html(const ResultCase& one, const CaseVerdict& verdict, const TraceBundle& bundle, double scale,
                      std::size_t index, Page& page) {
  std::string out = fmt::format("<section class=\"case\" id=\"case-{}\">\n<h2>{}</h2>\n", index,
                                one.name.empty() ? "Strategies" : escape_html(one.name));
  out += bars_html(one, step_bars(one), verdict);
  out += result_table_html(one, verdict);
  out += remarks_html(one);
  const std::string time_table = time_table_html(one);
  if (!time_table.empty())
    out += "<details><summary>Where the time goes, in figures</summary>" + time_table + "</details>\n";
  out += case_memory(one, bundle);
  const std::string memory_table = memory_table_html(one);
  if (!memory_table.empty()) {
    out += "<details><summary>What fills memory at the peak</summary>" + memory_table + "</details>\n";
  }
  out += case_timelines(one, verdict, bundle, scale, page);
  return out + "</section>\n";
}

std::string study_html(const Json& results) {
  if (!results.is_object() || !results.contains("study")) return "";
  const std::string study = results["study"].dump(2, ' ', false, Json::error_handler_t::replace);
  if (study.size() > kMaxStudyBytes) {
    return "<p class=\"note\">The resolved study is too long for this page; results.json holds it.</p>\n";
  }
  return "<details><summary>The study as it was run, all defaults filled in</summary><pre>" + escape_html(study) +
         "</pre></details>\n";
}

std::string end_matter(const Json& results) {
  std::string out = "<section class=\"end\"><h2>Provenance</h2>\n" + provenance_html(results) + study_html(results);
  out +=
      "<h2>How to read this, and its limits</h2>\n<ul class=\"limits\">\n"
      "<li>These are predictions of a simulation, not measurements.</li>\n"
      "<li>Low and high ends come from the residuals of the kernel fits and of the fit of NCCL's time "
      "model, each of calls that it had not seen.</li>\n"
      "<li>The verdict compares intervals as if the errors of two strategies were independent. They share kernels and "
      "links, so a close call may in truth be clearer than it says.</li>\n"
      "<li>The parts of a step are those of the rank that ends last; exposed communication is time in which its "
      "compute "
      "stream waits for a transfer whose members have all arrived, imbalance the wait before that.</li>\n"
      "<li>Timelines show the traced ranks and micro-batches only, memory one of those ranks.</li>\n"
      "<li>MFU counts the FLOPs of the model once: neither recomputed nor replicated work.</li>\n"
      "<li>1 GB is 10<sup>9</sup> bytes. Failures, stragglers, data loading and checkpoints to disk are not "
      "simulated.</li>\n</ul></section>\n";
  return out;
}

std::string page_html(const Json& results, const std::vector<ResultCase>& cases, const TraceBundle& bundle,
                      double scale) {
  Page page;
  std::string cards, sections;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseVerdict verdict = case_verdict(cases[i]);
    cards += verdict_card(cases[i], verdict, i);
    sections += case_html(cases[i], verdict, bundle, scale, i, page);
  }
  if (cases.empty()) cards = "<article class=\"verdict\"><p>The results hold no strategy.</p></article>\n";
  const std::string study = study_text(results, "name");
  const std::string title = study.empty() ? "Longhaul report" : escape_html(study);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n"
      "</head>\n<body>\n<header><p class=\"eyebrow\">Longhaul: which strategy trains fastest</p>\n<h1>{}</h1>\n"
      "<p class=\"facts\">{}</p></header>\n<main>\n<section class=\"verdicts\" "
      "aria-label=\"Verdicts\">\n{}</section>\n",
      study.empty() ? title : title + " \u2013 Longhaul", report_css(), title, escape_html(facts(results)), cards);
  out += sections + end_matter(results) + "</main>\n";
  out += "<script type=\"application/json\" id=\"traces\">[" + escape_script_json(std::move(page.traces_json)) +
         "]</script>\n";
  out += fmt::format("<script>\n{}</script>\n</body>\n</html>\n", report_js());
  return out;
}

}  // namespace

std::string report_html(const Json& results, const TraceBundle& traces) {
  const std::vector<ResultCase> cases = read_result_rows(results);
  double scale = 1;
  std::string page = page_html(results, cases, traces, scale);
  while (page.size() > kReportMaxBytes && scale > 1e-3) {
    scale /= 2;
    page = page_html(results, cases, traces, scale);
  }
  return page;
}

}  // namespace longhaul
