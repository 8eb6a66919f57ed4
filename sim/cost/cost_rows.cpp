#include "sim/cost/cost_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/lexical_cast.hpp>
#include <optional>
#include <utility>

#include "sim/core/csv.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;  // of a matrix or sequence
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr double kMsPerSecond = 1e3;

std::vector<std::string> split(const std::string& text, const char* separator) {
  std::vector<std::string> fields;
  boost::split(fields, text, boost::is_any_of(separator));
  return fields;
}

std::optional<std::int64_t> to_integer(const std::string& text) {
  std::int64_t value = 0;
  if (!boost::conversion::try_lexical_convert(text, value)) return std::nullopt;
  return value;
}

// One line with its columns; collects the faults of the row.
class Row {
 public:
  Row(const std::vector<std::string>& columns, std::vector<std::string> fields, std::string file, int line,
      Errors& errors)
      : columns_(columns), fields_(std::move(fields)), file_(std::move(file)), line_(line), errors_(errors) {}

  std::string text(const std::string& column) const {
    const auto found = std::find(columns_.begin(), columns_.end(), column);
    return found == columns_.end() ? "" : fields_[static_cast<std::size_t>(found - columns_.begin())];
  }
  std::optional<std::int64_t> integer(const std::string& column, std::int64_t low, std::int64_t high) {
    const std::string field = text(column);
    const std::optional<std::int64_t> value = to_integer(field);
    if (value && *value >= low && *value <= high) return value;
    add_error(fmt::format("{} is \"{}\"", column, field), fmt::format("an integer from {} to {}", low, high), "");
    return std::nullopt;
  }
  // Position of the field in `names`.
  std::optional<std::size_t> choice(const std::string& column, const std::vector<std::string>& names) {
    const std::string field = text(column);
    const auto found = std::find(names.begin(), names.end(), field);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    add_error(fmt::format("{} is \"{}\"", column, field), fmt::format("one of {}", fmt::join(names, ", ")),
              nearest_name(field, names));
    return std::nullopt;
  }
  void add_error(std::string message, std::string expected, std::string nearest) {
    errors_.push_back(
        {file_, fmt::format("line {}", line_), std::move(message), std::move(expected), std::move(nearest)});
  }

 private:
  const std::vector<std::string>& columns_;
  std::vector<std::string> fields_;
  std::string file_;
  int line_;
  Errors& errors_;
};

std::optional<Estimate> predict_gemm(const KernelModel& model, Row& row) {
  const auto pass = row.choice("pass", {"fwd", "bwd-input", "bwd-weight"});
  const auto m = row.integer("m", 1, kMostRows);
  const auto n = row.integer("n", 1, kMostRows);
  const auto k = row.integer("k", 1, kMostRows);
  if (!pass || !m || !n || !k) return std::nullopt;
  return KernelModel::timed_alone(model.gemm(static_cast<GemmPass>(*pass), *m, *n, *k));
}

std::optional<Estimate> predict_attention(const KernelModel& model, Row& row) {
  const auto pass = row.choice("pass", {"fwd", "bwd"});
  const auto q_heads = row.integer("q_heads", 1, 4096);
  const auto kv_heads = row.integer("kv_heads", 1, 4096);
  const auto head_dim = row.integer("head_dim", 1, 4096);
  const auto pieces = parse_pieces(row.text("pieces"), row.text("mask"));
  if (!pieces) row.add_error(pieces.error().message, pieces.error().expected, pieces.error().nearest);
  if (q_heads && kv_heads && *q_heads % *kv_heads != 0) {
    row.add_error(fmt::format("q_heads is {} for {} kv_heads", *q_heads, *kv_heads), "a multiple of kv_heads", "");
    return std::nullopt;
  }
  if (!pass || !q_heads || !kv_heads || !head_dim || !pieces) return std::nullopt;
  const AttentionWork work = attention_work(*pieces);
  const bool forward = *pass == 0;
  const Estimate queued = forward ? model.attention_forward(work, *q_heads, *kv_heads, *head_dim)
                                  : model.attention_backward(work, *q_heads, *kv_heads, *head_dim);
  return KernelModel::timed_alone(queued);
}

// `impl` may name a function that was measured; then m x n are its rows and columns.
std::optional<Estimate> predict_elementwise(const KernelModel& model, Row& row) {
  const auto bytes = row.integer("bytes", 0, kMostBytes);
  const bool shaped = !row.text("impl").empty() && !row.text("m").empty();
  const auto m = shaped ? row.integer("m", 0, kMostRows) : 0;
  const auto n = shaped ? row.integer("n", 0, kMostRows) : 0;
  if (!bytes || !m || !n) return std::nullopt;
  return KernelModel::timed_alone(model.elementwise(Bytes{*bytes}, row.text("impl"), *m, *n));
}

