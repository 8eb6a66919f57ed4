#include "sim/core/error.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/printable.h"

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
  if (!named_at.empty()) text += fmt::format(" (named at {})", named_at);
  return printable(text);
}

void append(Errors& errors, const Errors& more) { errors.insert(errors.end(), more.begin(), more.end()); }

void set_named_at(Errors& errors, std::size_t first, const std::string& file, const std::string& path) {
  for (std::size_t i = first; i < errors.size(); ++i) {
    if (errors[i].file != file && errors[i].named_at.empty()) errors[i].named_at = fmt::format("{}: {}", file, path);
  }
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string longer;
  for (const std::string& candidate : names) {
    const bool goes_on = name.size() >= 3 && candidate.starts_with(name);
    if (goes_on && (longer.empty() || candidate.size() < longer.size())) longer = candidate;
  }
  if (!longer.empty()) return longer;
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
