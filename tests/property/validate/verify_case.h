// Random and fixed training steps that every strategy is verified on.
//
// Shapes are reduced: head_dim 8, as many heads as the ranks need, FFN 4 x hidden, vocabulary 97; batches hold at most
// 2,048 tokens, a sequence 1 to 64 documents, log-uniform in length from 1 token on. Ranks stand in nodes of 4 of a
// cluster with a kernel model, so that planners compare plans by time; one draw in eight has neither.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/registry.h"

namespace longhaul {

// A number in [low, high], uniform; low comes first when a failing case is made smaller.
using DrawInteger = std::function<std::int64_t(std::int64_t low, std::int64_t high)>;

struct VerifyCase {
  StrategyRequest request;
  std::shared_ptr<const Schedule> schedule;
};

// A variant of a strategy: options of a study's entry. Options that are sizes and that it leaves out are drawn.
struct VerifyVariant {
  Json options = Json::object();
  std::string attention_library = "cudnn";
};

// One draw: the request, or why the strategy cannot run it. Without a variant every option is drawn.
tl::expected<VerifyCase, std::string> draw_case(const Strategy& strategy, const DrawInteger& draw,
                                                const VerifyVariant* variant = nullptr);

// Draws until one is applicable; counts the others by reason. The number of draws is bounded: 1,000 in a row that are
// not applicable fail the test, since the generator would then be wrong.
VerifyCase draw_applicable(const Strategy& strategy, const DrawInteger& draw, std::map<std::string, int>& redrawn,
                           const VerifyVariant* variant = nullptr);

// Fixed corners: one document, one token beside a document, documents shorter than 2N, N equal documents; each with
// ZeRO 0 and 3 and recompute none and full.
struct CornerCase {
  std::string name;
  StrategyRequest request;
};
std::vector<CornerCase> corner_cases(const Strategy& strategy);

// Degrees, training options and documents, for messages.
std::string describe(const StrategyRequest& request);

}  // namespace longhaul
