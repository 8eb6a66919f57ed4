#include "sim/core/error.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(InputError, SaysWhereWhatAndWhatWouldBeRight) {
  const InputError error{"a.json", "/gpus", "is -3", "an integer from 1 to 8", ""};
  EXPECT_EQ(error.to_string(), "a.json: /gpus: is -3; expected an integer from 1 to 8");
  const InputError typo{"a.json", "/gpsu", "unknown key", "", "gpus"};
  EXPECT_EQ(typo.to_string(), "a.json: /gpsu: unknown key; did you mean \"gpus\"?");
}

TEST(NearestName, FindsTypingErrorsAndNothingElse) {
  EXPECT_EQ(nearest_name("flahscp", {"flashcp", "basp"}), "flashcp");
  EXPECT_EQ(nearest_name("zebra", {"flashcp", "basp"}), "");
  EXPECT_EQ(nearest_name("bas", {"basp", "base"}), "basp");
}

}  // namespace
}  // namespace longhaul
