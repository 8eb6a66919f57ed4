#include "validate/gpu/size_list.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace longhaul {
namespace {

constexpr const char* kCommandLine = "<command line>";

Errors fault(const std::string& option, std::string_view text, std::string expected) {
  return {{kCommandLine, option, fmt::format("is \"{}\"", text), std::move(expected), ""}};
}

// Power of two that a unit stands for; -1 for anything else.
int shift_of(std::string_view unit) {
  if (unit.empty()) return 0;
  if (unit == "K" || unit == "k") return 10;
  if (unit == "M" || unit == "m") return 20;
  if (unit == "G" || unit == "g") return 30;
  return -1;
}

}  // namespace

Expected<std::int64_t> parse_byte_size(std::string_view text, const std::string& option) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const int shift = shift_of(text.substr(static_cast<std::size_t>(end - text.data())));
  if (status != std::errc() || shift < 0 || value < 1 || value > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    return tl::unexpected(fault(option, text, "a number of bytes such as 512, 64K, 16M or 4G"));
  }
  return value << shift;
}

Expected<std::vector<std::int64_t>> parse_size_range(std::string_view text, const std::string& option) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return tl::unexpected(fault(option, text, "MIN:MAX such as 512:4G"));
  const Expected<std::int64_t> min = parse_byte_size(text.substr(0, colon), option);
  const Expected<std::int64_t> max = parse_byte_size(text.substr(colon + 1), option);
  Errors errors;
  if (!min) append(errors, min.error());
  if (!max) append(errors, max.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  if (*min > *max) return tl::unexpected(fault(option, text, "MIN not above MAX"));
  std::vector<std::int64_t> sizes = {*min};
  while (sizes.back() <= *max / 2) sizes.push_back(sizes.back() * 2);
  return sizes;
}

Expected<std::vector<std::int64_t>> parse_size_list(std::string_view text, const std::string& option) {
  std::vector<std::int64_t> sizes;
  Errors errors;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const Expected<std::int64_t> size = parse_byte_size(text.substr(from, comma - from), option);
    if (size) {
      sizes.push_back(*size);
    } else {
      append(errors, size.error());
    }
    from = comma + 1;
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return sizes;
}

}  // namespace longhaul
