#include "sim/cli/compare_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "reports/format.h"
#include "reports/result_rows.h"
#include "reports/verdict.h"

namespace longhaul {
namespace {

using Row = std::vector<std::string>;

// "1 GPU", "2 GPUs".
std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string memory_gb(double bytes) { return fmt::format("{:.1f}", bytes / 1e9); }
std::string gb(double bytes) { return fmt::format("{:.2f}", bytes / 1e9); }

// The first column and those from `left_from` on are left-aligned, the rest right-aligned.
std::string aligned(const std::vector<Row>& rows, std::size_t left_from) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool left = i == 0 || i >= left_from;
      if (i > 0) line += i == left_from ? "  " : " ";
      line += left ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    while (line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

// At most 118 columns a line, broken at spaces.
std::string wrapped(const std::string& text) {
  constexpr std::size_t kColumns = 118;
  std::string lines;
  std::size_t begin = 0;
  while (text.size() - begin > kColumns) {
    std::size_t end = text.rfind(' ', begin + kColumns);
    if (end == std::string::npos || end <= begin) break;
    lines += text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return lines + text.substr(begin);
}

std::string speedup_text(const std::optional<double>& speedup) {
  return speedup ? fmt::format("{:.3f}", *speedup) : std::string("-");
}

std::string name_of(const CaseResult& of, const EntryResult& entry) {
  const bool wins = of.winner >= 0 && &of.entries[static_cast<std::size_t>(of.winner)] == &entry;
  return entry.label + (wins ? " *" : "") + (entry.does_not_fit ? " !" : "");
}

std::string layout_text(const EntryResult& entry) {
  std::string text = degrees_text(entry.degrees);
  if (entry.micro_batch_sequences > 1) text += fmt::format(", mb {}", entry.micro_batch_sequences);
  if (entry.best) text += fmt::format(" ({}/{})", entry.layouts_simulated, entry.layouts_legal);
  return text;
}

std::vector<const EntryResult*> shown(const CaseResult& of) {
  std::vector<const EntryResult*> rows;
  for (const EntryResult& entry : of.entries) {
    if (!entry.hidden && entry.summary) rows.push_back(&entry);
  }
  return rows;
}

// Decimals with which the shortest of the case's steps shows three digits, at least `least`. A picosecond is 9.
int step_decimals(const CaseResult& of, int least) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const EntryResult* entry : shown(of)) {
    if (entry->summary->step > Time::zero()) shortest = std::min(shortest, entry->summary->step.ms());
  }
  int decimals = 0;
  for (double digit = 100; decimals < 9 && shortest < digit; digit /= 10) ++decimals;
  return std::max(decimals, least);
}

std::string ms(Time time, int decimals) { return fmt::format("{:.{}f}", time.ms(), decimals); }

std::string speed_block(const CaseResult& of) {
  std::vector<Row> rows = {
      {"strategy", "step ms", "low-high", "tok/s/GPU", "MFU %", "speedup", "own", "bound by", "layout"}};
  const int decimals = step_decimals(of, 0);
  for (const EntryResult* entry : shown(of)) {
    const StepSummary& summary = *entry->summary;
    rows.push_back({name_of(of, *entry), ms(summary.step, std::max(decimals, 1)),
                    ms(summary.low, decimals) + "-" + ms(summary.high, decimals),
                    fmt::format("{:.1f}", summary.tokens_per_second_per_gpu), fmt::format("{:.1f}", 100 * summary.mfu),
                    speedup_text(entry->speedup), speedup_text(entry->speedup_own), summary.bound_by,
                    layout_text(*entry)});
  }
  return aligned(rows, 7);
}

std::string split_block(const CaseResult& of) {
  std::vector<Row> rows = {{"time, ms", "comp", "recomp", "optim", "cont", "comm", "bubble", "imbal", "launch", "tail",
                            "max/mean", "peak GB", "free", "GB in", "GB out"}};
  const int decimals = step_decimals(of, 1);
  for (const EntryResult* entry : shown(of)) {
    const StepSummary& summary = *entry->summary;
    Row row = {name_of(of, *entry)};
    for (const Time part : summary.split.parts) row.push_back(ms(part, decimals));
    row.push_back(fmt::format("{:.3f}", summary.imbalance));
    row.push_back(memory_gb(static_cast<double>(summary.peak_bytes)));
    row.push_back(memory_gb(static_cast<double>(of.setup->memory_limit() - summary.peak_bytes)));
    row.push_back(gb(summary.intra_node.mean));
    row.push_back(gb(summary.inter_node.mean));
    rows.push_back(row);
  }
  return aligned(rows, 99);
}

std::string remarks(const CaseResult& of) {
  std::string text;
  const int decimals = step_decimals(of, 1);
  for (const EntryResult& entry : of.entries) {
    if (entry.hidden) continue;
    if (!entry.not_applicable.empty()) {
      text += fmt::format("  {}: not applicable: {}\n", entry.label, entry.not_applicable);
    }
    if (entry.does_not_fit) {
      const DoesNotFit& fault = *entry.does_not_fit;
      text += fmt::format("! {}: does not fit: rank {} needs {} GB of {} GB, most of it {}; {}\n", entry.label,
                          fault.rank, memory_gb(static_cast<double>(fault.needed_bytes)),
                          memory_gb(static_cast<double>(fault.limit_bytes)), to_string(fault.category),
                          fault.change.empty() ? fmt::format("none of {} simulated changes fits", fault.checked.size())
                                               : fmt::format("fits with {} (simulated)", fault.change));
    }
    if (entry.summary && entry.summary->steps > 1) {
      text += fmt::format("  {}: {} steps, 10th to 90th percentile {}-{} ms\n", entry.label, entry.summary->steps,
                          ms(entry.summary->p10, decimals), ms(entry.summary->p90, decimals));
    }
    if (entry.speedup_own_alternative) {
      text += fmt::format("  {}: {:.3f} x against {}\n", entry.label, *entry.speedup_own_alternative,
                          entry.own_alternative);
    }
    if (!entry.note.empty()) text += fmt::format("  {}: {}\n", entry.label, entry.note);
  }
  return text;
}

}  // namespace

std::string compare_table(const Study& study, const StudyResult& result, const Json& results) {
  const std::vector<ResultCase> rows = read_result_rows(results);
  std::string text;
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    const CaseResult& one = result.cases[i];
    const StudyCase& of = study.cases[i];
    const Batch& batch = *one.setup->batches.front();
    if (!text.empty()) text += "\n";
    text += fmt::format(
        "{}: {} on {} of {}, {} in {}, {} a step\n", one.name, of.model.name, counted(one.setup->ranks(), "GPU"),
        of.topology.name, counted(static_cast<std::int64_t>(batch.documents.size()), "document"),
        counted(static_cast<std::int64_t>(batch.sequences.size()), "sequence"), counted(batch.tokens(), "token"));
    if (i < rows.size()) text += wrapped(plain_text(case_verdict(rows[i]).sentence())) + "\n";
    if (!shown(one).empty()) text += "\n" + speed_block(one) + "\n" + split_block(one);
    const std::string lines = remarks(one);
    if (!lines.empty()) text += "\n" + lines;
    text += fmt::format(
        "\nspeedup: against {}; own: against the published baseline; *: wins; !: does not fit;\n"
        "GB in, out: sent inside and between nodes, mean a GPU; low-high: 90 %\n"
        "{}\n",
        one.baseline, one.setup->kernels.description());
  }
  return text;
}

}  // namespace longhaul
