// The parts of longhaul-measure that need no GPU: shapes and expected results, uneven splits, sizes on the command
// line, the result file, and what counts as a sample.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "validate/gpu/collective.h"
#include "validate/gpu/exchange_plan.h"
#include "validate/gpu/loop_samples.h"
#include "validate/gpu/pattern.h"
#include "validate/gpu/result_file.h"
#include "validate/gpu/size_list.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string texts(const Errors& errors) {
  std::string text;
  for (const InputError& error : errors) text += error.to_string() + "\n";
  return text;
}

TEST(Collective, NamesAreThoseOfTheTables) {
  EXPECT_THAT(measured_collective_names(),
              ElementsAre("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast"));
  for (const MeasuredCollective collective : measured_collectives()) {
    EXPECT_EQ(parse_collective(collective_name(collective)), collective);
  }
  EXPECT_EQ(parse_collective("all-reduce"), std::nullopt);
}

// nccl-tests prints 512 MiB of an all-gather on 8 ranks as size 536870912, count 16777216: the part of a rank; of an
// all-reduce as count 134217728.
TEST(Collective, CountsSizesAsNcclTestsDoes) {
  const auto gather = shape_of(MeasuredCollective::kAllGather, 8, 536870912);
  EXPECT_EQ(gather->count, 16777216);
  EXPECT_EQ(gather->send_count, 16777216);
  EXPECT_EQ(gather->receive_count, 134217728);
  EXPECT_EQ(gather->size_bytes(), 536870912);
  const auto scatter = shape_of(MeasuredCollective::kReduceScatter, 8, 536870912);
  EXPECT_EQ(scatter->send_count, 134217728);
  EXPECT_EQ(scatter->receive_count, 16777216);
  EXPECT_EQ(scatter->size_bytes(), 536870912);
  EXPECT_EQ(shape_of(MeasuredCollective::kAllReduce, 8, 536870912)->count, 134217728);
  EXPECT_EQ(shape_of(MeasuredCollective::kAllToAll, 8, 536870912)->send_count, 134217728);
}

// Parts are whole multiples of 16 bytes: 1000 bytes on 3 ranks are 3 parts of 333, cut to 320.
TEST(Collective, CutsPartsToSixteenBytes) {
  EXPECT_EQ(shape_of(MeasuredCollective::kAllToAll, 3, 1000)->size_bytes(), 960);
  EXPECT_EQ(shape_of(MeasuredCollective::kAllGather, 64, 1000), std::nullopt);
}

// nccl-tests, doc/PERFORMANCE.md, for n = 8.
TEST(Collective, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(MeasuredCollective::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(MeasuredCollective::kAllGather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(MeasuredCollective::kReduceScatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(MeasuredCollective::kAllToAll, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(MeasuredCollective::kSendRecv, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(MeasuredCollective::kBroadcast, 8), 1);
}

using Buffers = std::vector<std::vector<float>>;

Buffers send_buffers(int ranks, std::int64_t count) {
  Buffers buffers(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t i = 0; i < count; ++i) {
      buffers[static_cast<std::size_t>(rank)].push_back(pattern_value(rank, i));
    }
  }
  return buffers;
}

// The collective by its definition, written without the runs.
Buffers by_definition(const CollectiveShape& shape, const Buffers& send) {
  const auto n = static_cast<std::size_t>(shape.ranks);
  const auto count = static_cast<std::size_t>(shape.count);
  Buffers receive(n, std::vector<float>(static_cast<std::size_t>(shape.receive_count), 0));
  for (std::size_t to = 0; to < n; ++to) {
    for (std::size_t from = 0; from < n; ++from) {
      for (std::size_t i = 0; i < count; ++i) {
        switch (shape.collective) {
          case MeasuredCollective::kAllReduce:
            receive[to][i] += send[from][i];
            break;
          case MeasuredCollective::kReduceScatter:
            receive[to][i] += send[from][to * count + i];
            break;
          case MeasuredCollective::kAllGather:
            receive[to][from * count + i] = send[from][i];
            break;
          case MeasuredCollective::kAllToAll:
            receive[to][from * count + i] = send[from][to * count + i];
            break;
          case MeasuredCollective::kSendRecv:
            if ((from + 1) % n == to) receive[to][i] = send[from][i];
            break;
          case MeasuredCollective::kBroadcast:
            receive[to][i] = send[0][i];
            break;
        }
      }
    }
  }
  return receive;
}

// What the device's check compares with, element by element; -1 where no run covers the element.
std::vector<float> by_runs(const std::vector<ReceivedRun>& runs, int ranks, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), -1000);
  for (const ReceivedRun& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      values.at(static_cast<std::size_t>(run.offset + i)) = pattern_expected(run.source, ranks, run.source_offset + i);
    }
  }
  return values;
}

