#include "sim/core/invariant.h"

#include <cstdio>
#include <cstdlib>

namespace longhaul {
namespace {

std::string& reproduce_command() {
  static std::string command;
  return command;
}

}  // namespace

void set_reproduce_command(std::string command) { reproduce_command() = std::move(command); }

void assertion_failed(const char* condition, const char* file, int line, std::string_view message) {
  fmt::print(stderr, "longhaul: bug: {}:{}: assertion `{}` failed: {}\n", file, line, condition, message);
  if (!reproduce_command().empty()) fmt::print(stderr, "reproduce with: {}\n", reproduce_command());
  std::fflush(stderr);
  std::abort();
}

}  // namespace longhaul
