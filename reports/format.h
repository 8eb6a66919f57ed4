// How the reports write numbers and text: pure functions, no locale.
//
// Units in names; 1 GB = 10^9 bytes. Rounding is to nearest, for reading only: exact values stand in results.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// For text nodes and double-quoted attributes of HTML and SVG. Control characters that XML forbids become U+FFFD.
std::string escape_html(std::string_view text);

// JSON text made safe inside <script>: `</` becomes `<\/`, `<!--` becomes `<\!--`'s JSON spelling `\u003c!--`.
std::string escape_script_json(std::string json);

// "1234567.8" with `decimals` places and thousands separated by a thin no-break space; the minus is U+2212.
std::string format_number(double value, int decimals);

// Three to four significant digits with a unit out of B, kB, MB, GB, TB: "139.8 GB".
std::string format_bytes(double bytes);

// "97.3 - 114 GB" with an en dash, the unit once where both have the same.
std::string format_bytes_range(double low, double high);

// "41.3 %" of a fraction.
std::string format_percent(double fraction, int decimals = 1);

// "1.22x" with a multiplication sign.
std::string format_ratio(double ratio);

// `text` for a terminal: the signs and spaces that the functions here write, in ASCII ("1 932 ms" becomes "1932 ms").
std::string plain_text(std::string text);

// One unit for all durations of a column or a sentence, so that they compare at a glance.
struct TimeUnit {
  double per_ms = 1;  // value in the unit = value in ms x per_ms
  std::string_view name = "ms";
};
// Microseconds below 1 ms, seconds from 10 s on, else milliseconds.
TimeUnit time_unit(double largest_ms);
// With as many decimals as keep three to four digits of `largest_ms`, the unit's name not included.
int time_decimals(TimeUnit unit, double largest_ms);
// "1 932.4 ms": in its own unit.
std::string format_duration(double ms);

// A linear axis from 0: the ticks are multiples of 1, 2 or 5 times a power of ten, the last is >= `largest`.
// At least two ticks; `largest` <= 0 gives {0, 1}. `about` is the wished number of intervals, kept within a factor 2.5.
std::vector<double> axis_ticks(double largest, int about);
// Decimals that tell neighbouring ticks apart.
int tick_decimals(const std::vector<double>& ticks);

}  // namespace longhaul
