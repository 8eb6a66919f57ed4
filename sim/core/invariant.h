// LH_ASSERT: an invariant of Longhaul itself. It stays on in every build type. A failure is a bug in Longhaul, never
// the user's fault: it prints the condition, the values and how to reproduce, then aborts (exit status 134).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace longhaul {

// The command line that `assertion_failed` prints as "reproduce with"; the command sets it once at start.
void set_reproduce_command(std::string command);

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, std::string_view message);

}  // namespace longhaul

#define LH_ASSERT(condition, ...)                                                               \
  do {                                                                                          \
    if (!(condition)) [[unlikely]] {                                                            \
      ::longhaul::assertion_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                           \
  } while (false)
