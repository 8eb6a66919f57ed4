#include "validate/accuracy/published.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "sim/core/csv.h"
#include "sim/core/data_files.h"
#include "sim/study/setup.h"

namespace longhaul {
namespace {

const std::vector<std::string> kTableColumns = {"table", "gate", "inputs", "source", "needs"};
const std::vector<std::string> kNumberColumns = {"table", "what",     "study",     "case", "strategy",
                                                 "over",  "quantity", "published", "needs"};

std::string line_of(const CsvRow& row) { return fmt::format("line {}", row.line); }

std::optional<std::size_t> position(const std::string& name, const std::vector<std::string>& names) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<std::size_t>(at - names.begin());
}

// Where `name` stands among `names`; an error that lists them if it does not.
std::optional<std::size_t> one_of(const std::string& name, const std::string& what,
                                  const std::vector<std::string>& names, const std::string& file, const CsvRow& row,
                                  Errors& errors) {
  const auto at = position(name, names);
  if (!at) {
    errors.push_back({file, line_of(row), fmt::format("unknown {} \"{}\"", what, name),
                      fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(name, names)});
  }
  return at;
}

// The rows of a file with exactly `columns`; none if it cannot be read or has others.
std::vector<CsvRow> rows_of(const std::string& file, const std::vector<std::string>& columns, Errors& errors) {
  const Expected<std::string> text = read_input_file(file, "a table of published figures");
  if (!text) {
    append(errors, text.error());
    return {};
  }
  CsvTable table = read_csv(*text, file, errors);
  if (table.columns == columns) return std::move(table.rows);
  errors.push_back({file, "", fmt::format("has the columns {}", fmt::join(table.columns, ",")),
                    fmt::format("{}", fmt::join(columns, ",")), ""});
  return {};
}

void read_tables(const std::string& file, PublishedFigures& figures, Errors& errors) {
  std::vector<std::string> names;
  for (const CsvRow& row : rows_of(file, kTableColumns, errors)) {
    const auto gate = one_of(row.fields[1], "gate", published_gates(), file, row, errors);
    if (position(row.fields[0], names)) {
      errors.push_back({file, line_of(row), fmt::format("table \"{}\" stands twice", row.fields[0]), "each once", ""});
    }
    names.push_back(row.fields[0]);
    const auto inputs = one_of(row.fields[2], "inputs", published_inputs(), file, row, errors);
    if (row.fields[3].empty()) errors.push_back({file, line_of(row), "has no source", "where the figures stand", ""});
    figures.tables.push_back({row.fields[0], static_cast<PublishedGate>(gate.value_or(0)),
                              static_cast<PublishedInputs>(inputs.value_or(0)), row.fields[3], row.fields[4]});
  }
}

class NumberReader {
 public:
  NumberReader(std::string folder, std::string file, PublishedFigures& figures, Errors& errors)
      : folder_(std::move(folder)), file_(std::move(file)), figures_(&figures), errors_(&errors) {
    for (const PublishedTable& table : figures.tables) table_names_.push_back(table.name);
  }

