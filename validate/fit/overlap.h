// Fits the overlap constants (sim/cost/overlap.h) to measured slow-downs, one constant at a time: a row depends on one
// of them alone, so each is the least-squares solution of the rows that it explains, and the rows of one constant say
// nothing about another. Rows of memory-bound kernels beside transfers hold what the transfers moved while together.
//
// Errors are relative to the measured factor; leave-one-out: each row is predicted by the other rows of its constant.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/calibration.h"

namespace longhaul {

enum class OverlapTerm {
  kGemmBesideMemoryKernel,
  kAttentionBesideMemoryKernel,
  kComputeBesideHostCopy,
  kMemoryKernelBesideCompute,
  kHostCopyBesideCompute,
  kGemmMultiprocessors,       // per channel; not fitted: 1, and the waves of tiles say the rest
  kAttentionMultiprocessors,  // per channel
  kMemoryBytes,               // per transferred byte
  kTransferBesideGemm,
  kTransferBesideAttention,
  kTransferBesideMemoryKernel,
};
inline constexpr int kOverlapTermCount = 11;
const char* overlap_term_name(OverlapTerm term);

// One measured slow-down: of a kernel, or of a transfer beside a kernel.
struct OverlapRow {
  std::string name;
  OverlapTerm term = OverlapTerm::kGemmBesideMemoryKernel;  // the constant that it depends on
  OverlapClass kernel = OverlapClass::kGemm;
  Beside beside;             // of the kernel
  std::int64_t tiles = 0;    // of a GEMM beside channels
  bool of_transfer = false;  // the factor is that of the transfer beside the kernel
  double factor = 1;         // time together / time alone
  bool as_simulated = true;  // false: a set-up that simulations do not have; no part of the residuals
};

struct OverlapDevice {
  int multiprocessors = 0;
  BytesPerSecond memory_bandwidth;  // what large copies reach
  BytesPerSecond host_link;
};

struct OverlapFit {
  OverlapConstants constants;
  std::vector<OverlapRow> rows;
  std::vector<double> fitted;
  std::vector<double> left_out;  // by a fit without that row; of a constant's only row: by no slow-down
  ResidualBand residuals;  // leave-one-out, of what is added to kernel times where that is 5 % or more and as simulated
};

double predict(const OverlapConstants& constants, const OverlapDevice& device, const OverlapRow& row);
// A constant without rows keeps the value in `prior`.
OverlapFit fit_overlap(std::vector<OverlapRow> rows, const OverlapDevice& device, const OverlapConstants& prior);

// overlap.csv of validate/data/h200: GEMM and attention beside copies and an element-wise kernel; two rows a line.
Expected<std::vector<OverlapRow>> read_overlap_rows(const std::string& directory);
// Kernels beside NCCL's collectives (validate/data/h200x2): overlap_covered.csv, overlap_attention_covered.csv, and the
// host copies of overlap.csv. All faults of all files at once.
//
// The runs alone were made at the clocks of the runs together (the tables' heads say how). A transfer's own factor is
// that at NCCL's own number of channels, the one that transfers have in a simulation.
Expected<std::vector<OverlapRow>> read_transfer_rows(const std::string& directory);
// Whether GEMM and attention kernels keep a collective that is launched while they run off the device: `overlap.csv`
// and `overlap_attention.csv`, loops of calls on two streams. True of a class if a collective of less than a third of
// the kernel's time takes at least half of it beside the kernel (median over collectives, NCCL's own channels, any
// priority). Writes `holds_transfers` of both.
Expected<void> read_holds(const std::string& directory, OverlapConstants& constants);
// Errors by constant, %.
std::string report(const OverlapFit& fit);

}  // namespace longhaul
