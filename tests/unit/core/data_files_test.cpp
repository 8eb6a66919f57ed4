#include "sim/core/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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

TEST_F(DataFiles, AKindWithoutNamesOffersAPath) {
  Errors errors;
  EXPECT_EQ(resolve_data_file(DataKind::kStudy, "s", "study.json", "/x", errors), std::nullopt);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].to_string(), "study.json: /x: unknown study \"s\"; expected a path");
}

TEST_F(DataFiles, AMissingDataFolderIsNamedWithItsVariable) {
  const std::string remedy =
      "; expected the environment variable LONGHAUL_DATA to name the folder that holds topologies/ and workloads/";
  EXPECT_EQ(missing_data_folder("study.json", "/model"), std::nullopt);
  setenv("LONGHAUL_DATA", "/no/such/folder", 1);
  Errors errors;
  EXPECT_EQ(resolve_data_file(DataKind::kModel, "alpha", "study.json", "/model", errors), std::nullopt);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].to_string(), "study.json: /model: the data folder /no/such/folder is missing" + remedy);
  setenv("LONGHAUL_DATA", (root_ + "/workloads").c_str(), 1);
  EXPECT_EQ(
      missing_data_folder("study.json", "/model")->to_string(),
      "study.json: /model: the data folder " + root_ + "/workloads holds neither topologies/ nor workloads/" + remedy);
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

std::string read_fault(const std::string& file) {
  const Expected<std::string> text = read_input_file(file, "a model");
  return text ? "" : text.error().at(0).to_string();
}

TEST(ReadInputFile, OnlyRegularFilesThatAreThere) {
  EXPECT_EQ(read_fault("/dev/zero"), "/dev/zero: is not a regular file; expected a model");
  EXPECT_EQ(read_fault("/"), "/: is not a regular file; expected a model");
  EXPECT_EQ(read_fault("/no/such"), "/no/such: cannot be read; expected a model");
  const std::string pipe = testing::TempDir() + "longhaul-pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_fault(pipe), pipe + ": is not a regular file; expected a model");
  std::filesystem::remove(pipe);
}

// A sparse file: no block of it is written.
TEST(ReadInputFile, AtMost256MiB) {
  const std::string file = testing::TempDir() + "longhaul-large";
  std::ofstream(file).close();
  std::filesystem::resize_file(file, kMaxInputBytes + 1);
  EXPECT_EQ(read_fault(file), file + ": is too large; expected at most 256 MiB");
  std::filesystem::resize_file(file, 3 << 20);
  EXPECT_EQ(read_input_file(file, "")->size(), std::size_t{3} << 20);
  std::filesystem::remove(file);
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
