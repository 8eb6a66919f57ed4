// Published figures as files: what is read, and every fault in them.
#include "validate/accuracy/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kTables =
    "table,gate,inputs,source,needs\nspeed,speedups,own,a paper,\nrest,none,whole,a paper,their documents\n";
const char* const kPublishedHeader = "table,what,study,case,strategy,over,quantity,published,needs\n";
const char* const kStudy = R"({"schema": "study/1", "name": "small", "topology": "dgx-h100-ndr", "gpus": 2,
  "model": {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 2, "num_hidden_layers": 1,
            "vocab_size": 100},
  "documents": {"explicit": [[64]]}, "training": {"scope": "attention", "recompute": "none", "zero_stage": 0},
  "strategies": ["allgather-cp", "per-doc-cp"]})";

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("longhaul-published-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    write("small.json", kStudy);
    write("context-parallel-tables.csv", kTables);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }
  Expected<PublishedFigures> read() const { return read_published(path_.string()); }

  // The faults without the folder's name.
  std::vector<std::string> faults() const {
    std::vector<std::string> out;
    const Expected<PublishedFigures> figures = read();
    if (figures) return out;
    for (const InputError& error : figures.error()) {
      std::string text = error.to_string();
      const std::string prefix = path_.string() + "/";
      for (auto at = text.find(prefix); at != std::string::npos; at = text.find(prefix)) text.erase(at, prefix.size());
      out.push_back(text);
    }
    return out;
  }
  std::vector<std::string> faults_of(const std::string& rows) const {
    write("context-parallel.csv", kPublishedHeader + rows);
    return faults();
  }

 private:
  std::filesystem::path path_;
};

TEST(Published, RowsAndStudiesAreRead) {
  const Folder folder;
  folder.write("context-parallel.csv", std::string("# facts\n") + kPublishedHeader +
                                           "speed,Per-Doc,small,small,per-doc-cp,allgather-cp,speedup,1.25,\n"
                                           "rest,ring,,,,,total_ms,3.5,\n"
                                           "speed,stripe,,,,,per_second,9.75,striped sharding\n");
  const auto figures = folder.read();
  ASSERT_TRUE(figures) << figures.error().front().to_string();
  ASSERT_EQ(figures->tables.size(), 2U);
  EXPECT_EQ(figures->tables[0].gate, PublishedGate::kSpeedups);
  EXPECT_EQ(figures->tables[1].needs, "their documents");
  ASSERT_EQ(figures->studies.size(), 1U);
  ASSERT_EQ(figures->numbers.size(), 3U);
  const PublishedNumber& first = figures->numbers[0];
  EXPECT_EQ(first.table, 0U);
  EXPECT_EQ(first.study, 0);
  EXPECT_EQ(first.what, "Per-Doc");
  EXPECT_EQ(first.case_name, "small");
  EXPECT_EQ(first.strategy, "per-doc-cp");
  EXPECT_EQ(first.over, "allgather-cp");
  EXPECT_EQ(first.quantity, PublishedQuantity::kSpeedup);
  EXPECT_EQ(first.published, 1.25);
  EXPECT_EQ(figures->numbers[1].study, -1);
  EXPECT_EQ(figures->numbers[1].table, 1U);
  EXPECT_EQ(figures->numbers[2].needs, "striped sharding");
}

TEST(Published, NamesHaveTheirEnumerators) {
  EXPECT_EQ(published_gates()[static_cast<std::size_t>(PublishedGate::kRates)], "rates");
  EXPECT_EQ(published_gates().size(), static_cast<std::size_t>(PublishedGate::kRates) + 1);
  EXPECT_EQ(published_quantities()[static_cast<std::size_t>(PublishedQuantity::kCopiesMs)], "copies_ms");
  EXPECT_EQ(published_quantities()[static_cast<std::size_t>(PublishedQuantity::kPerSecond)], "per_second");
  EXPECT_EQ(published_quantities()[static_cast<std::size_t>(PublishedQuantity::kTflopsBackward)], "tflops_backward");
  EXPECT_EQ(published_quantities().size(), static_cast<std::size_t>(PublishedQuantity::kTflopsBackward) + 1);
}

TEST(PublishedErrors, FilesThatAreNotThere) {
  const Folder folder;
  folder.remove("context-parallel-tables.csv");
  const std::vector<std::string> faults = folder.faults();
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_THAT(faults[0], HasSubstr("context-parallel-tables.csv"));
  EXPECT_THAT(faults[0], HasSubstr("expected a table of published figures"));
  EXPECT_THAT(faults[1], HasSubstr("context-parallel.csv"));
}

