// Every variant of the context-parallel family on random batches: each entry of the study "context-parallel-variants"
// is executed on virtual ranks and equals the undistributed step to 1e-10, and that study leaves no variant out.
//
// A variant's batches are its own, a function of RC_PARAMS' seed and its label. RC_PARAMS sets how many it gets,
// LONGHAUL_STRATEGY leaves one strategy, LONGHAUL_DOCUMENT_TOKENS puts a document of that length into every batch.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/core/rng.h"
#include "sim/study/setup.h"
#include "tests/property/validate/verify_case.h"
#include "validate/cpu/verify.h"

namespace longhaul {
namespace {

struct Variant {
  std::string label;
  std::string strategy;
  VerifyVariant options;
};

const std::vector<Variant>& all_variants() {
  static const std::vector<Variant> variants = [] {
    std::vector<Variant> list;
    const Expected<Study> study = read_study("context-parallel-variants", study_options());
    if (!study) {
      for (const InputError& error : study.error()) ADD_FAILURE() << error.to_string();
      return list;
    }
    for (const StudyCase& of : study->cases) {
      for (const StrategyEntry& entry : of.strategies) {
        list.push_back(
            {fmt::format("{}: {}", of.name, entry.label), entry.name, {entry.options, of.attention_library}});
      }
    }
    return list;
  }();
  return variants;
}

// Those of the strategy that LONGHAUL_STRATEGY names, or all.
std::vector<Variant> selected_variants() {
  const char* name = std::getenv("LONGHAUL_STRATEGY");
  std::vector<Variant> list = all_variants();
  if (name != nullptr) std::erase_if(list, [&](const Variant& variant) { return variant.strategy != name; });
  return list;
}

// Empty if it verifies.
std::string faults_of(const VerifyCase& drawn, const DrawInteger& draw, double& worst) {
  VerifyOptions options;
  options.order = static_cast<ExecutionOrder>(draw(0, 3));
  options.order_seed = static_cast<std::uint64_t>(draw(1, 1000));
  try {
    const VerifyReport report = verify(*drawn.schedule, options);
    worst = std::max(worst, report.worst);
    if (report.pass && report.worst <= 1e-10) return "";
    std::string text = fmt::format("{}\n", fmt::join(report.violations, "\n"));
    for (const QuantityError& of : report.quantities) {
      text += fmt::format("{}: error {}, missing {}, {}\n", of.name, of.error, of.missing, of.worst);
    }
    return text;
  } catch (const ScheduleError& error) {
    return error.what();
  }
}

class EveryVariant : public testing::TestWithParam<Variant> {};

TEST_P(EveryVariant, EqualsTheUndistributedStep) {
  const Variant& variant = GetParam();
  const Strategy* strategy = find_strategy(variant.strategy);
  ASSERT_NE(strategy, nullptr) << variant.strategy;
  std::map<std::string, int> redrawn;
  double worst = 0;
  int verified = 0, most_ranks = 0;
  std::size_t most_documents = 0;
  std::int64_t most_tokens = 0;
  const bool passed = rc::check("verify to 1e-10: " + variant.label, [&] {
    Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()), "family/" + variant.label);
    const DrawInteger draw = [&](std::int64_t low, std::int64_t high) { return rng.integer(low, high); };
    const VerifyCase drawn = draw_applicable(*strategy, draw, redrawn, &variant.options);
    const std::string found = faults_of(drawn, draw, worst);
    if (!found.empty()) RC_FAIL(describe(drawn.request) + "\n" + found);
    ++verified;
    most_ranks = std::max(most_ranks, drawn.request.ranks);
    most_tokens = std::max(most_tokens, drawn.request.batch->tokens());
    for (const Sequence& sequence : drawn.request.batch->sequences) {
      most_documents = std::max(most_documents, sequence.documents.size());
    }
  });
  std::printf("| %s | %d | %.1e | to %d ranks, %zu documents a sequence, %lld tokens |\n", variant.label.c_str(),
              verified, worst, most_ranks, most_documents, static_cast<long long>(most_tokens));
  EXPECT_TRUE(passed);
}

std::string test_name(const testing::TestParamInfo<Variant>& info) {
  std::string name;
  for (const char letter : info.param.label) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      name += letter;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Study, EveryVariant, testing::ValuesIn(selected_variants()), test_name);

// The words that an option takes, from the error for one that it does not take; none for numbers.
std::vector<std::string> words_of(const Strategy& strategy, const std::string& key) {
  Errors errors;
  strategy.check_options({{key, "no such word"}}, "", "", errors);
  for (const InputError& error : errors) {
    const std::string prefix = "one of ";
    if (error.path != "/" + key || !error.expected.starts_with(prefix)) continue;
    std::vector<std::string> words;
    std::string left = error.expected.substr(prefix.size());
    for (std::size_t end = 0; end != std::string::npos; left.erase(0, end + 2)) {
      end = left.find(", ");
      words.push_back(left.substr(0, end));
      if (end == std::string::npos) break;
    }
    return words;
  }
  return {};
}

// A strategy, an option or a word of one that the registry has and the study does not fails here. One word of an option
// may go unnamed, the default, if an entry leaves the option out.
TEST(VariantsStudy, LeavesNothingOut) {
  int options = 0, words_seen = 0;
  for (const Strategy& strategy : strategies()) {
    if (strategy.family != StrategyFamily::kContext || strategy.objective != ObjectiveKind::kCausalLm) continue;
    std::vector<Json> entries;
    for (const Variant& variant : all_variants()) {
      if (variant.strategy == strategy.name) entries.push_back(variant.options.options);
    }
    EXPECT_FALSE(entries.empty()) << strategy.name;
    for (const std::string& key : strategy.option_keys) {
      // A plan of one's own fits one batch alone: tests/unit/strategies/cp_assignment_test.cpp.
      if (key == "assignment") continue;
      SCOPED_TRACE(strategy.name + ": " + key);
      ++options;
      std::set<std::string> given;
      bool left_out = false;
      for (const Json& entry : entries) {
        left_out = left_out || !entry.contains(key);
        if (entry.contains(key))
          given.insert(entry[key].is_string() ? entry[key].get<std::string>() : entry[key].dump());
      }
      EXPECT_TRUE(left_out);
      EXPECT_FALSE(given.empty());
      std::vector<std::string> unnamed;
      for (const std::string& word : words_of(strategy, key)) {
        ++words_seen;
        if (given.count(word) == 0) unnamed.push_back(word);
      }
      EXPECT_LE(unnamed.size(), 1u) << fmt::format("{}", fmt::join(unnamed, ", "));
    }
  }
  EXPECT_GE(options, 25);
  EXPECT_GE(words_seen, 20);
}

}  // namespace
}  // namespace longhaul
