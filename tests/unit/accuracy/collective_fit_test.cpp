// The fit finds what was planted; the shipped constants are those that it gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/core/csv.h"
#include "sim/core/data_files.h"
#include "validate/accuracy/collectives.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

std::string folder() { return data_directory() + "/validate/data/collectives"; }

const std::vector<CollectiveTable>& tables() {
  static const auto read = read_collective_tables(folder(), data_directory());
  EXPECT_TRUE(read);
  return *read;
}

Eigen::Index index_of(const std::string& name) {
  const auto& parameters = collective_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name == name) return static_cast<Eigen::Index>(i);
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(CollectiveTables, AllFiftyFiveAreRead) {
  EXPECT_EQ(tables().size(), 55U);
  std::size_t fitted = 0;
  std::vector<std::string> harness_alone;
  for (const CollectiveTable& table : tables()) {
    fitted += table.fitted() ? 1 : 0;
    if (!table.harness_only.empty()) harness_alone.push_back(table.name);
    for (const CollectiveMeasurement& row : table.rows) EXPECT_EQ(row.harness_only, !table.harness_only.empty());
  }
  EXPECT_EQ(fitted, 50U);
  EXPECT_THAT(harness_alone, testing::ElementsAre("a100_1x8_mlengineering_allreduce", "azure_nd_a100_v4_1x8_allreduce",
                                                  "azure_nd_h100_v5_1x8_allreduce"));
}

// Our own two H200: graphs below 1 MiB, calls from there, six collectives each, in groups of their own alone.
TEST(CollectiveTables, HeldOutOnesAreListedApart) {
  const auto held_out = read_held_out_tables(data_directory());
  ASSERT_TRUE(held_out);
  ASSERT_EQ(held_out->size(), 2U);
  EXPECT_EQ((*held_out)[0].rows.size(), 66U);
  EXPECT_EQ((*held_out)[1].rows.size(), 78U);
  EXPECT_TRUE(fitted_rows(*held_out).empty());
  std::vector<PredictedCollective> predictions;
  for (std::size_t t = 0; t < 2; ++t) {
    for (const CollectiveMeasurement& row : (*held_out)[t].rows) {
      EXPECT_EQ(row.row.bytes < 1048576, t == 0);
      EXPECT_FALSE(row.machine.nvls);
      predictions.push_back({t, &row, {}, 0.25});
    }
  }
  const CollectiveAccuracy accuracy = summarise(*held_out, predictions);
  ASSERT_EQ(accuracy.groups.size(), 6U);
  EXPECT_EQ(accuracy.groups[5].name, "held out, two H200: broadcast");
  EXPECT_EQ(accuracy.groups[5].bands[2].rows, 11U);
  EXPECT_EQ(accuracy.groups[5].bands[2].median, 25);
  EXPECT_THAT(accuracy.tables[0].reason, testing::StartsWith("held out"));
  const auto none = read_held_out_tables("/nowhere");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().size(), 2U);
}

TEST(CollectiveTables, FaultyOnesAreNamed) {
  RowMachines machines(data_directory());
  const std::string header = "collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,oop_time_us\n";
  const auto untimed = parse_collective_table(header + "all_reduce,H100,8,1,8,1024,\n", "x.csv", machines);
  ASSERT_FALSE(untimed);
  EXPECT_THAT(untimed.error().front().to_string(), HasSubstr("x.csv: line 2: has no measured time"));
  const auto empty = parse_collective_table(header + "all_reduce,H100,8,1,8,8,3\n", "x.csv", machines);
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().front().to_string(), HasSubstr("holds no rows"));
  const auto none = read_collective_tables("/nowhere", data_directory());
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().front().to_string(), HasSubstr("/nowhere: holds no tables"));
}

