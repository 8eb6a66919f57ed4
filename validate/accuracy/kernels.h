// How well the kernel model predicts the calls it was fitted to, each by a fit without the rows of its group, and how
// often its 90 % interval holds them.
//
// Error of a row = predicted / measured - 1. Rows count that take 0.05 ms or more and whose own samples spread by less
// than 10 % ((most - least) / median); the others are in the per-row CSV. Groups are names up to their last '-' or '/'
// (validate/fit/kernel_rows.h). Published rows (H100, A100) are predicted without the rows of their table, so
// by the data sheet alone where a class has one table, and beside that by the shipped constants. Kept-aside rows are
// predicted by the shipped constants, which never saw their table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "validate/fit/kernels.h"
#include "validate/fit/published.h"

namespace longhaul {

struct KernelErrors {
  std::string kind;  // "target", "class", "region", "file", "aside", "published ..."
  std::string name;
  std::size_t rows = 0;
  double median = 0;  // percent, of |error|
  double p90 = 0;
  double bias = 0;     // percent, median of the signed error
  double covered = 0;  // percent of rows inside their interval
  std::optional<double> target_median, target_p90;
  bool covers = false;  // the interval is held to 85 to 97 %

  bool met() const;           // errors; true without a target or rows
  bool covered_well() const;  // coverage; true without a target or with fewer than 20 rows
};

struct KernelAccuracy {
  std::vector<KernelErrors> groups;
  std::vector<FittedRow> rows;             // all that were fitted
  std::vector<FittedRow> published;        // of H100 and A100, by fits without their tables
  std::vector<FittedRow> published_aside;  // other kernels and sizes, by the shipped constants
  std::vector<FittedRow> aside;            // with what the shipped model says in place of the held-out prediction
};

// From the tables in `data_directory`/validate/data. Every fault of every table.
Expected<KernelAccuracy> kernel_accuracy(const std::string& data_directory);
// Rows of `file` (validate/fit/kernel_rows.h, as `longhaul calibrate` writes them: launch cost kept out) as the shipped
// model of `device` predicts them: `held_out` is the shipped prediction; calls whose class it has not are predicted as
// a study would have them. Errors: the device, faulty rows.
Expected<KernelAccuracy> rows_accuracy(const std::string& data_directory, const std::string& device,
                                       const std::string& file);
// Adds the groups of published rows: by device and class, held out and as shipped; aside by table.
void add_published(const std::vector<PublishedFit>& fits, KernelAccuracy& accuracy);
// The figures of these rows, for tests; `aside` as above.
KernelAccuracy summarise_kernels(std::vector<FittedRow> rows, std::vector<FittedRow> aside);

// `file` as given to rows_accuracy; empty for kernel_accuracy's.
std::string kernels_table(const KernelAccuracy& accuracy, const std::string& file = "");
std::string kernels_json(const KernelAccuracy& accuracy);
std::string kernels_csv(const KernelAccuracy& accuracy);

}  // namespace longhaul