std::optional<Estimate> predict_copy(const KernelModel& model, Row& row) {
  const auto pass = row.choice("pass", {"d2d", "h2d", "d2h"});
  const auto bytes = row.integer("bytes", 0, kMostBytes);
  if (!pass || !bytes) return std::nullopt;
  return KernelModel::timed_alone(model.copy(static_cast<CopyKind>(*pass), Bytes{*bytes}));
}

std::optional<Estimate> predict_row(const KernelModel& model, Row& row) {
  const auto op = row.choice("op", {"gemm", "attention", "elementwise", "copy"});
  if (!op) return std::nullopt;
  switch (*op) {
    case 0:
      return predict_gemm(model, row);
    case 1:
      return predict_attention(model, row);
    case 2:
      return predict_elementwise(model, row);
    default:
      return predict_copy(model, row);
  }
}

// The pieces of one sequence of `length` in blocks of `block`, the last of which may be shorter: clean and corrupted
// queries against the clean keys that both see, corrupted ones against their own block.
void add_block_diffusion(std::int64_t length, std::int64_t block, bool token_causal,
                         std::vector<AttentionPieceSize>& out) {
  const std::int64_t whole = length / block;
  const std::int64_t rest = length % block;
  const std::int64_t own = whole * block * block + rest * rest;
  const std::int64_t before = block * block * (whole * (whole - 1) / 2) + rest * whole * block;
  const std::int64_t clean = token_causal ? length * (length + 1) / 2 : before + own;
  out.push_back({before > 0 ? 2 * length : length, length, clean + before});
  out.push_back({length, length, own});
}

InputError fault(std::string message, std::string expected, std::string nearest = "") {
  return {"", "", std::move(message), std::move(expected), std::move(nearest)};
}

}  // namespace

tl::expected<std::vector<AttentionPieceSize>, InputError> parse_pieces(const std::string& pieces,
                                                                       const std::string& mask) {
  const std::vector<std::string> kMasks = {"causal", "full", "block-diffusion", "block-diffusion-token"};
  const std::vector<std::string> mask_parts = split(mask, ":");
  const std::string& name = mask_parts[0];
  const bool blocks = name == "block-diffusion" || name == "block-diffusion-token";
  if (std::find(kMasks.begin(), kMasks.end(), name) == kMasks.end() || (mask_parts.size() > 1) != blocks) {
    return tl::unexpected(fault(fmt::format("mask is \"{}\"", mask),
                                "causal, full, block-diffusion:B or block-diffusion-token:B",
                                nearest_name(name, kMasks)));
  }
  const std::int64_t block = blocks ? to_integer(mask_parts[1]).value_or(0) : 0;
  if (blocks && (mask_parts.size() != 2 || block < 1 || block > kMostRows)) {
    return tl::unexpected(fault(fmt::format("mask is \"{}\"", mask), "a block of at least one token"));
  }
  std::vector<AttentionPieceSize> out;
  for (const std::string& piece : split(pieces, ";")) {
    const std::vector<std::string> sides = split(piece, "x");
    const std::optional<std::int64_t> q = to_integer(sides[0]);
    const std::optional<std::int64_t> k = sides.size() == 2 ? to_integer(sides[1]) : std::nullopt;
    if (!q || !k || *q < 1 || *k < 1 || *q > kMostRows || *k > kMostRows) {
      return tl::unexpected(fault(fmt::format("piece \"{}\"", piece), "QxK with rows of at least one"));
    }
    if (name == "causal" && *k < *q) {
      return tl::unexpected(fault(fmt::format("piece \"{}\" is causal", piece), "at least as many keys as queries"));
    }
    if (blocks && *q != *k) {
      return tl::unexpected(fault(fmt::format("piece \"{}\" is block-diffusion", piece), "LxL"));
    }
    if (name == "full") {
      out.push_back({*q, *k, *q * *k});
    } else if (name == "causal") {
      out.push_back({*q, *k, *q * (*k - *q) + *q * (*q + 1) / 2});
    } else {
      add_block_diffusion(*q, block, name == "block-diffusion-token", out);
    }
  }
  return out;
}

Expected<std::string> predict_rows(const KernelModel& model, const std::string& csv, const std::string& file) {
  Errors errors;
  const CsvTable table = read_csv(csv, file, errors);
  if (!table.columns.empty() && !table.find("op")) {
    errors.push_back({file, "", "has no column \"op\"",
                      "a header with op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes",
                      nearest_name("op", table.columns)});
    return tl::unexpected(std::move(errors));
  }
  std::string out = csv_line(table.columns) + ",predicted_ms,low_ms,high_ms,basis\n";
  for (const CsvRow& fields : table.rows) {
    Row row(table.columns, fields.fields, file, fields.line, errors);
    const std::optional<Estimate> estimate = predict_row(model, row);
    if (!estimate) continue;
    out += fmt::format("{},{:.9f},{:.9f},{:.9f},{}\n", csv_line(fields.fields), estimate->seconds * kMsPerSecond,
                       estimate->low * kMsPerSecond, estimate->high * kMsPerSecond, basis_name(estimate->basis));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return out;
}

}  // namespace longhaul