// Times made by the model with planted constants (some a third off their priors) lead the fit back to them, where rows
// show them: within 2 % for a weak prior pulls a little; within 6 % for what stays of a copy, which only the longest
// calls tell from what fades.
TEST(CollectiveFitting, RefindsPlantedConstants) {
  const std::vector<std::pair<std::string, double>> planted = {{"hopper.ll_step_us", 1.1},
                                                               {"hopper.start_us", 6},
                                                               {"ampere.simple_start_us", 20},
                                                               {"ampere.nvls_sync_us", 3.6},
                                                               {"hopper.reduce_copy_parts", 0.3},
                                                               {"ampere.p2p_alone_gbps", 30},
                                                               {"infiniband.nvls_tree_sync_us", 9},
                                                               {"tcpxo.efficiency", 0.8},
                                                               {"harness.launch_us", 8},
                                                               {"harness.launch_channel_us", 0.4}};
  Eigen::VectorXd places = prior_places();
  for (const auto& [name, value] : planted) {
    places[index_of(name)] = place_of(collective_parameters()[static_cast<std::size_t>(index_of(name))], value);
  }
  const NcclConstants constants = constants_of(places);
  std::vector<CollectiveTable> made = tables();
  for (CollectiveTable& table : made) {
    for (CollectiveMeasurement& row : table.rows) row.measured_us = predict(constants, row).total_us();
  }
  const CollectiveFit fit = fit_collectives(fitted_rows(made), prior_places());
  for (const auto& [name, value] : planted) {
    const Eigen::Index i = index_of(name);
    const double found = value_at(collective_parameters()[static_cast<std::size_t>(i)], fit.places[i]);
    EXPECT_NEAR(found / value, 1, name.ends_with("copy_parts") ? 0.06 : 0.02) << name;
  }
}

// Tables of one launching thread find what a launch costs and move nothing else.
TEST(CollectiveFitting, TheHarnessAloneIsFittedToItsTables) {
  std::vector<const CollectiveMeasurement*> others;
  for (const CollectiveMeasurement* row : fitted_rows(tables())) {
    if (!row->harness_only) others.push_back(row);
  }
  EXPECT_LT(others.size(), fitted_rows(tables()).size());
  const CollectiveFit with = fit_collectives(fitted_rows(tables()), prior_places());
  const CollectiveFit without = fit_collectives(others, prior_places());
  for (std::size_t i = 0; i < collective_parameters().size(); ++i) {
    const CollectiveParameter& parameter = collective_parameters()[i];
    const auto at = static_cast<Eigen::Index>(i);
    EXPECT_EQ(with.places[at] == without.places[at], !parameter.last) << parameter.name;
    if (!parameter.last) continue;
    EXPECT_NEAR(without.places[at], place_of(parameter, parameter.prior), 1e-9) << parameter.name;
  }
  EXPECT_LT(without.cost, with.cost);
}

TEST(CollectiveFitting, TheShippedConstantsAreTheFits) {
  const CollectiveFit fit = fit_collectives(fitted_rows(tables()), prior_places());
  const Expected<NcclConstants> shipped = read_nccl_constants(data_directory() + "/topologies/nccl.json");
  ASSERT_TRUE(shipped);
  for (std::size_t g = 0; g < kNcclGpuCount; ++g) {
    for (std::size_t t = 0; t < kGpuTermCount; ++t) {
      EXPECT_NEAR(shipped->gpus[g][t] / fit.constants.gpus[g][t], 1, 0.01)
          << nccl_name(static_cast<NcclGpu>(g)) << "." << nccl_name(static_cast<GpuTerm>(t));
    }
  }
  EXPECT_NEAR(shipped->pytorch_us / fit.constants.pytorch_us, 1, 0.01);
  EXPECT_NEAR(shipped->launch_us / fit.constants.launch_us, 1, 0.01);
  EXPECT_NEAR(shipped->launch_channel_us / fit.constants.launch_channel_us, 1, 0.01);
  for (std::size_t n = 0; n < kNcclNetworkCount; ++n) {
    for (std::size_t t = 0; t < kNetworkTermCount; ++t) {
      EXPECT_NEAR(shipped->networks[n][t] / fit.constants.networks[n][t], 1, 0.01)
          << nccl_name(static_cast<NcclNetwork>(n)) << "." << nccl_name(static_cast<NetworkTerm>(t));
    }
  }
}

TEST(CollectiveFitting, WithoutRowsThePriorStays) {
  const CollectiveFit fit = fit_collectives({}, prior_places());
  EXPECT_LT((fit.places - prior_places()).norm(), 1e-9);
  EXPECT_LT(fit.cost, 1e-12);
}

