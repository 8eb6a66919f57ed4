#include "sim/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/printable.h"

namespace longhaul {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> faults(std::string_view text) {
  std::vector<std::string> found;
  const Expected<Json> parsed = parse_json(text, "f.json");
  if (parsed) return found;
  for (const InputError& error : parsed.error()) found.push_back(error.to_string());
  return found;
}

TEST(ParseJson, NamesThePathOfADuplicateKey) {
  EXPECT_THAT(faults(R"({"a": 1, "b": {"a": 2}, "a": 3})"), ElementsAre("f.json: /a: stands twice in one object"));
  EXPECT_THAT(faults(R"({"l": [1, [2], {"x": {}, "y": 1, "y": 2}], "m": {"q/r": 1, "q/r": 2}})"),
              ElementsAre("f.json: /l/2/y: stands twice in one object", "f.json: /m/q~1r: stands twice in one object"));
  EXPECT_THAT(faults(R"({"l": [{"a": 1}, {"a": 1}], "m": {"a": [{"l": 1}]}})"), IsEmpty());
}

TEST(ParseJson, NamesLineAndColumnOfASyntaxError) {
  EXPECT_THAT(faults("{\n  \"a\": ,\n}"),
              ElementsAre(AllOf(StartsWith("f.json: parse error at line 2, column 8: syntax error"),
                                HasSubstr("unexpected ','"), Not(HasSubstr("[json")))));
  EXPECT_THAT(faults(""), ElementsAre(StartsWith("f.json: parse error at line 1, column 1: syntax error")));
}

TEST(ParseJson, ASyntaxErrorEchoesLittleAndNoControlCharacters) {
  const auto texts = faults("\"" + std::string(100'000, 'x') + "\x1b");
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_LT(texts[0].size(), 400u);
  EXPECT_EQ(texts[0].find('\x1b'), std::string::npos);
  EXPECT_THAT(texts[0], HasSubstr("xxx...'"));
  for (const std::string& text : faults("\x7f\x45\x4c\x46\x02\x01\xff")) {
    EXPECT_EQ(text, printable(text));
  }
}

TEST(ParseJson, ANumberBeyondTheDoublesIsAnInputError) {
  EXPECT_THAT(faults("{\"x\": \"1e999\",\n \"gpus\": 1e999}"),
              ElementsAre("f.json: line 2, column 10: the number 1e999 is out of range; expected a number of magnitude "
                          "below 1.8e308"));
  EXPECT_THAT(faults("[-1" + std::string(400, '0') + "]"),
              ElementsAre("f.json: line 1, column 2: the number -1" + std::string(78, '0') +
                          "... is out of range; expected a number of magnitude below 1.8e308"));
}

TEST(Describe, CutsLongStringsAndEscapes) {
  EXPECT_EQ(describe(Json(std::string(200, 'x'))), "\"" + std::string(80, 'x') + "...\"");
  EXPECT_EQ(describe(Json("a\x1b[31m\n")), "\"a\\u001b[31m\\n\"");
  EXPECT_EQ(describe(Json(1.5)), "1.5");
}

TEST(JsonReader, ReportsEveryFaultAtOnce) {
  const Json value = *parse_json(R"({"gpus": -1, "nmae": "x", "model": 3, "kind": "flahscp"})", "f.json");
  Errors errors;
  JsonReader reader(value, "f.json", "", errors);
  EXPECT_FALSE(reader.integer("gpus", 1, 8));
  EXPECT_FALSE(reader.required_string("name"));
  EXPECT_FALSE(reader.string("model"));
  EXPECT_FALSE(reader.choice("kind", {"flashcp", "basp"}));
  reader.finish();
  ASSERT_EQ(errors.size(), 5u);
  EXPECT_EQ(errors[0].to_string(), "f.json: /gpus: is -1; expected an integer from 1 to 8");
  EXPECT_EQ(errors[1].to_string(), "f.json: /name: is missing; expected a string");
  EXPECT_EQ(errors[2].to_string(), "f.json: /model: is 3; expected a string");
  EXPECT_EQ(errors[3].to_string(),
            "f.json: /kind: is \"flahscp\"; expected one of flashcp, basp; did you mean \"flashcp\"?");
  EXPECT_EQ(errors[4].to_string(), "f.json: /nmae: unknown key; did you mean \"name\"?");
}

TEST(JsonReader, AWrongContainerIsOneError) {
  const Json value = *parse_json("[1, 2]", "f.json");
  Errors errors;
  JsonReader reader(value, "f.json", "/x", errors);
  EXPECT_FALSE(reader.required_string("name"));
  reader.finish();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].to_string(), "f.json: /x: is a list of 2; expected an object");
}

}  // namespace
}  // namespace longhaul
