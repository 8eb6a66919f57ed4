#include "sim/core/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A data directory of its own, chosen through the environment as a user would.
class DataFiles : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "longhaul-data";
    std::filesystem::create_directories(root_ + "/workloads/models");
    std::filesystem::create_directories(root_ + "/workloads/models/folder.json");
    for (const char* name : {"beta.json", "alpha.json", "model.schema.json", "notes.txt"}) {
      std::ofstream(root_ + "/workloads/models/" + name) << "{}";
    }
    setenv("LONGHAUL_DATA", root_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LONGHAUL_DATA");
    std::filesystem::remove_all(root_);
  }
  std::string root_;
};

TEST_F(DataFiles, EnvironmentChoosesTheDirectory) { EXPECT_EQ(data_directory(), root_); }

TEST_F(DataFiles, FindsFilesByName) {
  EXPECT_EQ(find_data_file(DataKind::kModel, "alpha"), root_ + "/workloads/models/alpha.json");
  for (const char* name : {"gamma", "", "../models/alpha", "model.schema", "folder", "alpha.json"}) {
    EXPECT_EQ(find_data_file(DataKind::kModel, name), std::nullopt) << name;
  }
}

TEST_F(DataFiles, ListsNamesSorted) {
  EXPECT_THAT(list_data_names(DataKind::kModel), ElementsAre("alpha", "beta"));
  EXPECT_THAT(list_data_names(DataKind::kTopology), IsEmpty());
}

TEST_F(DataFiles, UnknownNameListsTheShippedOnes) {
  Errors errors;
  EXPECT_EQ(resolve_data_file(DataKind::kModel, "alfa", "study.json", "/model", errors), std::nullopt);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(
      errors[0].to_string(),
      "study.json: /model: unknown model \"alfa\"; expected one of alpha, beta, or a path; did you mean \"alpha\"?");
}

TEST_F(DataFiles, PathsAreReturnedUnopened) {
  Errors errors;
  EXPECT_EQ(resolve_data_file(DataKind::kModel, "mine.json", "studies/s.json", "/model", errors), "studies/mine.json");
  EXPECT_THAT(errors, IsEmpty());
}

TEST(DataDirectory, DefaultsToTheSourceTree) {
  unsetenv("LONGHAUL_DATA");
  EXPECT_TRUE(std::filesystem::exists(data_directory() + "/workloads/models/llama3-8b.json"));
  setenv("LONGHAUL_DATA", "", 1);
  EXPECT_TRUE(std::filesystem::exists(data_directory() + "/workloads/models/llama3-8b.json"));
  unsetenv("LONGHAUL_DATA");
}

TEST(DataPaths, SlashOrEndingMakesAPath) {
  EXPECT_TRUE(is_data_path(DataKind::kModel, "a/b"));
  EXPECT_TRUE(is_data_path(DataKind::kModel, "b.json"));
  EXPECT_TRUE(is_data_path(DataKind::kLengths, "b.csv"));
  EXPECT_FALSE(is_data_path(DataKind::kLengths, "wlb"));
  EXPECT_FALSE(is_data_path(DataKind::kModel, "llama3.2-1b"));
}

TEST(DataPaths, RelativeToTheNamingFile) {
  EXPECT_EQ(relative_to_file("m.json", "a/b/study.json"), "a/b/m.json");
  EXPECT_EQ(relative_to_file("../m.json", "a/b/study.json"), "a/m.json");
  EXPECT_EQ(relative_to_file("m.json", "study.json"), "m.json");
  EXPECT_EQ(relative_to_file("/m.json", "a/study.json"), "/m.json");
}

TEST(ReadTextFile, TextEmptyAndUnreadable) {
  const std::string file = testing::TempDir() + "text.txt";
  std::ofstream(file) << "a\r\nb";
  EXPECT_EQ(read_text_file(file), "a\r\nb");
  std::ofstream(file, std::ios::trunc).close();
  EXPECT_EQ(read_text_file(file), "");
  EXPECT_EQ(read_text_file(file + ".none"), std::nullopt);
  EXPECT_EQ(read_text_file(testing::TempDir()), std::nullopt);
}

}  // namespace
}  // namespace longhaul
