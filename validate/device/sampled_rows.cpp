#include "validate/device/sampled_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/core/mix.h"
#include "validate/device/row_reference.h"

namespace longhaul {
namespace {

struct Squares {
  double difference = 0, reference = 0;
  void add(double value, double expected) {
    const double apart = value - expected;
    difference += apart * apart;
    reference += expected * expected;
  }
  void add(const Squares& other) {
    difference += other.difference;
    reference += other.reference;
  }
  double error() const {
    const double error = std::sqrt(difference / reference);
    return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  }
};
struct RowErrors {
  Squares o, lse, dq;
};

RowErrors errors_of(const LayerRows& rows, std::int64_t row, const RowResult& expected) {
  RowErrors errors;
  for (std::size_t j = 0; j < expected.o.size(); ++j) {
    errors.o.add(to_float(rows.o.row(row)[j]), expected.o[j]);
    errors.dq.add(to_float(rows.qkv_grad.row(row)[j]), expected.dq[j]);
  }
  for (std::size_t h = 0; h < expected.lse.size(); ++h) errors.lse.add(rows.lse.row(row)[h], expected.lse[h]);
  return errors;
}

// Sampled rows of which a number is missing: the row's own, or a key or value of its document.
std::int64_t missing_rows(const Batch& batch, const LayerRows& of, const std::vector<std::int64_t>& rows) {
  std::int64_t missing = 0, seen_first = -1;
  bool seen_whole = false;
  for (const std::int64_t row : rows) {
    const RowDocument document = document_of_row(batch, row);
    if (document.first_row != seen_first) {
      seen_first = document.first_row;
      seen_whole = true;
      for (std::int64_t i = 0; i < document.rows; ++i) seen_whole &= of.qkv.holds(document.first_row + i);
    }
    const bool lse = row < of.lse.rows() && of.lse.seen[static_cast<std::size_t>(row)];
    const bool all = seen_whole && of.o.holds(row) && of.d_o.holds(row) && of.qkv_grad.holds(row) && lse;
    missing += all ? 0 : 1;
  }
  return missing;
}

}  // namespace

std::vector<std::int64_t> sample_rows(const Batch& batch, std::int64_t count, std::uint64_t seed) {
  const std::int64_t rows = RowOrder(batch).rows;
  std::set<std::int64_t> drawn;
  if (rows <= count) {
    for (std::int64_t row = 0; row < rows; ++row) drawn.insert(row);
  }
  for (std::uint64_t i = 0; static_cast<std::int64_t>(drawn.size()) < std::min(rows, count); ++i) {
    drawn.insert(static_cast<std::int64_t>(mix(seed + i) % static_cast<std::uint64_t>(rows)));
  }
  return {drawn.begin(), drawn.end()};
}

std::vector<QuantityNorm> sampled_errors(const Schedule& schedule, const StepOutcome& outcome,
                                         const std::vector<std::int64_t>& rows, DoubleMath& math) {
  std::vector<QuantityNorm> worst(3);
  const char* names[3] = {"O", "LSE", "dQ"};
  for (std::size_t i = 0; i < 3; ++i) worst[i].quantity = names[i];
  for (std::int64_t layer = 0; layer < schedule.model.layers; ++layer) {
    const LayerRows of = layer_rows(schedule, outcome, static_cast<std::int16_t>(layer));
    const std::int64_t missing = missing_rows(*schedule.batch, of, rows);
    std::vector<RowErrors> by_row(rows.size());
    if (missing == 0) {
      const std::vector<RowResult> expected = math.rows(schedule.model, *schedule.batch, of, rows);
      for (std::size_t i = 0; i < rows.size(); ++i) by_row[i] = errors_of(of, rows[i], expected[i]);
    }
    RowErrors all;
    for (const RowErrors& errors : by_row) {  // in order of the rows, whoever computed them
      all.o.add(errors.o);
      all.lse.add(errors.lse);
      all.dq.add(errors.dq);
    }
    const Squares* squares[3] = {&all.o, &all.lse, &all.dq};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t width = i == 1 ? schedule.model.q_heads : schedule.model.q_width();
      worst[i].elements += static_cast<std::int64_t>(rows.size()) * width;
      worst[i].missing += missing * width;
      const double error = missing > 0 ? std::numeric_limits<double>::infinity() : squares[i]->error();
      if (error < worst[i].error) continue;
      worst[i].error = error;
      worst[i].worst = fmt::format("layer {}", layer);
    }
  }
  return worst;
}

std::vector<NumericsResult> judge_rows(const std::vector<QuantityNorm>& errors,
                                       const std::vector<QuantityNorm>& undistributed, double factor) {
  LH_ASSERT(errors.size() == undistributed.size(), "{} quantities against {}", errors.size(), undistributed.size());
  std::vector<NumericsResult> results;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    LH_ASSERT(errors[i].quantity == undistributed[i].quantity, "{} against {}", errors[i].quantity,
              undistributed[i].quantity);
    NumericsResult result;
    result.quantity = errors[i].quantity;
    result.reference = "fp64-rows";
    result.error = errors[i].error;
    result.undistributed_error = undistributed[i].error;
    result.limit = factor * undistributed[i].error;
    result.elements = errors[i].elements;
    result.missing = errors[i].missing;
    result.worst = errors[i].worst;
    result.pass = within_limit(result);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace longhaul
