// The shipped kernels of an eager framework against the rows that they came from: within the interval that the file
// gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/core/data_files.h"
#include "sim/cost/eager_kernels.h"
#include "tests/oracle/cost/measured_table.h"

namespace longhaul {
namespace {

constexpr double kMegabyte = 1e6;

struct Kind {
  const char* name;
  std::vector<std::string> ops;
  double least_bytes;  // smaller rows are launches, or lie in the L2
  std::size_t rows;
};

const std::vector<Kind> kKinds = {
    {"permuted_rows", {"heads_first", "heads_behind_rows", "ranks_joined"}, 33 * kMegabyte, 16},
    {"expanded_rows", {"put_device_list", "zeros_and_scatter"}, 33 * kMegabyte, 9},
    {"indexed_rows", {"take_host_mask", "take_device_list"}, 66 * kMegabyte, 16},
    {"zeros", {"zeros"}, 130 * kMegabyte, 2},
    {"cast_to_fp32", {"to_fp32"}, 50 * kMegabyte, 3},
    {"cast_to_bf16", {"to_bf16"}, 50 * kMegabyte, 3},
    {"added_in_fp32", {"add_bf16_to_fp32", "sum_bf16_fp32"}, 80 * kMegabyte, 6},
    {"merged_partials", {"scripted"}, 80 * kMegabyte, 4},
};

// No scheme has such a call: one head, or one rank, behind rows is a view (1 us); sums that rows are put into are fp32;
// a scatter of 8,192 rows of 8 heads takes its launches.
bool left_out(const TableRow& row) {
  const std::string &op = row.at("op"), &shape = row.at("shape");
  if (op == "heads_behind_rows") return shape.find("x1x") != std::string::npos;
  if (op == "put_device_list") return !shape.ends_with("fp32");
  return op == "zeros_and_scatter" && shape == "8192x1024";
}

// Measured over modelled, less 1. A scatter's row has the zeros that it is put into: a third of the bytes.
double error(const TableRow& row, const EagerKernels& eager, const EagerKernelTimes& times) {
  const bool scatter = row.at("op") == "zeros_and_scatter", waits = row.at("op") == "take_host_mask";
  const double bytes = std::stod(row.at("bytes"));
  const double zeros = scatter ? bytes / 3 * eager.kernel("zeros")->seconds_per_byte : 0;
  const double modelled = (waits ? times.wait_seconds : 0) + (scatter ? 2 * bytes / 3 : bytes) * times.seconds_per_byte;
  return (std::stod(row.at("device_ms")) * 1e-3 - zeros) / modelled - 1;
}

TEST(ShippedEagerKernels, RowsLieInTheirIntervals) {
  const auto eager = read_eager_kernels(data_directory());
  ASSERT_TRUE(eager.has_value());
  const std::vector<TableRow> table = read_table("h200/framework_ops.csv");
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const EagerKernelTimes* times = (*eager)->kernel(kind.name);
    ASSERT_NE(times, nullptr);
    std::vector<double> errors;
    for (const TableRow& row : table) {
      const bool named = std::find(kind.ops.begin(), kind.ops.end(), row.at("op")) != kind.ops.end();
      if (!named || std::stod(row.at("bytes")) < kind.least_bytes || left_out(row)) continue;
      errors.push_back(error(row, **eager, *times));
    }
    ASSERT_EQ(errors.size(), kind.rows);
    // The ends hold the rows, and are no further out than they ask for.
    const auto [least, most] = std::minmax_element(errors.begin(), errors.end());
    EXPECT_GE(*least, times->low - 0.005);
    EXPECT_LE(*most, times->high + 0.005);
    EXPECT_NEAR(*least, times->low, 0.03);
    EXPECT_NEAR(*most, times->high, 0.03);
  }
}

}  // namespace
}  // namespace longhaul
