#include "validate/fit/h200_tables.h"

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/lexical_cast.hpp>
#include <stdexcept>

#include "validate/fit/table.h"

namespace longhaul {
namespace {

constexpr double kMilli = 1e-3;

std::int64_t causal_pairs(std::int64_t q, std::int64_t k) { return q * (k - q) + q * (q + 1) / 2; }

void read_gemm(const Table& table, int multiprocessors, std::vector<MeasuredCall>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string& layout = table.text(i, "layout");
    const char* group = layout == "tn_fwd"  ? "gemm forward"
                        : layout == "dgrad" ? "gemm backward-input"
                                            : "gemm backward-weight";
    out.push_back({group,
                   gemm_call(table.integer(i, "m"), table.integer(i, "n"), table.integer(i, "k"), multiprocessors),
                   table.number(i, "ms_median") * kMilli});
  }
}

void read_attention(const Table& table, int multiprocessors, std::vector<MeasuredCall>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "impl") != "cudnn") continue;
    const std::int64_t q = table.integer(i, "q_len");
    const std::int64_t k = table.integer(i, "kv_len");
    const bool forward = table.text(i, "pass") == "fwd";
    AttentionWork work;
    work.add({q, k, table.integer(i, "causal") == 1 ? causal_pairs(q, k) : q * k});
    out.push_back({forward ? "attention forward, single" : "attention backward, single",
                   attention_call(forward, work, table.integer(i, "heads"), table.integer(i, "kv_heads"),
                                  table.integer(i, "head_dim"), multiprocessors),
                   table.number(i, "ms_median") * kMilli});
  }
}

void read_varlen(const Table& table, int multiprocessors, std::vector<MeasuredCall>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    std::vector<std::string> pieces;
    boost::split(pieces, table.text(i, "pieces_q_kv"), boost::is_any_of(";"));
    AttentionWork work;
    for (const std::string& piece : pieces) {
      const std::size_t cross = piece.find('x');
      if (cross == std::string::npos)
        throw std::invalid_argument("cudnn_varlen.csv: piece \"" + piece + "\" is not QxK");
      const auto q = boost::lexical_cast<std::int64_t>(piece.substr(0, cross));
      const auto k = boost::lexical_cast<std::int64_t>(piece.substr(cross + 1));
      work.add({q, k, causal_pairs(q, k)});
    }
    const bool forward = table.text(i, "pass") == "fwd";
    const std::string group = std::string(forward ? "attention forward, " : "attention backward, ") +
                              (pieces.size() == 1 ? "single" : "packed");
    out.push_back({group,
                   attention_call(forward, work, table.integer(i, "heads"), table.integer(i, "kv_heads"),
                                  table.integer(i, "head_dim"), multiprocessors),
                   table.number(i, "ms_median") * kMilli});
  }
}

void read_elementwise(const Table& table, std::vector<MeasuredCall>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string& op = table.text(i, "op");
    const std::int64_t bytes_each = op == "rmsnorm_fused" ? 4 : op == "add" ? 6 : 10;  // validate/data/h200/README.md
    const Bytes bytes{table.integer(i, "tokens") * table.integer(i, "width") * bytes_each};
    out.push_back({"elementwise", elementwise_call(bytes), table.number(i, "ms_median") * kMilli});
  }
}

void read_copies(const Table& table, std::vector<MeasuredCall>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string& name = table.text(i, "kind");
    const CopyKind kind = name == "d2d"          ? CopyKind::kDeviceToDevice
                          : name == "h2d_pinned" ? CopyKind::kHostToDevice
                                                 : CopyKind::kDeviceToHost;
    out.push_back(
        {"copy " + name, copy_call(kind, Bytes{table.integer(i, "bytes")}), table.number(i, "ms_median") * kMilli});
  }
}

}  // namespace

Expected<std::vector<MeasuredCall>> read_measured_calls(const std::string& directory, int multiprocessors) {
  const Expected<Table> gemm = Table::read(directory + "/gemm_bf16.csv", {"m", "n", "k", "layout", "ms_median"});
  const Expected<Table> attention =
      Table::read(directory + "/attention.csv",
                  {"impl", "pass", "heads", "kv_heads", "head_dim", "q_len", "kv_len", "causal", "ms_median"});
  const Expected<Table> varlen = Table::read(directory + "/cudnn_varlen.csv",
                                             {"heads", "kv_heads", "head_dim", "pieces_q_kv", "pass", "ms_median"});
  const Expected<Table> elementwise =
      Table::read(directory + "/elementwise.csv", {"op", "tokens", "width", "ms_median"});
  const Expected<Table> copy = Table::read(directory + "/copy.csv", {"kind", "bytes", "ms_median"});
  Errors errors;
  for (const Expected<Table>* table : {&gemm, &attention, &varlen, &elementwise, &copy}) {
    if (!*table) errors.insert(errors.end(), table->error().begin(), table->error().end());
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  std::vector<MeasuredCall> out;
  read_gemm(*gemm, multiprocessors, out);
  read_attention(*attention, multiprocessors, out);
  read_varlen(*varlen, multiprocessors, out);
  read_elementwise(*elementwise, out);
  read_copies(*copy, out);
  return out;
}

}  // namespace longhaul
