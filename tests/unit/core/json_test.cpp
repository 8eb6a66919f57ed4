#include "sim/core/json.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(ParseJson, RefusesDuplicateKeys) {
  const Expected<Json> parsed = parse_json(R"({"a": 1, "b": {"a": 2}, "a": 3})", "f.json");
  ASSERT_FALSE(parsed.has_value());
  ASSERT_EQ(parsed.error().size(), 1u);
  EXPECT_EQ(parsed.error()[0].to_string(), "f.json: key \"a\" stands twice in one object");
}

TEST(ParseJson, NamesLineAndColumnOfASyntaxError) {
  const Expected<Json> parsed = parse_json("{\n  \"a\": ,\n}", "f.json");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_NE(parsed.error()[0].to_string().find("line 2, column 8"), std::string::npos);
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
