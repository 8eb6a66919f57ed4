// Reads what kernels and NCCL's collectives do to each other on two GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/lexical_cast.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "sim/core/order_statistics.h"
#include "sim/core/units.h"
#include "validate/fit/overlap.h"
#include "validate/fit/residuals.h"
#include "validate/fit/table.h"

namespace longhaul {
namespace {

// NCCL 2.28 on two H200 behind a switch, from its log (validate/data/h200x2/README.md).
constexpr int kCollectiveChannels = 24;
constexpr int kSendChannels = 32;

const std::vector<std::string> kCollectives = {"all_reduce", "all_gather", "reduce_scatter", "alltoall"};
const std::vector<std::string> kColumns = {
    "compute", "beside", "bytes", "ctas", "gpus", "alone_ms", "together_ms", "beside_alone_ms", "beside_together_ms"};

bool is_collective(const std::string& beside) {
  return std::find(kCollectives.begin(), kCollectives.end(), beside) != kCollectives.end();
}

std::optional<OverlapClass> class_of(const std::string& compute) {
  if (compute.starts_with("gemm_")) return OverlapClass::kGemm;
  if (compute.starts_with("attn_")) return OverlapClass::kAttention;
  if (compute.starts_with("cast_")) return OverlapClass::kMemory;
  return std::nullopt;
}

// "gemm_16384x14336x4096": m, n, k.
std::int64_t tiles_of(const std::string& compute) {
  std::vector<std::string> sizes;
  const std::string numbers = compute.substr(compute.find('_') + 1);
  boost::split(sizes, numbers, boost::is_any_of("x"));
  if (sizes.size() != 3) throw std::invalid_argument("\"" + compute + "\" is not gemm_MxNxK");
  return gemm_tiles(boost::lexical_cast<std::int64_t>(sizes[0]), boost::lexical_cast<std::int64_t>(sizes[1]));
}

OverlapTerm transfer_term(OverlapClass kernel) {
  if (kernel == OverlapClass::kGemm) return OverlapTerm::kTransferBesideGemm;
  return kernel == OverlapClass::kAttention ? OverlapTerm::kTransferBesideAttention
                                            : OverlapTerm::kTransferBesideMemoryKernel;
}

int channels_of(const Table& table, std::size_t row) {
  const int own = table.text(row, "beside") == "alltoall" ? kSendChannels : kCollectiveChannels;
  if (table.text(row, "ctas") == "default") return own;
  return std::min(static_cast<int>(table.integer(row, "ctas")), own);
}

// Sent and received by one of n ranks; sizes as nccl-tests counts them.
double moved_bytes(const Table& table, std::size_t row) {
  const double ranks = static_cast<double>(table.integer(row, "gpus"));
  const double passes = table.text(row, "beside") == "all_reduce" ? 2 : 1;
  return 2 * passes * static_cast<double>(table.integer(row, "bytes")) * (ranks - 1) / ranks;
}

void add_row(const Table& table, std::size_t i, OverlapClass kernel, std::vector<OverlapRow>& rows) {
  const std::string& compute = table.text(i, "compute");
  const std::string& beside = table.text(i, "beside");
  const bool own_channels = table.text(i, "ctas") == "default";
  const std::string name = fmt::format("{} beside {}, {} channels", compute, beside, channels_of(table, i));
  OverlapRow row{name, OverlapTerm::kMemoryBytes, kernel, {}, 0, false, 1, own_channels};
  row.factor = table.number(i, "together_ms") / table.number(i, "alone_ms");
  if (kernel == OverlapClass::kMemory) {
    row.beside.transferred_bytes_per_second = moved_bytes(table, i) / (table.number(i, "beside_together_ms") * kMilli);
  } else {
    row.term =
        kernel == OverlapClass::kGemm ? OverlapTerm::kGemmMultiprocessors : OverlapTerm::kAttentionMultiprocessors;
    row.beside.channels = channels_of(table, i);
    if (kernel == OverlapClass::kGemm) row.tiles = tiles_of(compute);
  }
  rows.push_back(row);
  if (!own_channels) return;
  rows.push_back({beside + " beside " + compute,
                  transfer_term(kernel),
                  kernel,
                  {},
                  0,
                  true,
                  table.number(i, "beside_together_ms") / table.number(i, "beside_alone_ms"),
                  true});
}

void read_covered(const std::string& file, std::vector<OverlapRow>& rows, Errors& errors) {
  const Expected<Table> table = Table::read(file, kColumns);
  if (!table) {
    append(errors, table.error());
    return;
  }
  for (std::size_t i = 0; i < table->size(); ++i) {
    const std::string& beside = table->text(i, "beside");
    const std::optional<OverlapClass> kernel = class_of(table->text(i, "compute"));
    if (!kernel) {
      errors.push_back({file, fmt::format("row {}", i + 1), fmt::format("compute is \"{}\"", table->text(i, "compute")),
                        "gemm_..., attn_... or cast_...", ""});
    } else if (is_collective(beside)) {
      add_row(*table, i, *kernel, rows);
    } else if (beside != "peer_copy") {
      std::vector<std::string> known = kCollectives;
      known.push_back("peer_copy");
      errors.push_back({file, fmt::format("row {}", i + 1), fmt::format("beside is \"{}\"", beside),
                        "a collective or peer_copy", nearest_name(beside, known)});
    }
  }
}

// Copies over the host link beside matrix products; whether a transfer of another kind lies beside says nothing here.
void read_host_copies(const std::string& file, std::vector<OverlapRow>& rows, Errors& errors) {
  const Expected<Table> table = Table::read(file, kColumns);
  if (!table) {
    append(errors, table.error());
    return;
  }
  for (std::size_t i = 0; i < table->size(); ++i) {
    const std::string& beside = table->text(i, "beside");
    const std::string& compute = table->text(i, "compute");
    if ((beside != "h2d_copy" && beside != "d2h_copy") || class_of(compute) != OverlapClass::kGemm) continue;
    OverlapRow of_compute{compute + " beside " + beside,
                          OverlapTerm::kComputeBesideHostCopy,
                          OverlapClass::kGemm,
                          {},
                          0,
                          false,
                          table->number(i, "together_ms") / table->number(i, "alone_ms")};
    of_compute.beside.host_copies = 1;
    OverlapRow of_copy{beside + " beside " + compute,
                       OverlapTerm::kHostCopyBesideCompute,
                       OverlapClass::kHostCopy,
                       {},
                       0,
                       false,
                       table->number(i, "beside_together_ms") / table->number(i, "beside_alone_ms")};
    of_copy.beside.gemms = 1;
    rows.push_back(std::move(of_compute));
    rows.push_back(std::move(of_copy));
  }
}

// Time of short collectives beside a kernel over the kernel's, by class.
void add_waits(const Table& table, std::vector<double>& gemm, std::vector<double>& attention) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const bool short_one = 3 * table.number(i, "beside_alone_ms") < table.number(i, "alone_ms");
    if (!is_collective(table.text(i, "beside")) || table.text(i, "ctas") != "default" || !short_one) continue;
    const std::optional<OverlapClass> kernel = class_of(table.text(i, "compute"));
    const double wait = table.number(i, "beside_together_ms") / table.number(i, "together_ms");
    if (kernel == OverlapClass::kGemm) gemm.push_back(wait);
    if (kernel == OverlapClass::kAttention) attention.push_back(wait);
  }
}

}  // namespace

Expected<void> read_holds(const std::string& directory, OverlapConstants& constants) {
  constexpr double kHeld = 0.5;
  std::vector<double> gemm;
  std::vector<double> attention;
  Errors errors;
  for (const char* name : {"/overlap.csv", "/overlap_attention.csv"}) {
    const Expected<Table> table = Table::read(directory + name, kColumns);
    if (table) {
      add_waits(*table, gemm, attention);
    } else {
      append(errors, table.error());
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  constants.gemm.holds_transfers = !gemm.empty() && quantile(gemm, 0.5) >= kHeld;
  constants.attention.holds_transfers = !attention.empty() && quantile(attention, 0.5) >= kHeld;
  return {};
}

Expected<std::vector<OverlapRow>> read_transfer_rows(const std::string& directory) {
  std::vector<OverlapRow> rows;
  Errors errors;
  read_covered(directory + "/overlap_covered.csv", rows, errors);
  read_covered(directory + "/overlap_attention_covered.csv", rows, errors);
  read_host_copies(directory + "/overlap.csv", rows, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rows;
}

}  // namespace longhaul
