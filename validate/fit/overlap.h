// Fits the overlap constants (sim/cost/overlap.h) to measured slow-downs, one constant at a time: a slow-down depends
// on one of them alone, so each is the least-squares solution of the rows that it explains, and the rows of one
// constant say nothing about another.
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
  kGemmMultiprocessors,       // per channel
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
  bool of_transfer = false;  // the factor is that of the transfer beside the kernel
  double factor = 1;         // time together / time alone
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
  ResidualBand residuals;        // of what is added to kernel times, leave-one-out
};

double predict(const OverlapConstants& constants, const OverlapDevice& device, const OverlapRow& row);
// A constant without rows keeps the value in `prior`.
OverlapFit fit_overlap(std::vector<OverlapRow> rows, const OverlapDevice& device, const OverlapConstants& prior);

// overlap.csv of validate/data/h200: GEMM and attention beside copies and an element-wise kernel; two rows a line.
Expected<std::vector<OverlapRow>> read_overlap_rows(const std::string& directory);
// Errors by constant, %.
std::string report(const OverlapFit& fit);

}  // namespace longhaul
