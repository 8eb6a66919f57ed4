// Tensors that a step left, put into the order of the undistributed reference: rows document by document
// (validate/cpu/reference.h), parameter gradients by element of their unit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/bf16.h"
#include "validate/cpu/parameters.h"
#include "validate/device/device_executor.h"

namespace longhaul {

// First row of every document, and rows in all (two a token in block diffusion: noisy ones first).
struct RowOrder {
  std::vector<std::int64_t> document_row;
  std::int64_t rows = 0;
  bool noisy = false;

  explicit RowOrder(const Batch& batch);
  std::int64_t row(const Batch& batch, const RowToken& token) const;
};

// Rows x columns in reference order; rows that nobody gave are not seen.
template <class Element>
struct RowTable {
  std::int64_t columns = 0;
  std::vector<Element> values;
  std::vector<bool> seen;  // by row

  RowTable() = default;
  RowTable(std::int64_t rows, std::int64_t width)
      : columns(width), values(static_cast<std::size_t>(rows * width)), seen(static_cast<std::size_t>(rows), false) {}
  std::int64_t rows() const { return static_cast<std::int64_t>(seen.size()); }
  const Element* row(std::int64_t i) const { return values.data() + i * columns; }
  Element* row(std::int64_t i) { return values.data() + i * columns; }
};

// Rows where they lie in a step's tensors, in reference order; none where nobody gave the row. For as long as the
// StepOutcome lives: at 128K tokens a copy of the rows takes longer than what they are compared with.
struct RowView {
  std::int64_t columns = 0;
  std::vector<const Bf16*> of_row;

  std::int64_t rows() const { return static_cast<std::int64_t>(of_row.size()); }
  const Bf16* row(std::int64_t i) const { return of_row[static_cast<std::size_t>(i)]; }
  bool holds(std::int64_t i) const { return i < rows() && row(i) != nullptr; }
};

// The layer of a step's tensor.
std::int16_t layer_of(const StepTensor& tensor);

// One kind ("qkv", "attention_output", ...) of one layer, bf16; where several ranks or instances hold a row, the last
// one launched counts.
RowView rows_of(const Schedule& schedule, const StepOutcome& outcome, const std::string& kind, std::int16_t layer);
RowView rows_of(const Schedule& schedule, StepOutcome&& outcome, const std::string& kind, std::int16_t layer) = delete;
// Log-sum-exps of one layer, rows x query heads, as its attention backward ops found them.
RowTable<float> gather_lse(const Schedule& schedule, const StepOutcome& outcome, std::int16_t layer);

}  // namespace longhaul
