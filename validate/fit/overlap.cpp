#include "validate/fit/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/tools/minima.hpp>
#include <cmath>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/core/order_statistics.h"
#include "validate/fit/residuals.h"
#include "validate/fit/table.h"

namespace longhaul {
namespace {

constexpr double kLeastAdded = 0.05;  // of a kernel's time: what is less is noise of clocks

double& value_of(OverlapConstants& constants, OverlapTerm term) {
  switch (term) {
    case OverlapTerm::kGemmBesideMemoryKernel:
      return constants.gemm.beside_memory_kernel;
    case OverlapTerm::kAttentionBesideMemoryKernel:
      return constants.attention.beside_memory_kernel;
    case OverlapTerm::kComputeBesideHostCopy:
      return constants.compute_beside_host_copy;
    case OverlapTerm::kMemoryKernelBesideCompute:
      return constants.memory_kernel_beside_compute;
    case OverlapTerm::kHostCopyBesideCompute:
      return constants.host_copy_beside_compute;
    case OverlapTerm::kGemmMultiprocessors:
      return constants.gemm.multiprocessors_per_channel;
    case OverlapTerm::kAttentionMultiprocessors:
      return constants.attention.multiprocessors_per_channel;
    case OverlapTerm::kMemoryBytes:
      return constants.memory_bytes_per_transferred_byte;
    case OverlapTerm::kTransferBesideGemm:
      return constants.transfer_beside_gemm;
    case OverlapTerm::kTransferBesideAttention:
      return constants.transfer_beside_attention;
    case OverlapTerm::kTransferBesideMemoryKernel:
      return constants.transfer_beside_memory_kernel;
  }
  LH_ASSERT(false, "unknown overlap term");
}

// Factors start at 1; a channel takes no less than nothing, and a byte moves no less than nothing.
std::pair<double, double> range_of(OverlapTerm term) {
  switch (term) {
    case OverlapTerm::kGemmMultiprocessors:
      return {1, 1};  // steps of whole waves: nothing to descend along
    case OverlapTerm::kAttentionMultiprocessors:
      return {0, 10};
    case OverlapTerm::kMemoryBytes:
      return {0, 20};
    default:
      return {1, 10};
  }
}

// The value with the least sum of squared relative errors over the rows but `skip`. The errors grow to both sides of
// their least, so Brent's method finds it; a slow-down below 1 (noise) gives the lower end of the range itself.
double fit_term(OverlapTerm term, const std::vector<const OverlapRow*>& rows, std::size_t skip,
                const OverlapDevice& device) {
  const auto loss = [&](double value) {
    OverlapConstants constants;
    value_of(constants, term) = value;
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i == skip) continue;
      const double error = predict(constants, device, *rows[i]) / rows[i]->factor - 1;
      sum += error * error;
    }
    return sum;
  };
  constexpr int kBits = 26;  // half of a double's: more cannot be told from a least value
  const auto [lowest, highest] = range_of(term);
  if (lowest == highest) return lowest;
  const double best = boost::math::tools::brent_find_minima(loss, lowest, highest, kBits).first;
  return loss(lowest) <= loss(best) ? lowest : best;
}

}  // namespace

const char* overlap_term_name(OverlapTerm term) {
  static constexpr std::array<const char*, kOverlapTermCount> kNames = {
      "gemm beside memory kernel",    "attention beside memory kernel", "compute beside host copy",
      "memory kernel beside compute", "host copy beside compute",       "gemm beside channels",
      "attention beside channels",    "memory kernel beside transfer",  "transfer beside gemm",
      "transfer beside attention",    "transfer beside memory kernel"};
  return kNames[static_cast<std::size_t>(term)];
}

double predict(const OverlapConstants& constants, const OverlapDevice& device, const OverlapRow& row) {
  const OverlapModel model(constants, device.multiprocessors, device.memory_bandwidth, device.host_link);
  return row.of_transfer ? model.transfer(row.kernel) : model.kernel(row.kernel, row.beside, row.tiles);
}

