#include "sim/strategies/step/copies_option.h"

namespace longhaul {

bool framework_copies(const StrategyRequest& request) {
  return request.options.value("copies", "fused") == "framework";
}

std::optional<std::string> check_copies(JsonReader& reader) { return reader.choice("copies", {"fused", "framework"}); }

}  // namespace longhaul
