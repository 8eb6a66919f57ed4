// Text of unknown origin made fit for a terminal: what an error message echoes of a file or an option.
//
// Ignores width and direction marks: only control characters (C0, DEL, C1) and bytes that are not UTF-8 are replaced.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace longhaul {

// Control characters become JSON escapes (\n, \u001b), bytes that are not UTF-8 U+FFFD. All else stays as it is.
std::string printable(std::string_view text);

// Characters of UTF-8 text, not bytes.
std::size_t count_characters(std::string_view text);

// `printable` text, cut to 80 characters with "..." after them.
std::string echoed(std::string_view text);

}  // namespace longhaul
