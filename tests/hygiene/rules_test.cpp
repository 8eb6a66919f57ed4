// Each rule against planted faults, and against the nearest text that is right.

#include "tests/hygiene/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::hygiene {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> texts(const Findings& findings) {
  std::vector<std::string> result;
  for (const Finding& finding : findings) result.push_back(finding.to_string());
  return result;
}

std::vector<std::string> includes(const std::string& path, const std::string& included) {
  return texts(check_includes({path, "// x\n#include \"" + included + "\"\n"}));
}

TEST(IncludeOrder, AFolderIncludesItselfAndWhatIsAbove) {
  EXPECT_THAT(includes("sim/core/json.cpp", "sim/core/json.h"), IsEmpty());
  EXPECT_THAT(includes("sim/cluster/routes.cpp", "sim/core/json.h"), IsEmpty());
  EXPECT_THAT(includes("validate/cpu/attention.cpp", "sim/schedule/op.h"), IsEmpty());
  EXPECT_THAT(includes("sim/cli/main.cpp", "reports/page.h"), IsEmpty());
}

TEST(IncludeOrder, AFolderDoesNotIncludeWhatIsBelow) {
  EXPECT_THAT(includes("sim/core/json.cpp", "sim/cluster/topology.h"),
              ElementsAre("sim/core/json.cpp:2: sim/core may not include sim/cluster, which is listed below it"));
  EXPECT_THAT(includes("sim/study/run.cpp", "kernels/gemm/gemm.h"), ElementsAre(HasSubstr("listed below it")));
  EXPECT_THAT(includes("validate/cpu/run.h", "reports/page.h"), ElementsAre(HasSubstr("listed below it")));
  EXPECT_THAT(includes("reports/page.cpp", "sim/cli/options.h"), ElementsAre(HasSubstr("listed below it")));
}

TEST(IncludeOrder, EveryPairOfRoomsIsAllowedInOneDirectionOnly) {
  for (std::size_t from = 0; from < rooms().size(); ++from) {
    for (std::size_t to = from + 1; to < rooms().size(); ++to) {
      EXPECT_THAT(includes(rooms()[from] + "/a.h", rooms()[to] + "/b.h"), testing::SizeIs(1))
          << rooms()[from] << " -> " << rooms()[to];
    }
  }
}

TEST(IncludeOrder, AStrategySeesOfTheCostModelOnlyTheEstimate) {
  EXPECT_THAT(includes("sim/strategies/flashcp.cpp", "sim/cost/estimate.h"), IsEmpty());
  EXPECT_THAT(includes("sim/strategies/flashcp.cpp", "sim/network/alone.h"), IsEmpty());
  EXPECT_THAT(includes("sim/strategies/dpp/plan.cpp", "sim/cost/calibration.h"),
              ElementsAre(HasSubstr("sees only sim/cost/estimate.h")));
}

TEST(IncludeOrder, TheExecutorSeesNoStrategyAndNoScenario) {
  EXPECT_THAT(includes("sim/executor/executor.cpp", "sim/schedule/program.h"), IsEmpty());
  EXPECT_THAT(includes("sim/executor/executor.cpp", "sim/strategies/registry.h"),
              ElementsAre(HasSubstr("never asks which strategy")));
  EXPECT_THAT(includes("sim/executor/executor.cpp", "sim/scenario/study.h"),
              ElementsAre(HasSubstr("never asks which strategy")));
}

TEST(IncludeOrder, QuotedIncludesAreWrittenFromTheRoot) {
  EXPECT_THAT(includes("sim/core/json.cpp", "json.h"), ElementsAre(HasSubstr("not written from the root")));
  EXPECT_THAT(includes("sim/core/json.cpp", "../core/json.h"), ElementsAre(HasSubstr("not written from the root")));
  EXPECT_THAT(texts(check_includes({"sim/core/json.cpp", "#include <json.h>\n"})), IsEmpty());
}

TEST(IncludeOrder, TestsSeeEverythingButNobodySeesTests) {
  EXPECT_THAT(includes("tests/unit/core/json_test.cpp", "sim/cli/options.h"), IsEmpty());
  EXPECT_THAT(includes("tests/unit/core/json_test.cpp", "tests/unit/fake.h"), IsEmpty());
  EXPECT_THAT(includes("sim/core/json.cpp", "tests/unit/fake.h"), ElementsAre(HasSubstr("a test's header")));
}

