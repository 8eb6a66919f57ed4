#include "sim/core/error.h"

#include <gtest/gtest.h>

#include "sim/core/printable.h"

namespace longhaul {
namespace {

TEST(InputError, SaysWhereWhatAndWhatWouldBeRight) {
  const InputError error{"a.json", "/gpus", "is -3", "an integer from 1 to 8", ""};
  EXPECT_EQ(error.to_string(), "a.json: /gpus: is -3; expected an integer from 1 to 8");
  const InputError typo{"a.json", "/gpsu", "unknown key", "", "gpus"};
  EXPECT_EQ(typo.to_string(), "a.json: /gpsu: unknown key; did you mean \"gpus\"?");
}

TEST(InputError, SaysWhichFileNamesItsOwn) {
  Errors errors = {{"study.json", "/gpus", "is 3", "", ""},
                   {"m.json", "/hidden_size", "is missing", "", ""},
                   {"base.json", "", "cannot be read", "", "", "t.json: /base"}};
  set_named_at(errors, 0, "study.json", "/model");
  EXPECT_EQ(errors[0].to_string(), "study.json: /gpus: is 3");
  EXPECT_EQ(errors[1].to_string(), "m.json: /hidden_size: is missing (named at study.json: /model)");
  EXPECT_EQ(errors[2].to_string(), "base.json: cannot be read (named at t.json: /base)");
}

TEST(InputError, EscapesControlCharacters) {
  EXPECT_EQ((InputError{"a\x1b[2J.json", "", "is \"\n\"", "", ""}.to_string()), "a\\u001b[2J.json: is \"\\n\"");
}

TEST(Printable, EscapesControlsAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(printable("plain \"q\" \\ \xC3\xBC \xF0\x9F\x9A\x80"), "plain \"q\" \\ \xC3\xBC \xF0\x9F\x9A\x80");
  EXPECT_EQ(printable("\t\x7F\xC2\x9B"), "\\t\\u007f\\u009b");
  EXPECT_EQ(printable("a\xFFz"), "a\xEF\xBF\xBDz");
}

TEST(Printable, CutsAfter80Characters) {
  EXPECT_EQ(echoed(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(echoed(std::string(81, 'x')), std::string(80, 'x') + "...");
  std::string umlauts;
  for (int i = 0; i < 200; ++i) umlauts += "\xC3\xBC";
  EXPECT_EQ(echoed(umlauts), umlauts.substr(0, 160) + "...");
  EXPECT_EQ(count_characters(umlauts), 200u);
}

TEST(NearestName, ABeginningFindsTheShortestThatGoesOn) {
  EXPECT_EQ(nearest_name("dgx-h200", {"dgx-h200-ndr-rail", "dgx-h200-ndr", "dgx-a200"}), "dgx-h200-ndr");
  EXPECT_EQ(nearest_name("allgather", {"flashcp", "allgather-cp-long", "allgather-cp"}), "allgather-cp");
  EXPECT_EQ(nearest_name("al", {"allgather-cp"}), "");
}

TEST(NearestName, FindsTypingErrorsAndNothingElse) {
  EXPECT_EQ(nearest_name("flahscp", {"flashcp", "basp"}), "flashcp");
  EXPECT_EQ(nearest_name("zebra", {"flashcp", "basp"}), "");
  EXPECT_EQ(nearest_name("bas", {"basp", "base"}), "basp");
}

}  // namespace
}  // namespace longhaul
