// Studies with random damage: reading never crashes, says where every fault is, and what it accepts resolves to itself.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "sim/scenario/layout_check.h"
#include "tests/unit/scenario/study_fixture.h"

namespace longhaul {
namespace {

// Every JSON pointer below `value`, itself first.
void collect(const Json& value, const std::string& path, std::vector<std::string>& pointers) {
  pointers.push_back(path);
  if (!value.is_structured()) return;
  for (const auto& [key, child] : value.items()) collect(child, path + "/" + key, pointers);
}

Json any_value() {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           0,
                                           1,
                                           -1,
                                           7,
                                           1e300,
                                           "x",
                                           "",
                                           "wlb",
                                           "flashcp",
                                           "best",
                                           Json::array(),
                                           Json::object(),
                                           16,
                                           2,
                                           {{"name", 1}},
                                           Json::array({1})};
  return values[*rc::gen::inRange<std::size_t>(0, values.size())];
}

// One to three values of the example replaced or added beside.
Json damaged() {
  Json study = example();
  const int times = *rc::gen::inRange(1, 4);
  for (int i = 0; i < times; ++i) {
    std::vector<std::string> pointers;
    collect(study, "", pointers);
    Json& target = study[Json::json_pointer(*rc::gen::elementOf(pointers))];
    if (target.is_object() && *rc::gen::arbitrary<bool>()) {
      target["added"] = any_value();
    } else {
      target = any_value();
    }
    if (!study.is_structured()) break;
  }
  return study;
}

TEST(DamagedStudies, AreReadOrRefusedWithPlaces) {
  EXPECT_TRUE(rc::check("damaged", [] {
    const Json study = damaged();
    const Expected<Study> result = parse_study(study, "study.json", known());
    RC_CLASSIFY(result.has_value(), "accepted");
    if (result) {
      const Expected<Study> again = parse_study(result->resolved, "study.json", known());
      RC_ASSERT(again.has_value());
      RC_ASSERT(again->resolved.dump() == result->resolved.dump());
      for (const StudyCase& one : result->cases) RC_ASSERT(make_batch(one.documents, one.objective, 0).tokens() > 0);
      return;
    }
    RC_ASSERT(!result.error().empty());
    for (const InputError& error : result.error()) {
      RC_ASSERT(!error.file.empty());
      RC_ASSERT(!error.message.empty());
      RC_ASSERT(error.path.empty() || error.path.front() == '/' || error.path.starts_with("line "));
    }
  }));
}

// fill_error speaks exactly when the sequences are no positive multiple, and the counts that it names do fill.
TEST(Fill, NamedCountsFill) {
  EXPECT_TRUE(rc::check("fill", [] {
    const auto dp = *rc::gen::inRange<std::int64_t>(1, 40);
    const auto micro = *rc::gen::inRange<std::int64_t>(1, 9);
    const auto sequences = *rc::gen::inRange<std::int64_t>(0, 500);
    const StrategyEntry entry;
    const auto fault = fill_error(sequences, dp, micro, entry);
    RC_ASSERT(fault.has_value() == (sequences == 0 || sequences % (dp * micro) != 0));
    if (!fault) return;
    const std::int64_t first = std::stoll(fault->expected);
    RC_ASSERT(!fill_error(first, dp, micro, entry));
    RC_ASSERT(std::abs(first - sequences) <= dp * micro);
  }));
}

}  // namespace
}  // namespace longhaul
