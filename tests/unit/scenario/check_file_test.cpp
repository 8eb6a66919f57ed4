#include "sim/scenario/check_file.h"

#include <gmock/gmock.h>

#include <fstream>

#include "sim/core/data_files.h"
#include "tests/unit/scenario/study_fixture.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

CheckedFile check_text(const std::string& name, const std::string& text) {
  const std::string file = testing::TempDir() + name;
  std::ofstream(file) << text;
  CheckedFile checked = check_input_file(file, known());
  for (InputError& error : checked.errors) {
    if (error.file == file) error.file = name;
  }
  return checked;
}

TEST(CheckFile, EveryShippedFileIsValidAndKnown) {
  const std::vector<std::pair<DataKind, InputKind>> kinds = {{DataKind::kStudy, InputKind::kStudy},
                                                             {DataKind::kTopology, InputKind::kTopology},
                                                             {DataKind::kDevice, InputKind::kDevice},
                                                             {DataKind::kModel, InputKind::kModel},
                                                             {DataKind::kLengths, InputKind::kLengthTable}};
  for (const auto& [data, input] : kinds) {
    const std::vector<std::string> names = list_data_names(data);
    EXPECT_FALSE(names.empty()) << data_kind_name(data);
    for (const std::string& name : names) {
      const CheckedFile checked = check_input_file(*find_data_file(data, name), known_to_shipped());
      EXPECT_EQ(checked.kind, input) << name;
      EXPECT_THAT(texts(checked.errors), IsEmpty()) << name;
    }
  }
}

TEST(CheckFile, DocumentLists) {
  for (const auto& [name, text] :
       {std::pair{"l.txt", "# x\n5\n7\n"}, std::pair{"l.json", " [5, 7]"}, std::pair{"m.txt", "[5]"}}) {
    const CheckedFile checked = check_text(name, text);
    EXPECT_EQ(checked.kind, InputKind::kDocumentList) << name;
    EXPECT_THAT(texts(checked.errors), IsEmpty());
  }
  EXPECT_THAT(texts(check_text("l.txt", "5\nx\n").errors),
              ElementsAre("l.txt: line 2: is \"x\"; expected a document length from 1 to 1073741824"));
  EXPECT_THAT(texts(check_text("l.txt", "").errors),
              ElementsAre("l.txt: holds no lengths; expected one document length a line, or a JSON list"));
}

TEST(CheckFile, FaultsOfEachKind) {
  EXPECT_THAT(texts(check_text("t.csv", "a,b\n").errors),
              ElementsAre("t.csv: line 1: is \"a,b\"; expected the header \"quantile,tokens\" of a length table"));
  EXPECT_THAT(texts(check_text("m.json", R"({"hidden_size": 8})").errors).size(), 4u);
  EXPECT_EQ(check_text("m.json", R"({"hidden_size": 8})").kind, InputKind::kModel);
  const CheckedFile study = check_text("s.json", R"({"name": "x", "cases": []})");
  EXPECT_EQ(study.kind, InputKind::kStudy);
  EXPECT_THAT(texts(study.errors), ElementsAre("s.json: /schema: is missing; expected one of study/1",
                                               "s.json: /cases: is a list of 0; expected a list of cases"));
  EXPECT_FALSE(check_text("t.json", R"({"schema": "topology/1"})").errors.empty());
  EXPECT_FALSE(check_text("d.json", R"({"schema": "device/1"})").errors.empty());
}

// A cluster whose size the file says is built: what-ifs and ports are checked as where it is used.
TEST(CheckFile, ClustersOfKnownSizeAreBuilt) {
  const CheckedFile named = check_text("t.json", R"({"base": "dgx-h100-ndr", "nodes": 2, "what_if":
      [{"links": "n2.nic0", "down": true}, {"rail": 9, "scale_bandwidth": 0.5}]})");
  EXPECT_EQ(named.kind, InputKind::kTopology);
  EXPECT_THAT(texts(named.errors),
              ElementsAre("t.json: /what_if/0/links: \"n2.nic0\" names no link of this cluster; expected a name or a "
                          "pattern of its 64 links, such as \"n0.g0.nvl>\" or \"n1.nic7<\"; did you mean "
                          "\"n0.nic0>\"?",
                          "t.json: /what_if/1/rail: there is no rail 9; expected 0 to 7"));
  EXPECT_THAT(texts(check_text("t.json", R"({"base": "dgx-h100-ndr", "nodes": 65, "network": {"leaf_radix": 64,
      "spine_radix": 16}})")
                        .errors),
              ElementsAre("t.json: /nodes: is 520; expected at most 512 GPUs: the switches of dgx-h100-ndr have no "
                          "more ports (leaf_radix, spine_radix); or pods, larger switches, more spines"));
  // Of any number of nodes, or of more than are ever built: by the file alone.
  EXPECT_THAT(
      texts(
          check_text("t.json", R"({"base": "dgx-h100-ndr", "what_if": [{"links": "n2.nic0", "down": true}]})").errors),
      IsEmpty());
  EXPECT_THAT(texts(check_text("t.json", R"({"base": "dgx-h100-ndr", "nodes": 1048576})").errors), IsEmpty());
}

TEST(CheckFile, ContentThatSaysNothing) {
  EXPECT_THAT(texts(check_text("x.json", "{}").errors),
              ElementsAre("x.json: says neither by \"schema\" nor by the keys of a config.json what it is; expected a "
                          "study, topology, device or model"));
  EXPECT_THAT(
      texts(check_text("x.json", R"({"schema": "stduy/1"})").errors),
      ElementsAre("x.json: /schema: is \"stduy/1\"; expected \"study/1\", \"topology/1\" or \"device/1\"; did you "
                  "mean \"study/1\"?"));
  EXPECT_THAT(texts(check_text("x.json", "3").errors), ElementsAre("x.json: is 3; expected an object"));
  EXPECT_EQ(check_text("x.json", "{").errors.size(), 1u);
  EXPECT_THAT(texts(check_input_file("no/such", known()).errors),
              ElementsAre("no/such: cannot be read; expected a study, topology, device, model or length file"));
}

TEST(CheckFile, KindsHaveNames) {
  EXPECT_EQ(input_kind_name(InputKind::kStudy), "study");
  EXPECT_EQ(input_kind_name(InputKind::kDocumentList), "document list");
}

}  // namespace
}  // namespace longhaul
