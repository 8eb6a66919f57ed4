#include "sim/workload/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "sim/core/data_files.h"
#include "sim/core/invariant.h"
#include "sim/core/json.h"
#include "sim/core/printable.h"

namespace longhaul {
namespace {

constexpr double kMaxDocumentTokens = 0x1p30;
constexpr std::size_t kBuckets = 4096;
constexpr const char* kHeader = "quantile,tokens";

// A row and where it stands, so that the checks name the place whatever the form of the table.
struct PlacedRow {
  LengthRow row;
  std::string place;
};

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// What is wrong with `row` after `previous` (nullptr for the first), empty if nothing.
InputError row_fault(const LengthRow& row, const LengthRow* previous) {
  if (row.quantile < 0 || row.quantile > 1) {
    return {"", "", fmt::format("quantile is {}", row.quantile), "a number from 0 to 1", ""};
  }
  if (row.tokens < 1 || row.tokens > kMaxDocumentTokens) {
    return {"", "", fmt::format("tokens are {}", row.tokens), fmt::format("from 1 to {:.0f}", kMaxDocumentTokens), ""};
  }
  if (previous == nullptr && row.quantile != 0) {
    return {"", "", fmt::format("the first quantile is {}", row.quantile), "0", ""};
  }
  if (previous != nullptr && row.quantile <= previous->quantile) {
    return {"", "", fmt::format("quantile {} follows {}", row.quantile, previous->quantile), "rising quantiles", ""};
  }
  if (previous != nullptr && row.tokens < previous->tokens) {
    return {"", "", fmt::format("tokens {} follow {}", row.tokens, previous->tokens), "tokens that do not fall", ""};
  }
  return {};
}

std::optional<LengthTable> make_table(const std::vector<PlacedRow>& placed, const std::string& name,
                                      const std::string& file, const std::string& path, Errors& errors) {
  const std::size_t errors_before = errors.size();
  std::vector<LengthRow> rows;
  for (std::size_t i = 0; i < placed.size() && errors.size() < errors_before + kMaxFaults; ++i) {
    InputError fault = row_fault(placed[i].row, i == 0 ? nullptr : &placed[i - 1].row);
    rows.push_back(placed[i].row);
    if (fault.message.empty()) continue;
    fault.file = file;
    fault.path = placed[i].place;
    errors.push_back(std::move(fault));
  }
  if (errors.size() != errors_before) return std::nullopt;
  if (rows.size() < 2) {
    errors.push_back(
        {file, path, fmt::format("has {} rows", rows.size()), "at least 2 rows of quantile and tokens", ""});
  } else if (rows.back().quantile != 1) {
    errors.push_back(
        {file, placed.back().place, fmt::format("the last quantile is {}", rows.back().quantile), "1", ""});
  }
  if (errors.size() != errors_before) return std::nullopt;
  return LengthTable(name, std::move(rows));
}

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
  return line;
}

std::optional<LengthTable> inline_table(const Json& value, const std::string& file, const std::string& path,
                                        Errors& errors) {
  const std::size_t errors_before = errors.size();
  JsonReader reader(value, file, path, errors);
  const Json* quantiles = reader.required("quantiles", "a list of [quantile, tokens]");
  std::vector<PlacedRow> rows;
  if (quantiles != nullptr && !quantiles->is_array()) {
    reader.add_error("quantiles", fmt::format("is {}", describe(*quantiles)), "a list of [quantile, tokens]");
  } else if (quantiles != nullptr) {
    for (std::size_t i = 0; i < quantiles->size(); ++i) {
      const Json& row = (*quantiles)[i];
      const std::string place = fmt::format("{}/quantiles/{}", path, i);
      if (row.is_array() && row.size() == 2 && row[0].is_number() && row[1].is_number()) {
        rows.push_back({{row[0].get<double>(), row[1].get<double>()}, place});
      } else {
        errors.push_back({file, place, fmt::format("is {}", describe(row)), "[quantile, tokens]", ""});
      }
    }
  }
  reader.finish();
  if (errors.size() != errors_before) return std::nullopt;
  return make_table(rows, "inline", file, reader.child_path("quantiles"), errors);
}

}  // namespace

