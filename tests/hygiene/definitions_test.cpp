// The scanner of definitions against code that has them, hides them or only looks like them, and the rule of one
// definition against planted twins.

#include "tests/hygiene/definitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::hygiene {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names(const std::string& code) {
  std::vector<std::string> result;
  for (const Definition& definition : external_definitions({"a.h", code})) result.push_back(definition.name);
  return result;
}

std::vector<std::string> twins(const std::vector<SourceFile>& files) {
  std::vector<std::string> result;
  for (const Finding& finding : check_one_definition(files)) result.push_back(finding.to_string());
  return result;
}

TEST(Definitions, TypesOfEveryKind) {
  EXPECT_THAT(names("namespace a {\nstruct S { int x; };\nclass C final : public S {};\nunion U {};\n"
                    "enum class E : int { kOne };\nenum F { kTwo };\n"
                    "template <typename T>\nconcept Sized = requires(T t) { t.size(); };\n}\n"),
              ElementsAre("a::S", "a::C", "a::U", "a::E", "a::F", "a::Sized"));
}

TEST(Definitions, ADeclarationIsNone) {
  EXPECT_THAT(names("struct S;\nenum class E : int;\nint f(int x);\nextern int g;\nusing T = int;\nclass C;\n"
                    "inline constexpr int f2(const S& s = {});\nstatic_assert(sizeof(int) == 4);\n"),
              IsEmpty());
}

TEST(Definitions, ASpecialisationCarriesItsArguments) {
  EXPECT_THAT(names("template <>\nstruct std::hash<a::Box> { int x; };\ntemplate <class T> struct H<T*> {};\n"),
              ElementsAre("std::hash<a::Box>", "H<T*>"));
}

TEST(Definitions, NestedNamespacesAreOneName) {
  EXPECT_THAT(names("namespace a::b {\nnamespace c { struct S {}; }\nstruct T {};\n}\nstruct U {};\n"),
              ElementsAre("a::b::c::S", "a::b::T", "U"));
}

TEST(Definitions, AnonymousNamespacesAndStaticFunctionsAreFree) {
  EXPECT_THAT(names("namespace a {\nnamespace {\nstruct S {};\nnamespace b { int f() { return 1; } }\n}\n"
                    "static int g() { return 2; }\nint h() { return 3; }\n}\n"),
              ElementsAre("a::h()"));
}

TEST(Definitions, AFunctionIsNamedByItsParametersTypes) {
  EXPECT_THAT(names("int f(int x, const std::vector<int>& values, std::map<int, int> m = {{1, 2}}) { return {}; }"),
              ElementsAre("f(int, const std::vector<int>&, std::map<int,int>)"));
  EXPECT_EQ(names("int f(const Box& box) {}"), names("int f(const Box&) {}"));
  EXPECT_EQ(names("int f(std::string name) {}"), names("int f(std::string) {}"));
  EXPECT_NE(names("int f(const Box& box) {}"), names("int f(Box& box) {}"));
  EXPECT_NE(names("int f(const Box& box) {}"), names("int f(const Bag& box) {}"));
}

TEST(Definitions, TemplatesAttributesAndLaunchBoundsSayNothingAboutTheName) {
  EXPECT_THAT(names("template <int kRows, class T = Foo<3>>\n__global__ void __launch_bounds__(128, 2) k(T x) {}\n"
                    "[[nodiscard]] inline auto g(int x) noexcept(true) -> int { return x; }\n"
                    "template <class T>\n  requires(sizeof(T) > 4)\nvoid h(T) {}\n"),
              ElementsAre("k(T)", "g(int)", "h(T)"));
}

TEST(Definitions, Operators) {
  EXPECT_THAT(names("bool operator==(const A& a, const A& b) { return true; }\nA operator+(A a, A b) { return a; }"),
              ElementsAre("operator==(const A&, const A&)", "operator+(A, A)"));
}

TEST(Definitions, MembersAndBodiesAreNotLookedInto) {
  EXPECT_THAT(names("S::S(int x) : a_{x}, b_(2), c_{{1}} { struct Local {}; }\nint S::f() const { return 1; }\n"
                    "struct S { struct Inner {}; int f() { return 1; } };\nvoid g() { struct Local {}; }\n"),
              ElementsAre("S", "g()"));
}

TEST(Definitions, OfVariablesTheInlineOnes) {
  EXPECT_THAT(names("inline constexpr double kA = 1.5;\ninline constexpr std::array<int, 2> kB{1, 2};\n"
                    "constexpr int kC = 3;\nconst auto kD = [] { return 1; }();\ninline const char* kE[] = {\"a\"};\n"),
              ElementsAre("kA", "kB", "kE"));
}

TEST(Definitions, MacrosCommentsAndStringsAreNotCode) {
  EXPECT_THAT(names("#define X(name) \\\n  struct name {}; \\\n  struct Other {\n// struct S {};\n"
                    "const char* s = \"struct T {};\";\n#if A\nstruct U {};\n#endif\n"),
              ElementsAre("U"));
}

TEST(Definitions, KnowTheirLine) {
  const auto found = external_definitions({"a.h", "// x\n\nnamespace a {\ntemplate <class T>\nstruct\nS {};\n}\n"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].line, 6);
  EXPECT_EQ(found[0].path, "a.h");
}

TEST(OneDefinition, TwinsOfTwoRoomsAreFound) {
  const SourceFile a{"sim/schedule/a.h", "namespace longhaul {\nstruct Region {\n  int x;\n};\n}\n"};
  const SourceFile b{"validate/cpu/b.h", "namespace longhaul {\n\nclass Region {\n  double y;\n};\n}\n"};
  EXPECT_THAT(twins({a, b}), ElementsAre("validate/cpu/b.h:3: longhaul::Region is defined in sim/schedule/a.h:2 as "
                                         "well: one name, one definition"));
}

TEST(OneDefinition, FunctionsInSourcesCountAsWell) {
  const SourceFile a{"sim/core/a.cpp", "int rows(const Box& box) { return 1; }\n"};
  const SourceFile b{"kernels/gemm/b.cu", "int rows(const Box& other) { return 2; }\n"};
  const SourceFile overload{"reports/c.cpp", "int rows(int count) { return 2; }\n"};
  EXPECT_THAT(twins({a, b, overload}), testing::SizeIs(1));
  EXPECT_THAT(twins({a, overload}), IsEmpty());
}

TEST(OneDefinition, WhatStaysInItsFileIsNoTwin) {
  const SourceFile a{"sim/core/a.cpp", "struct S {};\nint main() {}\n"};
  const SourceFile b{"sim/core/b.cpp", "namespace { struct S {}; }\nint main() {}\n"};
  const SourceFile c{"sim/core/c.cpp", "namespace other { struct S {}; }\n"};
  const SourceFile test{"tests/unit/core/d.cpp", "struct S {};\n"};
  EXPECT_THAT(twins({a, b, c, test}), IsEmpty());
}

}  // namespace
}  // namespace longhaul::hygiene
