#include "sim/core/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

constexpr std::size_t kMaxEchoed = 80;

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

}  // namespace

std::string printable(std::string_view text) {
  using nlohmann::json;
  // The serializer escapes C0 and replaces what is not UTF-8; its escapes of quotes and backslashes are taken back.
  const std::string dumped = json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string_view escaped = std::string_view(dumped).substr(1, dumped.size() - 2);
  std::string result;
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    const auto byte = static_cast<unsigned char>(escaped[i]);
    const unsigned next = i + 1 < escaped.size() ? static_cast<unsigned char>(escaped[i + 1]) : 0u;
    if (byte == '\\') {
      if (next != '"' && next != '\\') result += '\\';
      result += escaped[++i];
    } else if (byte == 0x7F) {
      result += "\\u007f";
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      result += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      result += escaped[i];
    }
  }
  return result;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string echoed(std::string_view text) {
  // No character takes more than 4 bytes: what lies beyond can never be shown, and may be long.
  std::string shown = printable(text.substr(0, 4 * (kMaxEchoed + 1)));
  if (count_characters(shown) <= kMaxEchoed) return shown;
  std::size_t end = 0;
  for (std::size_t seen = 0; end < shown.size(); ++end) {
    if (starts_character(shown[end]) && ++seen > kMaxEchoed) break;
  }
  return shown.substr(0, end) + "...";
}

}  // namespace longhaul
