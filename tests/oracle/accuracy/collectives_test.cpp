// Leave-one-table-out errors of the collectives stay within what the project promises.
#include "validate/accuracy/collectives.h"

#include <gtest/gtest.h>

#include "sim/core/data_files.h"

namespace longhaul {
namespace {

const CollectiveAccuracy& accuracy() {
  static const CollectiveAccuracy out = [] {
    const auto tables = read_all_collective_tables(data_directory());
    EXPECT_TRUE(tables);
    return summarise(*tables, leave_one_table_out(*tables, LeaveOut::kTable, 2));
  }();
  return out;
}

const ErrorBand& band(const std::string& group, const std::string& name) {
  for (const ErrorGroup& g : accuracy().groups) {
    if (g.name != group) continue;
    for (const ErrorBand& b : g.bands) {
      if (b.name == name) return b;
    }
  }
  static const ErrorBand none;
  ADD_FAILURE() << group << ", " << name;
  return none;
}

TEST(LeaveOneTableOut, EveryTargetIsMet) {
  int targets = 0;
  for (const ErrorGroup& group : accuracy().groups) {
    for (const ErrorBand& b : group.bands) {
      targets += b.target_median ? 1 : 0;
      EXPECT_TRUE(b.met()) << group.name << ", " << b.name << ": " << b.median << " / " << b.p90;
    }
  }
  EXPECT_EQ(targets, 16);
}

// What was reached (docs/accuracy-log.md) with a little room: a change that loses it must say so there.
TEST(LeaveOneTableOut, WhatWasReachedIsKept) {
  const auto within = [](const std::string& group, const std::string& name, double median, double p90) {
    EXPECT_LT(band(group, name).median, median) << group << ", " << name;
    EXPECT_LT(band(group, name).p90, p90) << group << ", " << name;
  };
  const std::string own = "one node, ring and NVLS, NCCL's own settings";
  within(own, "below 64 KiB", 3, 8.5);
  within(own, "64 KiB to 1 MiB", 3, 8.5);
  within(own, "from 1 MiB", 4, 9);
  within(own, "from 64 MiB", 3, 7);
  within("one node, all-to-all, Hopper", "from 1 MiB", 5, 8);
  within("several nodes, known fabric, A100 HDR aside", "from 64 MiB", 2.5, 12);
}

// Our own two H200, which no fit sees. Sends to one peer from 512 MiB and short broadcasts miss: docs/accuracy-log.md.
TEST(LeaveOneTableOut, HeldOutRingsArePredicted) {
  for (const std::string collective : {"all_reduce", "all_gather", "reduce_scatter"}) {
    const ErrorBand& large = band("held out, two H200: " + collective, "from 64 MiB");
    EXPECT_EQ(large.rows, 7U);
    EXPECT_LT(large.median, 4) << collective;
    EXPECT_LT(large.p90, 7) << collective;
  }
}

// Of one host, whatever launched it; nothing is excepted.
TEST(LeaveOneTableOut, NoOneNodeTableMisses) {
  const auto tables = read_all_collective_tables(data_directory());
  ASSERT_TRUE(tables);
  ASSERT_EQ(tables->size(), accuracy().tables.size());
  int one_node = 0;
  for (std::size_t t = 0; t < tables->size(); ++t) {
    if ((*tables)[t].held_out || (*tables)[t].rows.front().row.nodes > 1) continue;
    ++one_node;
    EXPECT_LT(accuracy().tables[t].median, 10) << accuracy().tables[t].name;
  }
  EXPECT_EQ(one_node, 37);
}

}  // namespace
}  // namespace longhaul