TEST(PublishedErrors, Columns) {
  const Folder folder;
  folder.write("context-parallel-tables.csv", "table,gate,source\n");
  folder.write("context-parallel.csv", kPublishedHeader);
  EXPECT_THAT(folder.faults(), ElementsAre("context-parallel-tables.csv: has the columns table,gate,source; expected "
                                           "table,gate,inputs,source,needs"));
}

TEST(PublishedErrors, Tables) {
  const Folder folder;
  folder.write("context-parallel-tables.csv", "table,gate,inputs,source,needs\na,part,own,x,\na,none,all,,\n");
  EXPECT_THAT(folder.faults_of(""),
              ElementsAre("context-parallel-tables.csv: line 2: unknown gate \"part\"; expected one of none, parts, "
                          "speedups, each, rates; did you mean \"parts\"?",
                          "context-parallel-tables.csv: line 3: table \"a\" stands twice; expected each once",
                          "context-parallel-tables.csv: line 3: unknown inputs \"all\"; expected one of own, whole",
                          "context-parallel-tables.csv: line 3: has no source; expected where the figures stand"));
}

TEST(PublishedErrors, Numbers) {
  const Folder folder;
  const std::vector<std::string> faults = folder.faults_of(
      "sped,a,,,,,total,0,x\nrest,a,,,,,total_ms,1ms,\nrest,a,,,,,total_ms,-2,\nrest,a,,,,,total_ms,,\n");
  ASSERT_EQ(faults.size(), 6U);
  EXPECT_EQ(
      faults[0],
      "context-parallel.csv: line 2: unknown table \"sped\"; expected one of speed, rest; did you mean \"speed\"?");
  EXPECT_THAT(faults[1], HasSubstr("line 2: unknown quantity \"total\"; expected one of total_ms, forward_ms, "));
  EXPECT_THAT(faults[1], HasSubstr("did you mean \"total_ms\"?"));
  EXPECT_EQ(faults[2], "context-parallel.csv: line 2: published is \"0\"; expected a number above 0");
  EXPECT_EQ(faults[3], "context-parallel.csv: line 3: published is \"1ms\"; expected a number above 0");
  EXPECT_EQ(faults[4], "context-parallel.csv: line 4: published is \"-2\"; expected a number above 0");
  EXPECT_EQ(faults[5], "context-parallel.csv: line 5: published is \"\"; expected a number above 0");
}

TEST(PublishedErrors, RowsWithoutStudy) {
  const Folder folder;
  EXPECT_THAT(folder.faults_of("rest,a,,small,,,total_ms,1,\nspeed,a,,,,,total_ms,1,\n"),
              ElementsAre("context-parallel.csv: line 2: names a case, a strategy or a baseline without a study; "
                          "expected a study, or none of them",
                          "context-parallel.csv: line 3: has no study; expected a study, or what would be needed to "
                          "reproduce it"));
}

TEST(PublishedErrors, RowsWithStudy) {
  const Folder folder;
  EXPECT_THAT(
      folder.faults_of("rest,a,small,smal,per-doc-cp,,total_ms,1,\n"
                       "rest,a,small,small,per-doc,,total_ms,1,\n"
                       "speed,a,small,small,per-doc-cp,,speedup,1,\n"
                       "speed,a,small,small,per-doc-cp,allgather-cp,total_ms,1,\n"
                       "speed,a,small,small,per-doc-cp,ring-cp,speedup,1,\n"),
      ElementsAre(
          "context-parallel.csv: line 2: unknown case \"smal\"; expected one of small; did you mean \"small\"?",
          "context-parallel.csv: line 3: unknown strategy \"per-doc\"; expected one of allgather-cp, "
          "per-doc-cp; did you mean \"per-doc-cp\"?",
          "context-parallel.csv: line 4: is a speed-up over nothing; expected a baseline for speed-ups, and "
          "only for them",
          "context-parallel.csv: line 5: names a baseline of something that is no speed-up; expected a baseline "
          "for speed-ups, and only for them",
          "context-parallel.csv: line 6: unknown strategy \"ring-cp\"; expected one of allgather-cp, "
          "per-doc-cp"));
}

TEST(PublishedErrors, AFaultyStudyIsToldOnce) {
  const Folder folder;
  const std::vector<std::string> faults =
      folder.faults_of("rest,a,gone,small,per-doc-cp,,total_ms,1,\nrest,a,gone,small,allgather-cp,,total_ms,1,\n");
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_THAT(faults[0], HasSubstr("gone.json"));
}

}  // namespace
}  // namespace longhaul
