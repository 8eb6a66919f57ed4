// The tables of a validation report, shared by the terminal's text and Markdown.
#pragma once

#include <string>
#include <vector>

#include "validate/report/text_table.h"
#include "validate/report/validation_report.h"

namespace longhaul {

struct TitledTable {
  std::string title;
  TextTable table;
};

// Op kinds, ranks, streams, collectives, the step; those without rows are left out.
std::vector<TitledTable> comparison_tables(const ValidationReport& report);
TextTable numerics_table(const Comparison& comparison);
TextTable worst_table(const WorstOps& worst);
// "6 of 10 have kind attention (7 of 31 in all, by chance 0.4 %)"; a sentence where they have nothing in common.
std::vector<std::string> trait_lines(const WorstOps& worst);
// "flashcp, cp 8, on 8 virtual ranks of one NVIDIA H200 (driver 580.65, CUDA 13.0), 20 repeats, 2026-11-30".
std::string run_line(const ValidationReport& report);
// "FAIL: 2 of 40 checks: ..." or "pass: 40 checks"; "no gates were asked for".
std::string verdict_line(const ValidationReport& report);

}  // namespace longhaul
