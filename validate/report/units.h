// How reports of runs write amounts, in ASCII: pure functions, no locale.
#pragma once

#include <string>

namespace longhaul {

// Three to four digits: "812 ns", "37.2 us", "1.204 ms", "3.1 s".
std::string seconds_text(double seconds);
// "139.8 GB", 1 GB = 10^9 bytes.
std::string bytes_text(double bytes);
// "+8.1 %" of a fraction.
std::string percent_text(double fraction);

}  // namespace longhaul
