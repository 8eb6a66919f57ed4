// What a strategy says of wrong options, for tests: a line an error.
#pragma once

#include <fmt/format.h>

#include <string>

#include "sim/strategies/registry.h"

namespace longhaul {

inline std::string option_errors(const std::string& strategy, const Json& options) {
  Errors errors;
  find_strategy(strategy)->check_options(options, "study.json", "/strategies/0", errors);
  std::string text;
  for (const InputError& error : errors) {
    text += fmt::format("{} {}; expected {}\n", error.path, error.message, error.expected);
  }
  return text;
}

}  // namespace longhaul