TEST(Collective, RunsSayWhatEveryRankReceives) {
  for (const MeasuredCollective collective : measured_collectives()) {
    for (const int ranks : {2, 3, 5}) {
      const CollectiveShape shape = *shape_of(collective, ranks, 16 * 1024 * ranks);
      const Buffers expected = by_definition(shape, send_buffers(ranks, shape.send_count));
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(by_runs(received_runs(shape, rank), ranks, shape.receive_count),
                  expected[static_cast<std::size_t>(rank)])
            << collective_name(collective) << " on " << ranks << ", rank " << rank;
      }
    }
  }
}

// A check sees nothing if neighbouring elements, ranks, or blocks hold the same.
TEST(Pattern, TellsElementsRanksAndBlocksApart) {
  for (std::int64_t i = 0; i < 5000; ++i) {
    const float value = pattern_value(2, i);
    EXPECT_LE(std::abs(value), 15);
    EXPECT_EQ(value, std::trunc(value));
    EXPECT_NE(value, pattern_value(2, i + 1)) << i;
    EXPECT_NE(value, pattern_value(3, i)) << i;
    EXPECT_NE(value, pattern_value(2, i + 1024)) << i;
  }
}

const ExchangePlan& plan_named(const std::vector<ExchangePlan>& plans, const std::string& name) {
  for (const ExchangePlan& plan : plans) {
    if (plan.distribution == name) return plan;
  }
  throw std::out_of_range(name);
}

// 4 ranks of 7,168 bytes (1,792 elements) each; all 7,168 elements by weight / total weight.
TEST(ExchangePlan, SplitsAllToAllByWeight) {
  const std::vector<ExchangePlan> plans = all_to_all_plans(4, 7168);
  const ExchangePlan& hot = plan_named(plans, "hot-receiver");  // rows of 1 1 1 4: 28 weights, 256 elements each
  EXPECT_EQ(hot.count(0, 0), 256);
  EXPECT_EQ(hot.count(2, 3), 1024);
  EXPECT_EQ(hot.receive_count(3), 4096);
  const ExchangePlan& keep = plan_named(plans, "keep");  // 9 on the diagonal, 1 elsewhere: 48 weights
  EXPECT_EQ(keep.count(1, 1), 1344);
  EXPECT_EQ(keep.count(1, 2), 148);                            // 149.3, in fours
  const ExchangePlan& one_way = plan_named(plans, "one-way");  // 10 pairs
  EXPECT_EQ(one_way.count(3, 0), 0);
  EXPECT_EQ(one_way.count(0, 3), 716);
  EXPECT_EQ(plan_named(plans, "even").bytes_text().substr(0, 20), "1792/1792/1792/1792;");
}

