#include "validate/fit/h200_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "sim/core/units.h"
#include "sim/cost/attention_work.h"
#include "sim/cost/cost_rows.h"
#include "validate/fit/table.h"

namespace longhaul {
namespace {

KernelRow timed(const Table& table, std::size_t i, const std::string& file, const char* op, bool with_launch) {
  KernelRow row;
  row.op = op;
  row.seconds = table.number(i, "ms_median") * kMilli;
  row.alone = row.seconds;
  row.least = table.number(i, "ms_min") * kMilli;
  row.most = table.number(i, "ms_max") * kMilli;
  row.with_launch = with_launch;
  row.file = file;
  row.line = table.line(i);
  return row;
}

void add_gemm(const Table& table, const std::string& file, std::vector<KernelRow>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    KernelRow row = timed(table, i, file, "gemm", true);
    const std::string& layout = table.text(i, "layout");
    row.pass = layout == "tn_fwd" ? "fwd" : layout == "dgrad" ? "bwd-input" : "bwd-weight";
    row.impl = "cublaslt";
    row.m = table.integer(i, "m");
    row.n = table.integer(i, "n");
    row.k = table.integer(i, "k");
    row.name = fmt::format("{}x{}/{}", row.n, row.k, row.m);
    out.push_back(std::move(row));
  }
}

KernelRow attention(const Table& table, std::size_t i, const std::string& file) {
  KernelRow row = timed(table, i, file, "attention", true);
  row.pass = table.text(i, "pass");
  row.q_heads = table.integer(i, "heads");
  row.kv_heads = table.integer(i, "kv_heads");
  row.head_dim = table.integer(i, "head_dim");
  return row;
}

void add_varlen(const Table& table, const std::string& file, std::vector<KernelRow>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    KernelRow row = attention(table, i, file);
    row.impl = "cudnn-ragged";
    row.name = table.text(i, "name");
    row.mask = "causal";
    row.pieces = table.text(i, "pieces_q_kv");
    const auto pieces = parse_pieces(row.pieces, row.mask);
    if (pieces && attention_work(*pieces).mask() == PieceMask::kOffsetCausal) out.push_back(std::move(row));
  }
}

void add_dense(const Table& table, const std::string& file, std::vector<KernelRow>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.text(i, "impl") != "cudnn") continue;
    KernelRow row = attention(table, i, file);
    row.impl = "cudnn";
    row.mask = table.integer(i, "causal") == 1 ? "causal" : "full";
    row.pieces = fmt::format("{}x{}", table.integer(i, "q_len"), table.integer(i, "kv_len"));
    row.name = fmt::format("torch-{}-{}", row.mask, row.pieces);
    out.push_back(std::move(row));
  }
}

void add_copies(const Table& table, const std::string& file, std::vector<KernelRow>& out) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    KernelRow row = timed(table, i, file, "copy", true);
    row.pass = table.text(i, "kind").substr(0, 3);  // "h2d_pinned": h2d
    row.bytes = table.integer(i, "bytes");
    row.name = fmt::format("{}/{}", row.bytes, row.pass);
    out.push_back(std::move(row));
  }
}

bool own_kernel(const KernelRow& row) { return row.impl.starts_with("longhaul"); }

}  // namespace

const std::vector<std::string>& h200_row_files() {
  static const std::vector<std::string> files = {"validate/data/h200/calibrate.csv",
                                                 "validate/data/h200/attention_calls.csv",
                                                 "validate/data/h200/gemm_bf16.csv", "validate/data/h200/copy.csv"};
  return files;
}

Expected<std::vector<KernelRow>> read_h200_rows(const std::string& directory) {
  Expected<std::vector<KernelRow>> rows = read_kernel_rows(directory + "/calibrate.csv");
  const Expected<std::vector<KernelRow>> calls = read_kernel_rows(directory + "/attention_calls.csv");
  Errors errors;
  if (!rows) append(errors, rows.error());
  if (!calls) append(errors, calls.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  std::copy_if(calls->begin(), calls->end(), std::back_inserter(*rows), own_kernel);
  return rows;
}

Expected<std::vector<KernelRow>> read_h200_aside(const std::string& directory) {
  const std::string gemm_file = directory + "/gemm_bf16.csv";
  const std::string dense_file = directory + "/attention.csv";
  const std::string varlen_file = directory + "/cudnn_varlen.csv";
  const std::string copy_file = directory + "/copy.csv";
  const Expected<Table> gemm = Table::read(gemm_file, {"m", "n", "k", "layout", "ms_median", "ms_min", "ms_max"});
  const Expected<Table> dense = Table::read(dense_file, {"impl", "pass", "heads", "kv_heads", "head_dim", "q_len",
                                                         "kv_len", "causal", "ms_median", "ms_min", "ms_max"});
  const Expected<Table> varlen = Table::read(
      varlen_file, {"name", "heads", "kv_heads", "head_dim", "pieces_q_kv", "pass", "ms_median", "ms_min", "ms_max"});
  const Expected<Table> copy = Table::read(copy_file, {"kind", "bytes", "ms_median", "ms_min", "ms_max"});
  const Expected<std::vector<KernelRow>> calls = read_kernel_rows(directory + "/attention_calls.csv");
  Errors errors;
  for (const Expected<Table>* table : {&gemm, &dense, &varlen, &copy}) {
    if (!*table) append(errors, table->error());
  }
  if (!calls) append(errors, calls.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  std::vector<KernelRow> out;
  add_gemm(*gemm, gemm_file, out);
  add_dense(*dense, dense_file, out);
  add_varlen(*varlen, varlen_file, out);
  std::copy_if(calls->begin(), calls->end(), std::back_inserter(out), std::not_fn(own_kernel));
  add_copies(*copy, copy_file, out);
  return out;
}

}  // namespace longhaul
