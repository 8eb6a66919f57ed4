#include "reports/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::string_view kThinSpace = "\u202f";  // narrow no-break space
constexpr std::string_view kNoBreakSpace = "\u00a0";
constexpr std::string_view kMinus = "\u2212";
constexpr std::string_view kTimes = "\u00d7";

// Decimals that leave about `digits` significant digits of a value that is 1 or more.
int decimals_for(double value, int digits) {
  int decimals = digits - 1;
  for (double bound = 10; decimals > 0 && std::abs(value) >= bound; bound *= 10) --decimals;
  return decimals;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool forbidden = byte < 0x20 && c != '\n' && c != '\t' && c != '\r';
        if (forbidden) {
          out += "\ufffd";
        } else {
          out += c;
        }
      }
    }
  }
  return out;
}

std::string escape_script_json(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    // A '<' stands only inside JSON strings, where \u003c means the same.
    const bool risky = json[i] == '<' && i + 1 < json.size() && (json[i + 1] == '/' || json[i + 1] == '!');
    if (risky && json[i + 1] == '/') {
      out += "<\\/";
      ++i;
    } else if (risky) {
      out += "\\u003c";
    } else {
      out += json[i];
    }
  }
  return out;
}

std::string format_number(double value, int decimals) {
  LH_ASSERT(std::isfinite(value), "a report cannot write {}", value);
  const std::string plain = fmt::format("{:.{}f}", std::abs(value), decimals);
  const std::size_t whole = std::min(plain.find('.'), plain.size());
  const bool zero = plain.find_first_not_of("0.") == std::string::npos;
  std::string out(value < 0 && !zero ? kMinus : "");
  for (std::size_t i = 0; i < whole; ++i) {
    out += plain[i];
    const std::size_t left = whole - 1 - i;
    if (left > 0 && left % 3 == 0) out += kThinSpace;
  }
  return out + plain.substr(whole);
}

std::string format_bytes(double bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  double value = bytes;
  while (std::abs(value) >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : std::min(2, decimals_for(value, 3));
  return fmt::format("{}{}{}", format_number(value, decimals), kNoBreakSpace, kUnits[unit]);
}

std::string format_bytes_range(double low, double high) {
  std::string from = format_bytes(low);
  const std::string to = format_bytes(high);
  const auto unit_of = [](const std::string& text) { return text.substr(text.find(kNoBreakSpace)); };
  if (unit_of(from) == unit_of(to)) from.resize(from.find(kNoBreakSpace));
  return from + "\u2009\u2013\u2009" + to;
}

std::string format_percent(double fraction, int decimals) {
  return fmt::format("{}{}%", format_number(fraction * 100, decimals), kNoBreakSpace);
}

std::string format_ratio(double ratio) {
  return fmt::format("{}{}", format_number(ratio, ratio < 100 ? 2 : 0), kTimes);
}

std::string plain_text(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kPlain = {{{kThinSpace, ""},
                                                                                    {kNoBreakSpace, " "},
                                                                                    {kMinus, "-"},
                                                                                    {kTimes, "x"},
                                                                                    {"\u2009", " "},
                                                                                    {"\u2013", "-"},
                                                                                    {"\u00b5s", "us"}}};
  for (const auto& [sign, plain] : kPlain) {
    for (std::size_t at = text.find(sign); at != std::string::npos; at = text.find(sign, at + plain.size())) {
      text.replace(at, sign.size(), plain);
    }
  }
  return text;
}

TimeUnit time_unit(double largest_ms) {
  if (largest_ms >= 10'000) return {1e-3, "s"};
  if (largest_ms < 1) return {1e3, "\u00b5s"};
  return {1, "ms"};
}

int time_decimals(TimeUnit unit, double largest_ms) { return decimals_for(largest_ms * unit.per_ms, 4); }

std::string format_duration(double ms) {
  const TimeUnit unit = time_unit(std::abs(ms));
  return fmt::format("{}{}{}", format_number(ms * unit.per_ms, time_decimals(unit, std::abs(ms))), kNoBreakSpace,
                     unit.name);
}

std::vector<double> axis_ticks(double largest, int about) {
  LH_ASSERT(about >= 1 && std::isfinite(largest), "axis to {} with {} intervals", largest, about);
  if (largest <= 0) return {0, 1};
  double power = 1;
  while (power * about > largest) power /= 10;
  while (power * 10 * about <= largest) power *= 10;
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = power * factor;
    if (step * about >= largest) break;
  }
  std::vector<double> ticks;
  for (int i = 0; ticks.size() < 2 || ticks.back() < largest * (1 - 1e-12); ++i) ticks.push_back(step * i);
  return ticks;
}

int tick_decimals(const std::vector<double>& ticks) {
  double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  int decimals = 0;
  for (; decimals < 9 && step < 0.999999; ++decimals) step *= 10;
  return decimals;
}

}  // namespace longhaul