TEST(ExchangePlan, SplitsAllGatherByWeight) {
  const std::vector<ExchangePlan> plans = all_gather_plans(4, 16384);  // 4,096 elements
  EXPECT_EQ(plan_named(plans, "linear").send_count(3), 1636);          // 4/10: 1638.4, in fours
  EXPECT_EQ(plan_named(plans, "heavy").send_count(0), 3584);           // 21 of 24
  EXPECT_EQ(plan_named(plans, "one-empty").send_count(3), 0);
  EXPECT_EQ(plan_named(plans, "one-empty").receive_count(3), 4092);  // three parts of 1365.3, in fours
}

// Both sides of every pair agree, and runs are the exchange by its definition.
TEST(ExchangePlan, RunsSayWhatEveryRankReceives) {
  std::vector<ExchangePlan> plans = all_to_all_plans(3, 12288);
  for (const ExchangePlan& plan : all_gather_plans(3, 12288)) plans.push_back(plan);
  for (const ExchangePlan& plan : plans) {
    for (int to = 0; to < plan.ranks; ++to) {
      std::vector<float> expected;
      for (int from = 0; from < plan.ranks; ++from) {
        std::int64_t before = 0;
        for (int peer = 0; peer < to && !plan.gather; ++peer) before += plan.count(from, peer);
        for (std::int64_t i = 0; i < plan.count(from, to); ++i) expected.push_back(pattern_value(from, before + i));
      }
      EXPECT_EQ(by_runs(received_runs(plan, to), plan.ranks, plan.receive_count(to)), expected)
          << plan.distribution << ", rank " << to;
    }
  }
}

TEST(SizeList, ReadsUnitsRangesAndLists) {
  EXPECT_EQ(*parse_byte_size("512", "--sizes"), 512);
  EXPECT_EQ(*parse_byte_size("64k", "--sizes"), 65536);
  EXPECT_EQ(*parse_byte_size("4G", "--sizes"), 4294967296);
  EXPECT_THAT(*parse_size_range("512:4K", "--sizes"), ElementsAre(512, 1024, 2048, 4096));
  EXPECT_THAT(*parse_size_range("3:13", "--sizes"), ElementsAre(3, 6, 12));
  EXPECT_THAT(*parse_size_range("1G:1G", "--sizes"), ElementsAre(1073741824));
  EXPECT_THAT(*parse_size_list("16M,1K", "--sizes"), ElementsAre(16777216, 1024));
}

TEST(SizeList, NamesEveryFault) {
  for (const char* wrong : {"", "x", "0", "-1", "1.5M", "4T", "4GB", "99999999999G"}) {
    EXPECT_THAT(texts(parse_byte_size(wrong, "--sizes").error()),
                HasSubstr("<command line>: --sizes: is \"" + std::string(wrong) +
                          "\"; expected a number of bytes such as 512, 64K, 16M or 4G"));
  }
  EXPECT_THAT(texts(parse_size_range("512", "--sizes").error()), HasSubstr("expected MIN:MAX such as 512:4G"));
  EXPECT_THAT(texts(parse_size_range("4K:512", "--sizes").error()), HasSubstr("expected MIN not above MAX"));
  EXPECT_EQ(parse_size_range("a:b", "--sizes").error().size(), 2U);
  EXPECT_EQ(parse_size_list("1K,,z", "--sizes").error().size(), 2U);
}

class ResultFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    file_ = (folder_ / "out.csv").string();
  }

  static ResultFormat format() {
    return {{"device: A", "NCCL: 1"}, {"date: today"}, {"op", "bytes", "us"}, {"op", "bytes"}};
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }
  void write(const std::string& content) const { std::ofstream(file_) << content; }

  std::filesystem::path folder_;
  std::string file_;
};

constexpr const char* kHead = "# device: A\n# NCCL: 1\n# date: today\nop,bytes,us\n";

TEST_F(ResultFileTest, WritesHeadAndRows) {
  Expected<ResultFile> file = ResultFile::open(file_, format(), false);
  ASSERT_TRUE(file.has_value());
  EXPECT_FALSE(file->has({"sum", "8"}));
  file->append({"sum", "8", "1.5"});
  EXPECT_TRUE(file->has({"sum", "8"}));
  EXPECT_EQ(text(), std::string(kHead) + "sum,8,1.5\n");  // on the disk at once
}