  void read(const CsvRow& row) {
    PublishedNumber number;
    const auto table = one_of(row.fields[0], "table", table_names_, file_, row, *errors_);
    const auto quantity = one_of(row.fields[6], "quantity", published_quantities(), file_, row, *errors_);
    number.table = table.value_or(0);
    number.what = row.fields[1];
    number.case_name = row.fields[3];
    number.strategy = row.fields[4];
    number.over = row.fields[5];
    number.quantity = static_cast<PublishedQuantity>(quantity.value_or(0));
    number.needs = row.fields[8];
    const std::string& value = row.fields[7];
    const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), number.published);
    if (fault != std::errc() || end != value.data() + value.size() || !std::isfinite(number.published) ||
        number.published <= 0) {
      add(row, fmt::format("published is \"{}\"", value), "a number above 0");
    }
    if (row.fields[2].empty()) {
      check_not_reproduced(row, number, table.has_value());
    } else {
      number.study = study(row.fields[2]);
      if (number.study >= 0) check_reproduced(row, number, quantity.has_value());
    }
    figures_->numbers.push_back(std::move(number));
  }

 private:
  void add(const CsvRow& row, std::string message, std::string expected, std::string nearest = "") {
    errors_->push_back({file_, line_of(row), std::move(message), std::move(expected), std::move(nearest)});
  }

  void check_not_reproduced(const CsvRow& row, const PublishedNumber& number, bool known_table) {
    if (!number.case_name.empty() || !number.strategy.empty() || !number.over.empty()) {
      add(row, "names a case, a strategy or a baseline without a study", "a study, or none of them");
    }
    if (known_table && number.needs.empty() && figures_->tables[number.table].needs.empty()) {
      add(row, "has no study", "a study, or what would be needed to reproduce it");
    }
  }

  void check_reproduced(const CsvRow& row, const PublishedNumber& number, bool known_quantity) {
    const Study& of = figures_->studies[static_cast<std::size_t>(number.study)];
    std::vector<std::string> cases;
    for (const StudyCase& one : of.cases) cases.push_back(one.name);
    const auto at = one_of(number.case_name, "case", cases, file_, row, *errors_);
    const bool compares = known_quantity && is_speedup(number.quantity);
    if (known_quantity && compares == number.over.empty()) {
      add(row, compares ? "is a speed-up over nothing" : "names a baseline of something that is no speed-up",
          "a baseline for speed-ups, and only for them");
    }
    if (!at) return;
    std::vector<std::string> labels;
    for (const StrategyEntry& entry : of.cases[*at].strategies) labels.push_back(entry.label);
    one_of(number.strategy, "strategy", labels, file_, row, *errors_);
    if (!number.over.empty()) one_of(number.over, "strategy", labels, file_, row, *errors_);
  }

  // Its index; -1 if it cannot be read, with its faults told once.
  int study(const std::string& name) {
    const auto known = position(name, names_);
    if (known) return indices_[*known];
    names_.push_back(name);
    Expected<Study> read = read_study(folder_ + "/" + name + ".json", study_options());
    if (read) {
      indices_.push_back(static_cast<int>(figures_->studies.size()));
      figures_->studies.push_back(std::move(*read));
    } else {
      indices_.push_back(-1);
      errors_->insert(errors_->end(), read.error().begin(), read.error().end());
    }
    return indices_.back();
  }

  std::string folder_;
  std::string file_;
  PublishedFigures* figures_;
  Errors* errors_;
  std::vector<std::string> table_names_;
  std::vector<std::string> names_;  // studies asked for
  std::vector<int> indices_;
};

}  // namespace

const std::vector<std::string>& published_gates() {
  static const std::vector<std::string> names = {"none", "parts", "speedups", "each", "rates"};
  return names;
}

const std::vector<std::string>& published_inputs() {
  static const std::vector<std::string> names = {"own", "whole"};
  return names;
}

const std::vector<std::string>& published_quantities() {
  static const std::vector<std::string> names = {"total_ms",
                                                 "forward_ms",
                                                 "backward_ms",
                                                 "attention_forward_ms",
                                                 "attention_backward_ms",
                                                 "gather_ms",
                                                 "scatter_ms",
                                                 "copies_ms",
                                                 "speedup",
                                                 "speedup_forward",
                                                 "per_second",
                                                 "per_second_forward",
                                                 "tflops_forward",
                                                 "tflops_backward"};
  return names;
}

bool is_speedup(PublishedQuantity quantity) {
  return quantity == PublishedQuantity::kSpeedup || quantity == PublishedQuantity::kSpeedupForward;
}

Expected<PublishedFigures> read_published(const std::string& folder) {
  PublishedFigures figures;
  Errors errors;
  read_tables(folder + "/context-parallel-tables.csv", figures, errors);
  const std::string file = folder + "/context-parallel.csv";
  NumberReader reader(folder, file, figures, errors);
  for (const CsvRow& row : rows_of(file, kNumberColumns, errors)) reader.read(row);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return figures;
}

}  // namespace longhaul
