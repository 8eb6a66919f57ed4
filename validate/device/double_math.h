// Double-precision work of references, on what this machine does it fastest with: its cores, or a GPU.
//
// Sixteen cores take a second for what an H200 does in ten milliseconds, and 256 sampled rows of 128K tokens are
// thousands of them. A GPU's results are no judge of themselves: its products and its attention by rows are separate,
// plain kernels in double precision, and tests hold them to the cores' results.
#pragma once

#include <cstdint>
#include <vector>

#include "validate/cpu/wide_product.h"
#include "validate/device/row_reference.h"

namespace longhaul {

class DoubleMath {
 public:
  virtual ~DoubleMath() = default;
  // What is offered products of the reference (reference_step); empty: the cores keep them. For as long as this lives.
  virtual ProductElsewhere products() = 0;
  // reference_rows of row_reference.h.
  virtual std::vector<RowResult> rows(const ModelShape& model, const Batch& batch, const LayerRows& table,
                                      const std::vector<std::int64_t>& rows) = 0;
};

class HostMath : public DoubleMath {
 public:
  explicit HostMath(int threads) : threads_(threads) {}
  ProductElsewhere products() override { return {}; }
  std::vector<RowResult> rows(const ModelShape& model, const Batch& batch, const LayerRows& table,
                              const std::vector<std::int64_t>& rows) override {
    return reference_rows(model, batch, table, rows, threads_);
  }

 private:
  int threads_;
};

}  // namespace longhaul