LengthTable::LengthTable(std::string name, std::vector<LengthRow> rows)
    : name_(std::move(name)), rows_(std::move(rows)) {
  LH_ASSERT(rows_.size() >= 2 && rows_.front().quantile == 0 && rows_.back().quantile == 1,
            "length table {} has {} rows that do not span 0 to 1", name_, rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const InputError fault = row_fault(rows_[i], i == 0 ? nullptr : &rows_[i - 1]);
    LH_ASSERT(fault.message.empty(), "length table {} row {}: {}", name_, i, fault.message);
  }
  first_row_.resize(kBuckets);
  std::uint32_t row = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const double low = static_cast<double>(bucket) / static_cast<double>(kBuckets);
    while (row + 2 < rows_.size() && rows_[row + 1].quantile <= low) ++row;
    first_row_[bucket] = row;
  }
}

double LengthTable::at(double u) const {
  LH_ASSERT(u >= 0 && u <= 1, "quantile {}", u);
  const auto bucket = std::min(static_cast<std::size_t>(u * static_cast<double>(kBuckets)), kBuckets - 1);
  std::size_t row = first_row_[bucket];
  while (row + 2 < rows_.size() && rows_[row + 1].quantile <= u) ++row;
  const LengthRow& low = rows_[row];
  const LengthRow& high = rows_[row + 1];
  return low.tokens + (high.tokens - low.tokens) * ((u - low.quantile) / (high.quantile - low.quantile));
}

double LengthTable::mean() const {
  double sum = 0;
  for (std::size_t i = 1; i < rows_.size(); ++i) {
    sum += (rows_[i].quantile - rows_[i - 1].quantile) * (rows_[i].tokens + rows_[i - 1].tokens) / 2;
  }
  return sum;
}

std::int64_t LengthTable::sample(Rng& rng) const { return static_cast<std::int64_t>(at(rng.uniform())); }

std::optional<LengthTable> parse_length_table(std::string_view text, const std::string& name, const std::string& file,
                                              Errors& errors) {
  const std::size_t errors_before = errors.size();
  std::vector<PlacedRow> rows;
  bool in_table = false;
  std::size_t number = 0;
  while (!text.empty() && errors.size() < errors_before + kMaxFaults) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string place = fmt::format("line {}", number);
    if (!in_table) {
      in_table = line == kHeader;
      if (in_table) continue;
      errors.push_back({file, place, fmt::format("is \"{}\"", echoed(line)),
                        fmt::format("the header \"{}\" of a length table", kHeader), ""});
      return std::nullopt;
    }
    const std::size_t comma = line.find(',');
    const std::optional<double> quantile = parse_number(line.substr(0, comma));
    const std::optional<double> tokens =
        comma == std::string_view::npos ? std::nullopt : parse_number(line.substr(comma + 1));
    if (quantile && tokens) {
      rows.push_back({{*quantile, *tokens}, place});
    } else {
      errors.push_back({file, place, fmt::format("is \"{}\"", echoed(line)), "two numbers: quantile,tokens", ""});
    }
  }
  if (errors.size() != errors_before) return std::nullopt;
  return make_table(rows, name, file, "", errors);
}

std::optional<LengthTable> find_lengths(const Json& reference, const std::string& file, const std::string& path,
                                        Errors& errors) {
  if (reference.is_object()) return inline_table(reference, file, path, errors);
  if (!reference.is_string()) {
    errors.push_back({file, path, fmt::format("is {}", describe(reference)),
                      "a shipped length table's name, the path of a CSV, or {\"quantiles\": [[0, 1], ...]}", ""});
    return std::nullopt;
  }
  const auto text = reference.get<std::string>();
  const std::optional<std::string> table_file = resolve_data_file(DataKind::kLengths, text, file, path, errors);
  if (!table_file) return std::nullopt;
  const std::size_t errors_before = errors.size();
  const Expected<std::string> contents = read_input_file(*table_file, "a length table");
  if (!contents) {
    append(errors, contents.error());
    set_named_at(errors, errors_before, file, path);
    return std::nullopt;
  }
  const std::string name = is_data_path(DataKind::kLengths, text) ? std::filesystem::path(text).stem().string() : text;
  std::optional<LengthTable> table = parse_length_table(*contents, name, *table_file, errors);
  set_named_at(errors, errors_before, file, path);
  return table;
}

}  // namespace longhaul
