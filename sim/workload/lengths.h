// Distributions of document lengths as quantile tables.
//
// A table is a list of (quantile, tokens), quantiles strictly rising from 0 to 1, tokens not falling and at least 1.
// Between rows the quantile function is linear; a sample is that function at a uniform draw, rounded down to whole
// tokens. Ignored: any correlation between the lengths of neighbouring documents.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"
#include "sim/core/rng.h"

namespace longhaul {

struct LengthRow {
  double quantile = 0;
  double tokens = 0;
};

class LengthTable {
 public:
  // `rows` as the file comment says; asserted.
  LengthTable(std::string name, std::vector<LengthRow> rows);

  const std::string& name() const { return name_; }
  const std::vector<LengthRow>& rows() const { return rows_; }
  // Tokens at quantile `u` in [0, 1].
  double at(double u) const;
  // The mean of the piecewise linear quantile function, in tokens (before rounding down).
  double mean() const;
  std::int64_t sample(Rng& rng) const;

 private:
  std::string name_;
  std::vector<LengthRow> rows_;
  std::vector<std::uint32_t> first_row_;  // bucket of u -> first row that may hold it
};

// The text of a CSV with the header "quantile,tokens"; lines that start with # are comments. Every faulty line is
// reported, as "line N" of `file`.
std::optional<LengthTable> parse_length_table(std::string_view text, const std::string& name, const std::string& file,
                                              Errors& errors);

// `reference` is a shipped name, a path (relative to `file`) or an inline {"quantiles": [[0, 1], ..., [1, 4096]]}.
std::optional<LengthTable> find_lengths(const nlohmann::ordered_json& reference, const std::string& file,
                                        const std::string& path, Errors& errors);

}  // namespace longhaul
