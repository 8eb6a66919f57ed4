// Summaries of the tables of published figures, and their gates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "sim/core/invariant.h"
#include "sim/core/order_statistics.h"
#include "validate/accuracy/context_parallel.h"

namespace longhaul {
namespace {

// The gates' limits: those that the project set itself before the first run.
constexpr double kPartLimit = 15;
constexpr double kTotalLimit = 10;
constexpr double kSpeedupMedian = 10;
constexpr double kEachLimit = 8;
constexpr double kRateMedian = 12;
constexpr double kRateGap = 6;  // TFLOP/s
constexpr std::size_t kCellsThatMayMiss = 1;

struct Row {
  const PublishedNumber* number = nullptr;
  const PublishedPrediction* prediction = nullptr;
  double percent() const { return 100 * prediction->error; }
};

std::vector<double> absolute(const std::vector<Row>& rows) {
  std::vector<double> out;
  for (const Row& row : rows) out.push_back(std::abs(row.percent()));
  return out;
}

GateLine within(const std::vector<Row>& rows, const std::string& what, double limit) {
  GateLine gate{"",   fmt::format("{} within {:g} %", what, limit), 0, static_cast<double>(rows.size()), rows.size(),
                false};
  for (const Row& row : rows) gate.value += std::abs(row.percent()) <= limit ? 1 : 0;
  return gate;
}

GateLine median_within(const std::vector<Row>& rows, double limit) {
  return {"", fmt::format("median error within {:g} %", limit), median(absolute(rows)), limit, rows.size(), true};
}

using Cells = std::map<std::tuple<int, std::string, PublishedQuantity>, std::vector<Row>>;

// Numbers of one quantity of one case, to be compared with each other.
Cells cells_of(const std::vector<Row>& rows) {
  Cells cells;
  for (const Row& row : rows) {
    cells[{row.number->study, row.number->case_name, row.number->quantity}].push_back(row);
  }
  return cells;
}

// The strategy of the largest speed-up; the baseline if none is above 1.
std::string winner(const std::vector<Row>& cell, bool of_predicted) {
  double best = 1;
  std::string name = cell.front().number->over;
  for (const Row& row : cell) {
    const double value = of_predicted ? *row.prediction->predicted : row.number->published;
    if (value <= best) continue;
    best = value;
    name = row.number->strategy;
  }
  return name;
}

GateLine winners(const std::vector<Row>& rows) {
  const Cells cells = cells_of(rows);
  const std::size_t least = cells.size() > kCellsThatMayMiss ? cells.size() - kCellsThatMayMiss : cells.size();
  GateLine gate{"", fmt::format("same winner in {} cells", least), 0, static_cast<double>(least), cells.size(), false};
  for (const auto& [key, cell] : cells) gate.value += winner(cell, true) == winner(cell, false) ? 1 : 0;
  return gate;
}

GateLine order(const std::vector<Row>& rows) {
  GateLine gate{"",   fmt::format("order right where numbers lie more than {:g} TFLOP/s apart", kRateGap), 0, 0, 0,
                false};
  for (const auto& [key, cell] : cells_of(rows)) {
    for (std::size_t a = 0; a < cell.size(); ++a) {
      for (std::size_t b = a + 1; b < cell.size(); ++b) {
        const double gap = cell[a].number->published - cell[b].number->published;
        if (std::abs(gap) <= kRateGap) continue;
        ++gate.of;
        gate.value += (*cell[a].prediction->predicted - *cell[b].prediction->predicted) * gap > 0 ? 1 : 0;
      }
    }
  }
  gate.limit = static_cast<double>(gate.of);
  return gate;
}

std::vector<GateLine> gates_of(PublishedGate gate, const std::vector<Row>& rows) {
  switch (gate) {
    case PublishedGate::kNone:
      return {};
    case PublishedGate::kParts: {
      std::vector<Row> parts, totals;
      for (const Row& row : rows) {
        (row.number->quantity == PublishedQuantity::kTotalMs ? totals : parts).push_back(row);
      }
      return {within(parts, "every part", kPartLimit), within(totals, "every total", kTotalLimit)};
    }
    case PublishedGate::kSpeedups:
      return {median_within(rows, kSpeedupMedian), winners(rows)};
    case PublishedGate::kEach:
      return {within(rows, "every number", kEachLimit)};
    case PublishedGate::kRates:
      return {median_within(rows, kRateMedian), order(rows)};
  }
  return {};
}

PublishedSummary summary_of(const PublishedTable& table, std::size_t numbers, const std::vector<Row>& rows) {
  PublishedSummary out{table.name, numbers, rows.size(), 0, 0, 0};
  if (rows.empty()) return out;
  std::vector<double> with_sign;
  for (const Row& row : rows) with_sign.push_back(row.percent());
  out.median = median(absolute(rows));
  out.p90 = nearest_rank(absolute(rows), 0.9);
  out.bias = median(with_sign);
  return out;
}

}  // namespace

PublishedAccuracy judge(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions) {
  LH_ASSERT(predictions.size() == figures.numbers.size(), "{} predictions of {} numbers", predictions.size(),
            figures.numbers.size());
  PublishedAccuracy out;
  for (std::size_t t = 0; t < figures.tables.size(); ++t) {
    std::vector<Row> rows;
    std::size_t numbers = 0;
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      if (figures.numbers[i].table != t) continue;
      ++numbers;
      if (predictions[i].predicted) rows.push_back({&figures.numbers[i], &predictions[i]});
    }
    out.summaries.push_back(summary_of(figures.tables[t], numbers, rows));
    if (rows.empty()) continue;
    for (GateLine& gate : gates_of(figures.tables[t].gate, rows)) {
      gate.table = figures.tables[t].name;
      out.gates.push_back(std::move(gate));
    }
  }
  return out;
}

}  // namespace longhaul