TEST_F(ResultFileTest, RefusesToOverwrite) {
  write("something");
  const Expected<ResultFile> file = ResultFile::open(file_, format(), false);
  EXPECT_THAT(texts(file.error()), HasSubstr("is there already; expected another file, or --resume to go on with it"));
  EXPECT_EQ(text(), "something");
}

// The last row was cut by the end of the run: it is measured again.
TEST_F(ResultFileTest, GoesOnAfterTheLastWholeRow) {
  write(std::string(kHead) + "sum,8,1.5\nsum,16,1.");
  Expected<ResultFile> file = ResultFile::open(file_, format(), true);
  ASSERT_TRUE(file.has_value()) << texts(file.error());
  EXPECT_TRUE(file->has({"sum", "8"}));
  EXPECT_FALSE(file->has({"sum", "16"}));
  file->append({"sum", "16", "1.75"});
  EXPECT_EQ(text(), std::string(kHead) + "sum,8,1.5\nsum,16,1.75\n");
  EXPECT_EQ(file->row_count(), 2U);
}

TEST_F(ResultFileTest, ResumingWhatIsNotThereStartsIt) {
  ASSERT_TRUE(ResultFile::open(file_, format(), true).has_value());
  EXPECT_EQ(text(), kHead);
}

TEST_F(ResultFileTest, NamesWhatKeepsItFromGoingOn) {
  const std::string content = "# device: B\n# date: yesterday\nop,bytes,us\nsum,8\n";
  write(content);
  const std::string errors = texts(ResultFile::open(file_, format(), true).error());
  EXPECT_THAT(errors, HasSubstr("was measured with \"device: B\", not with \"device: A\""));
  EXPECT_THAT(errors, HasSubstr("was not measured with \"NCCL: 1\""));
  EXPECT_THAT(errors, HasSubstr("line 4: has 2 fields; expected 3"));
  EXPECT_EQ(text(), content);
  write("# device: A\n# NCCL: 1\nop,us\n");
  EXPECT_THAT(texts(ResultFile::open(file_, format(), true).error()),
              HasSubstr("has the columns \"op,us\"; expected op,bytes,us"));
}

TEST_F(ResultFileTest, SaysWhenItCannotBeWritten) {
  const Expected<ResultFile> file = ResultFile::open((folder_ / "no" / "out.csv").string(), format(), false);
  EXPECT_THAT(texts(file.error()), HasSubstr("cannot be written"));
}

TEST(LoopSamples, OnlyCallsInTheCommonTimeCount) {
  const std::vector<CallSpan> a = {{0, 4}, {4, 8}, {8, 12}, {12, 16}};
  const std::vector<CallSpan> b = {{3, 6}, {6, 13}};
  const CallSpan common = common_time(a, b);
  EXPECT_EQ(common.start_ms, 3);
  EXPECT_EQ(common.end_ms, 13);
  EXPECT_THAT(durations_between(a, common.start_ms, common.end_ms), ElementsAre(4, 4));
  EXPECT_THAT(durations_between(b, common.start_ms, common.end_ms), ElementsAre(3, 7));
  const CallSpan none = common_time(a, {});
  EXPECT_THAT(durations_between(a, none.start_ms, none.end_ms), ElementsAre());
}

TEST(LoopSamples, Summary) {
  const SampleSummary even = summarize({4, 1, 2, 9});
  EXPECT_EQ(even.count, 4U);
  EXPECT_EQ(even.median, 3);
  EXPECT_EQ(even.min, 1);
  EXPECT_EQ(even.max, 9);
  EXPECT_EQ(even.mean, 4);
  EXPECT_EQ(summarize({5, 1, 2}).median, 2);
}

}  // namespace
}  // namespace longhaul
