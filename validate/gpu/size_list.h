// Message sizes on the command line: "512", "64K", "4G" (binary units), ranges "512:4G" that double.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

// A whole number of bytes, at least 1, with K, M or G (times 2^10, 2^20, 2^30, either case). Errors name `option`.
Expected<std::int64_t> parse_byte_size(std::string_view text, const std::string& option);

// MIN, 2 MIN, 4 MIN, ... up to MAX. Errors: not "MIN:MAX", a part that is no size (both are named), MIN above MAX.
Expected<std::vector<std::int64_t>> parse_size_range(std::string_view text, const std::string& option);

// Comma-separated sizes, as given.
Expected<std::vector<std::int64_t>> parse_size_list(std::string_view text, const std::string& option);

}  // namespace longhaul