TEST(Layout, LinesOf120ColumnsPassAnd121Fail) {
  EXPECT_THAT(texts(check_layout({"a.cpp", std::string(120, 'x') + "\n"})), IsEmpty());
  EXPECT_THAT(texts(check_layout({"a.cpp", std::string(121, 'x') + "\n"})),
              ElementsAre("a.cpp:1: 121 columns, at most 120"));
}

TEST(Layout, ACharacterOfTwoBytesTakesOneColumn) {
  std::string line;
  for (int i = 0; i < 120; ++i) line += "\u00b5";
  EXPECT_THAT(texts(check_layout({"a.cpp", line + "\n"})), IsEmpty());
}

TEST(Layout, FilesOf600LinesPassAnd601Fail) {
  const std::string lines(600, '\n');
  EXPECT_THAT(texts(check_layout({"a.cpp", lines})), IsEmpty());
  EXPECT_THAT(texts(check_layout({"a.cpp", lines + "\n"})), ElementsAre("a.cpp:0: 601 lines, at most 600"));
}

TEST(Layout, TabsTrailingBlanksAndAMissingNewlineAreFound) {
  EXPECT_THAT(
      texts(check_layout({"a.cpp", "x;\n\ty;\nz; \nend"})),
      ElementsAre("a.cpp:2: a tab", "a.cpp:3: a blank at the end of the line", "a.cpp:0: no newline at the end"));
}

TEST(Header, OpensWithACommentAndIsReadOnce) {
  EXPECT_THAT(texts(check_header({"a.h", "// Holds a.\n#pragma once\n"})), IsEmpty());
  EXPECT_THAT(texts(check_header({"a.h", "#pragma once\n"})), ElementsAre(HasSubstr("opens with")));
  EXPECT_THAT(texts(check_header({"a.h", "// Holds a; has no #pragma once\nint a;\n"})),
              ElementsAre("a.h:0: no #pragma once"));
}

std::vector<std::string> determinism(const std::string& path, const std::string& line) {
  return texts(check_determinism({path, line + "\n"}));
}

TEST(Determinism, UnorderedContainersNeedAReason) {
  EXPECT_THAT(determinism("sim/core/a.h", "std::unordered_map<int, int> m;"), ElementsAre(HasSubstr("unordered")));
  EXPECT_THAT(determinism("sim/core/a.h", "#include <unordered_set>"), IsEmpty());  // its use is what counts
  EXPECT_THAT(determinism("sim/core/a.h", "std::unordered_multimap<int, int> m;"), testing::SizeIs(1));
  EXPECT_THAT(determinism("sim/core/a.h", "std::unordered_map<int, int> m;  // unordered: only looked up"), IsEmpty());
  EXPECT_THAT(determinism("sim/core/a.h", "std::unordered_map<int, int> m;  // unordered: "), testing::SizeIs(1));
  EXPECT_THAT(determinism("sim/core/a.h", "// an unordered_map would do"), IsEmpty());
  EXPECT_THAT(determinism("validate/cpu/a.h", "std::unordered_map<int, int> m;"), IsEmpty());
}

TEST(Determinism, PointersAreNoKeys) {
  EXPECT_THAT(determinism("sim/core/a.h", "std::map<Op*, int> m;"), ElementsAre(HasSubstr("pointer as a key")));
  EXPECT_THAT(determinism("sim/core/a.h", "std::set<const sim::Op*> m;"), ElementsAre(HasSubstr("pointer as a key")));
  EXPECT_THAT(determinism("sim/core/a.h", "std::map<int, Op*> m;"), IsEmpty());
}

TEST(Determinism, ClocksBelongToTheCommand) {
  const std::string line = "const auto now = std::chrono::steady_clock::now();";
  EXPECT_THAT(determinism("sim/executor/a.cpp", line), ElementsAre(HasSubstr("a clock")));
  EXPECT_THAT(determinism("sim/cli/progress.cpp", line), IsEmpty());
}

TEST(Determinism, StdDistributionsDifferBetweenLibraries) {
  EXPECT_THAT(determinism("sim/workload/a.cpp", "std::normal_distribution<double> d(0, 1);"),
              ElementsAre(HasSubstr("a std distribution")));
}

