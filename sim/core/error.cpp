#include "sim/core/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string InputError::to_string() const {
  std::string text = file;
  if (!path.empty()) text += fmt::format(": {}", path);
  text += fmt::format(": {}", message);
  if (!expected.empty()) text += fmt::format("; expected {}", expected);
  if (!nearest.empty()) text += fmt::format("; did you mean \"{}\"?", nearest);
  return text;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  const std::size_t limit = std::max<std::size_t>(2, name.size() / 3);
  std::size_t best = limit + 1;
  std::string nearest;
  for (const std::string& candidate : names) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace longhaul