TEST(CollectiveFitting, EfficienciesOfNicsStayBelowOne) {
  const auto& parameters = collective_parameters();
  const auto i = static_cast<std::size_t>(index_of("infiniband.efficiency"));
  EXPECT_LT(value_at(parameters[i], 30), 1 + 1e-12);
  EXPECT_NEAR(value_at(parameters[i], place_of(parameters[i], 0.9)), 0.9, 1e-12);
}

// Each prediction is a line of its own; every line has all columns.
TEST(CollectiveSummary, CsvHoldsEveryPrediction) {
  RowMachines machines(data_directory());
  const std::string text =
      "# hard: odd\ncollective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,oop_time_us\n"
      "all_reduce,H100-80GB,8,1,8,1024,20.5\nalltoall,A100,4,1,8,65536,12\n";
  const Expected<CollectiveTable> table = parse_collective_table(text, "odd.csv", machines);
  ASSERT_TRUE(table);
  const NcclTime ring{NcclAlgorithm::kRing, NcclProtocol::kLl, 1, 10, 5.375};
  const NcclTime direct{NcclAlgorithm::kDirect, NcclProtocol::kSimple, 1, 18, 0};
  const CollectiveAccuracy accuracy =
      summarise({*table}, {{0, &table->rows[0], ring, -0.25}, {0, &table->rows[1], direct, 0.5}});
  const std::string csv = accuracy_csv(accuracy, nullptr);
  EXPECT_THAT(csv, testing::StartsWith("left_out,kind,name,band,rows,median_percent,p90_percent,target_median,"
                                       "target_p90,reason,line,collective,gpu,n_gpu,n_nodes,size_bytes,measured_us,"
                                       "predicted_us,error_percent,algorithm\n"));
  EXPECT_THAT(csv, HasSubstr("\ntable,table,odd,all,2,37.50,47.50,,,odd,,,,,,,,,,\n"));
  EXPECT_THAT(csv, HasSubstr("\ntable,row,odd,,,,,,,,3,all_reduce,H100-80GB,8,1,1024,20.5,15.375,-25.00,ring LL\n"));
  EXPECT_THAT(csv, HasSubstr("\ntable,row,odd,,,,,,,,4,alltoall,A100,4,1,65536,12,18.000,50.00,direct Simple\n"));
  Errors errors;  // of lines with more or fewer fields than columns
  EXPECT_GT(read_csv(csv, "out.csv", errors).rows.size(), 5U);
  EXPECT_THAT(errors, testing::IsEmpty());
}

// A table that is predicted twice as slow as measured has 100 % in every band.
TEST(CollectiveSummary, CountsWhatItIsGiven) {
  std::vector<PredictedCollective> predictions;
  for (std::size_t t = 0; t < tables().size(); ++t) {
    for (const CollectiveMeasurement& row : tables()[t].rows) predictions.push_back({t, &row, {}, 1.0});
  }
  const CollectiveAccuracy accuracy = summarise(tables(), predictions);
  for (const ErrorGroup& group : accuracy.groups) {
    for (const ErrorBand& band : group.bands) {
      if (band.rows == 0) continue;
      EXPECT_EQ(band.median, 100) << group.name;
      EXPECT_EQ(band.met(), !band.target_median) << group.name;
    }
  }
  for (const TableError& table : accuracy.tables) {
    EXPECT_TRUE(table.misses);
    EXPECT_FALSE(table.reason.empty());
  }
  EXPECT_THAT(accuracy_table(accuracy, nullptr), HasSubstr("MISS"));
  EXPECT_THAT(accuracy_csv(accuracy, &accuracy), HasSubstr("twins,table,h200_2x8_nebius_allreduce,all,5,100.00"));
  EXPECT_EQ(accuracy.rows.size(), predictions.size());
  const auto json = nlohmann::json::parse(accuracy_json(accuracy, &accuracy));
  EXPECT_EQ(json["schema"], "accuracy/1");
  EXPECT_EQ(json["leave_one_table_out"]["tables"].size(), tables().size());
  EXPECT_EQ(json["leave_twins_out"], json["leave_one_table_out"]);
}

}  // namespace
}  // namespace longhaul