TEST(Determinism, SimulatedTimeKnowsNoExponentials) {
  EXPECT_THAT(determinism("sim/cost/a.cpp", "return std::pow(x, 0.5);"), ElementsAre(HasSubstr("+ - * / sqrt")));
  EXPECT_THAT(determinism("sim/network/a.cpp", "return std::log2(n);"), testing::SizeIs(1));
  EXPECT_THAT(determinism("sim/cost/a.cpp", "return std::sqrt(x);"), IsEmpty());
  EXPECT_THAT(determinism("sim/workload/a.cpp", "return std::pow(x, 0.5);"), IsEmpty());
}

TEST(Exit, OnlyWhereMainIs) {
  EXPECT_THAT(texts(check_exit({"a.cpp", "void f() {\n  std::exit(1);\n}\n"})),
              ElementsAre("a.cpp:2: exit() outside the file of main()"));
  EXPECT_THAT(texts(check_exit({"a.cpp", "void f() { _exit(1); }\n"})), testing::SizeIs(1));
  EXPECT_THAT(texts(check_exit({"a.cpp", "int main(int argc, char** argv) { std::exit(1); }\n"})), IsEmpty());
  EXPECT_THAT(texts(check_exit({"a.cpp", "// exit(1)\nconst char* s = \"exit(1)\"; on_exit_code(2);\n"})), IsEmpty());
}

TEST(MachinePaths, AreFoundInAnyText) {
  // In two pieces, so that this file passes its own rule.
  EXPECT_THAT(texts(check_machine_paths({"a.md",
                                         "see /"
                                         "work/main/x\n"})),
              ElementsAre("a.md:1: a path of somebody's machine"));
  EXPECT_THAT(texts(check_machine_paths({"a.md",
                                         "/"
                                         "home/ann/x\n"})),
              testing::SizeIs(1));
  EXPECT_THAT(texts(check_machine_paths({"a.md",
                                         "flops/"
                                         "work/s and ../"
                                         "work/x and /usr/lib\n"})),
              IsEmpty());
}

TEST(Registration, ATestIsNamedByABuildFileAboveIt) {
  const SourceFile build{"tests/unit/core/meson.build", "executable('u', 'a_test.cpp', 'deep/b_test.cpp')\n"};
  const SourceFile a{"tests/unit/core/a_test.cpp", ""};
  const SourceFile b{"tests/unit/core/deep/b_test.cpp", ""};
  const SourceFile c{"tests/unit/core/c_test.cpp", ""};
  EXPECT_THAT(texts(check_tests_registered({build, a, b})), IsEmpty());
  EXPECT_THAT(texts(check_tests_registered({build, a, b, c})),
              ElementsAre("tests/unit/core/c_test.cpp:0: a test that no meson.build names: it never runs"));
}

TEST(Registration, HoldsForEverySourceUnderTests) {
  EXPECT_THAT(texts(check_tests_registered({{"tests/oracle/core/a_oracle.cpp", ""}})), testing::SizeIs(1));
  EXPECT_THAT(texts(check_tests_registered({{"sim/core/a_test.cpp", ""}})), testing::SizeIs(1));
  EXPECT_THAT(texts(check_tests_registered({{"sim/core/a.cpp", ""}, {"tests/unit/a.h", ""}})), IsEmpty());
}

TEST(Registration, ANameWithinAnotherNameDoesNotCount) {
  const SourceFile build{"tests/unit/core/meson.build", "executable('u', 'other_a_test.cpp')\n"};
  EXPECT_THAT(texts(check_tests_registered({build, {"tests/unit/core/a_test.cpp", ""}})), testing::SizeIs(1));
}

TEST(Blanking, KeepsCodeAndLinesOnly) {
  EXPECT_EQ(blank_comments_and_strings("a /* b\nc */ d // e\nf"), "a     \n     d     \nf");
  EXPECT_EQ(blank_comments_and_strings("x(\"a\\\"b\") y"), "x(      ) y");
  EXPECT_EQ(blank_comments_and_strings("n = 1'000'000; c = '\"'; d"), "n = 1'000'000; c =    ; d");
  EXPECT_EQ(blank_comments_and_strings("R\"re(a\"b)re\" z"), std::string(12, ' ') + " z");
}

}  // namespace
}  // namespace longhaul::hygiene
