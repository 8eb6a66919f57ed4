// Rows of numbers that no step made, for attention of sampled rows.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/mix.h"
#include "validate/device/row_reference.h"

namespace longhaul {

// bf16 numbers between -2 and 2.
struct LooseRows {
  std::vector<Bf16> values;
  RowView view;

  LooseRows(std::int64_t rows, std::int64_t columns, std::uint64_t seed)
      : values(static_cast<std::size_t>(rows * columns)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = to_bf16(static_cast<float>(mix(seed + i) >> 40) / static_cast<float>(1 << 22) - 2.0F);
    }
    view.columns = columns;
    for (std::int64_t i = 0; i < rows; ++i) view.of_row.push_back(values.data() + i * columns);
  }
};

// For as long as both live.
inline LayerRows loose_layer(const LooseRows& qkv, const LooseRows& gradient) {
  LayerRows layer;
  layer.qkv = qkv.view;
  layer.d_o = gradient.view;
  return layer;
}

}  // namespace longhaul
