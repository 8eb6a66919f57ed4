// How well NCCL's time model predicts the measured tables of collectives, each from a fit to the others.
//
// Error of a row = |predicted / measured - 1|. Leave-one-table-out: the constants that predict a table come from a fit
// that begins at the priors and sees all other fitted tables. The stricter check leaves out all tables of the same GPU
// generation, collective, rank count and node count at once (twins of H100 and H200, or of two clouds). Held-out tables
// (our own measurements) are in groups of their own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "validate/fit/collectives/collective_fit.h"

namespace longhaul {

enum class LeaveOut { kTable, kTwins };

struct PredictedCollective {
  std::size_t table = 0;  // index of its table
  const CollectiveMeasurement* row = nullptr;
  NcclTime predicted;
  double error = 0;  // signed: predicted / measured - 1
};

// Of every row of every table, in order. `threads` >= 1 fits run at a time; the outcome does not depend on it.
std::vector<PredictedCollective> leave_one_table_out(const std::vector<CollectiveTable>& tables, LeaveOut leave_out,
                                                     int threads);

struct ErrorBand {
  std::string name;  // "below 64 KiB"
  std::size_t rows = 0;
  double median = 0;  // percent, of |error|
  double p90 = 0;
  std::optional<double> target_median;  // what the group is meant to reach
  std::optional<double> target_p90;

  bool met() const;  // true without a target or without rows
};

struct ErrorGroup {
  std::string name;
  std::vector<ErrorBand> bands;
};

struct TableError {
  std::string name;
  std::size_t rows = 0;
  double median = 0;  // percent, of |error|
  double p90 = 0;
  double bias = 0;      // percent, median of the signed error
  bool misses = false;  // median over 10 %
  std::string reason;   // of a table that misses or is not fitted
};

struct RowError {
  std::size_t table = 0;                       // index of its table
  const CollectiveMeasurement* row = nullptr;  // of the tables that were summed up, which must outlive this
  NcclTime predicted;
  double error = 0;  // percent, signed
};

struct CollectiveAccuracy {
  std::vector<ErrorGroup> groups;
  std::vector<TableError> tables;
  std::vector<RowError> rows;
};

CollectiveAccuracy summarise(const std::vector<CollectiveTable>& tables,
                             const std::vector<PredictedCollective>& predictions);

// A table for people, one JSON value, or CSV lines (docs/collectives.md): of kind group and table the errors, of kind
// row each prediction. `strict` may be null.
std::string accuracy_table(const CollectiveAccuracy& accuracy, const CollectiveAccuracy* strict);
std::string accuracy_json(const CollectiveAccuracy& accuracy, const CollectiveAccuracy* strict);
std::string accuracy_csv(const CollectiveAccuracy& accuracy, const CollectiveAccuracy* strict);

}  // namespace longhaul
