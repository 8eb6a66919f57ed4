// The errors of a reader as the command prints them.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

inline std::vector<std::string> texts(const Errors& errors) {
  std::vector<std::string> lines;
  for (const InputError& error : errors) lines.push_back(error.to_string());
  return lines;
}

// None where it read.
template <class T>
std::vector<std::string> texts(const Expected<T>& result) {
  return result ? std::vector<std::string>{} : texts(result.error());
}

}  // namespace longhaul
