// The rules held against the real source tree.

#include "tests/hygiene/source_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/hygiene/definitions.h"

namespace longhaul::hygiene {
namespace {

using Rule = Findings (*)(const SourceFile&);

// Every finding of `rule` over the files that `applies` picks, one a line; the number of files read through `count`.
std::string findings_of(Rule rule, bool (*applies)(const SourceFile&), int* count) {
  std::string text;
  *count = 0;
  for (const SourceFile& file : source_tree()) {
    if (!applies(file)) continue;
    ++*count;
    for (const Finding& finding : rule(file)) text += finding.to_string() + "\n";
  }
  return text;
}

void expect_clean(Rule rule, bool (*applies)(const SourceFile&)) {
  int count = 0;
  EXPECT_EQ(findings_of(rule, applies, &count), "");
  EXPECT_GT(count, 10) << "the rule found hardly a file to read: is the source tree complete?";
}

TEST(SourceTree, HoldsTheRoomsThatTheDesignDraws) {
  for (const std::string& room : rooms()) {
    EXPECT_TRUE(std::any_of(source_tree().begin(), source_tree().end(), [&](const SourceFile& file) {
      return file.path == room + "/meson.build";
    })) << room;
  }
}

TEST(SourceTree, RefusesAnotherFolder) { EXPECT_THROW(read_source_tree("/usr"), std::runtime_error); }

TEST(SourceTree, IncludesFollowTheOrderOfTheRooms) { expect_clean(check_includes, is_cpp); }

TEST(SourceTree, LinesAndFilesAreShort) { expect_clean(check_layout, is_code); }

TEST(SourceTree, HeadersOpenWithAComment) { expect_clean(check_header, is_header); }

TEST(SourceTree, NothingMakesAResultDependOnTheMachine) { expect_clean(check_determinism, is_cpp); }

TEST(SourceTree, OnlyMainExits) { expect_clean(check_exit, is_cpp); }

TEST(SourceTree, NamesNoMachine) {
  expect_clean(check_machine_paths, [](const SourceFile&) { return true; });
}

TEST(SourceTree, DefinesEveryNameOnce) {
  std::string text;
  for (const Finding& finding : check_one_definition(source_tree())) text += finding.to_string() + "\n";
  EXPECT_EQ(text, "");
}

TEST(SourceTree, TheScannerSeesItsDefinitions) {
  // A scanner that stops at code that it does not understand would find no twins behind it.
  std::size_t types = 0, functions = 0;
  for (const SourceFile& file : source_tree()) {
    if (!is_cpp(file) || !file.path.starts_with("sim/")) continue;
    for (const Definition& definition : external_definitions(file)) {
      types += definition.kind == Definition::Kind::kType ? 1 : 0;
      functions += definition.kind == Definition::Kind::kFunction ? 1 : 0;
    }
  }
  EXPECT_GT(types, 300U);
  EXPECT_GT(functions, 400U);
}

TEST(SourceTree, EveryTestIsRegistered) {
  std::string text;
  for (const Finding& finding : check_tests_registered(source_tree())) text += finding.to_string() + "\n";
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace longhaul::hygiene