OverlapFit fit_overlap(std::vector<OverlapRow> rows, const OverlapDevice& device, const OverlapConstants& prior) {
  OverlapFit fit;
  fit.constants = prior;
  fit.rows = std::move(rows);
  fit.fitted.resize(fit.rows.size());
  fit.left_out.resize(fit.rows.size(), 1);
  std::vector<double> measured;
  std::vector<double> predicted;
  for (int i = 0; i < kOverlapTermCount; ++i) {
    const auto term = static_cast<OverlapTerm>(i);
    std::vector<const OverlapRow*> of_term;
    std::vector<std::size_t> places;
    for (std::size_t row = 0; row < fit.rows.size(); ++row) {
      if (fit.rows[row].term != term) continue;
      of_term.push_back(&fit.rows[row]);
      places.push_back(row);
    }
    if (of_term.empty()) continue;
    OverlapConstants alone;  // this constant and no other
    value_of(alone, term) = fit_term(term, of_term, of_term.size(), device);
    value_of(fit.constants, term) = value_of(alone, term);
    for (std::size_t k = 0; k < of_term.size(); ++k) {
      fit.fitted[places[k]] = predict(alone, device, *of_term[k]);
      if (of_term.size() == 1) continue;
      OverlapConstants without;
      value_of(without, term) = fit_term(term, of_term, k, device);
      fit.left_out[places[k]] = predict(without, device, *of_term[k]);
      const bool counts = of_term[k]->as_simulated && !of_term[k]->of_transfer;
      if (!counts || fit.left_out[places[k]] < 1 + kLeastAdded) continue;
      measured.push_back(of_term[k]->factor - 1);
      predicted.push_back(fit.left_out[places[k]] - 1);
    }
  }
  LH_ASSERT(!measured.empty(), "no kernel is slowed down in {} rows", fit.rows.size());
  fit.residuals = band_of(measured, predicted);
  return fit;
}

Expected<std::vector<OverlapRow>> read_overlap_rows(const std::string& directory) {
  const std::string file = directory + "/overlap.csv";
  const Expected<Table> table = Table::read(
      file, {"compute", "beside", "alone_ms", "together_ms", "copy_alone_ms_per_GiB", "copy_together_ms_per_GiB"});
  if (!table) return tl::unexpected(table.error());
  std::vector<OverlapRow> rows;
  Errors errors;
  for (std::size_t i = 0; i < table->size(); ++i) {
    const std::string& compute = table->text(i, "compute");
    const std::string& beside = table->text(i, "beside");
    const bool gemm = compute.starts_with("gemm_");
    const bool host = beside == "h2d" || beside == "d2h";
    const std::string place = fmt::format("row {}", i + 1);
    if (!gemm && !compute.starts_with("attn_")) {
      errors.push_back({file, place, fmt::format("compute is \"{}\"", compute), "gemm_... or attn_...", ""});
      continue;
    }
    if (!host && beside != "d2d_copy" && beside != "elementwise_add") {
      errors.push_back({file, place, fmt::format("beside is \"{}\"", beside), "d2d_copy, elementwise_add, h2d or d2h",
                        nearest_name(beside, {"d2d_copy", "elementwise_add", "h2d", "d2h"})});
      continue;
    }
    const OverlapClass kernel = gemm ? OverlapClass::kGemm : OverlapClass::kAttention;
    OverlapRow of_compute{compute + " beside " + beside,
                          OverlapTerm::kComputeBesideHostCopy,
                          kernel,
                          {},
                          0,
                          false,
                          table->number(i, "together_ms") / table->number(i, "alone_ms")};
    (host ? of_compute.beside.host_copies : of_compute.beside.memory_kernels) = 1;
    if (!host) {
      of_compute.term = gemm ? OverlapTerm::kGemmBesideMemoryKernel : OverlapTerm::kAttentionBesideMemoryKernel;
    }
    OverlapRow of_other{beside + " beside " + compute,
                        host ? OverlapTerm::kHostCopyBesideCompute : OverlapTerm::kMemoryKernelBesideCompute,
                        host ? OverlapClass::kHostCopy : OverlapClass::kMemory,
                        {},
                        0,
                        false,
                        table->number(i, "copy_together_ms_per_GiB") / table->number(i, "copy_alone_ms_per_GiB")};
    (gemm ? of_other.beside.gemms : of_other.beside.attentions) = 1;
    rows.push_back(std::move(of_compute));
    rows.push_back(std::move(of_other));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rows;
}

std::string report(const OverlapFit& fit) {
  std::string out =
      fmt::format("{:<32} {:>5} {:>9} {:>30}\n", "overlap", "rows", "constant", "leave-one-out, %: median max");
  OverlapConstants constants = fit.constants;
  for (int i = 0; i < kOverlapTermCount; ++i) {
    const auto term = static_cast<OverlapTerm>(i);
    std::vector<double> errors;
    for (std::size_t row = 0; row < fit.rows.size(); ++row) {
      if (fit.rows[row].term == term) errors.push_back(100 * std::abs(fit.left_out[row] / fit.rows[row].factor - 1));
    }
    out += fmt::format("{:<32} {:>5} {:>9.4f}", overlap_term_name(term), errors.size(), value_of(constants, term));
    out += errors.empty() ? fmt::format(" {:>22} {:>7}\n", "-", "-")
                          : fmt::format(" {:>22.2f} {:>7.2f}\n", quantile(errors, 0.5), quantile(errors, 1));
  }
  return out;
}

}  // namespace longhaul
