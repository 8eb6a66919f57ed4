#include "validate/device/cuda/row_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

namespace longhaul {
namespace {

// The stride counts for nothing.
bool is_first_row(const DeviceRows& rows) { return rows.index == nullptr && rows.rows <= 1; }

bool tight(const DeviceRows& rows) {
  return rows.index == nullptr && (rows.stride == rows.columns || is_first_row(rows));
}

// Rows without gaps as one row.
DeviceRows flat(const DeviceRows& rows) {
  DeviceRows one = rows;
  one.columns = rows.rows * rows.columns;
  one.stride = one.columns;
  one.rows = 1;
  return one;
}

// Whether every group of every row starts at a multiple of 16 bytes.
bool grouped(const DeviceRows& rows) {
  return rows.columns % kWideGroup == 0 && (rows.stride % kWideGroup == 0 || is_first_row(rows)) &&
         reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0;
}

DeviceRows columns_from(const DeviceRows& rows, std::int64_t begin) {
  DeviceRows rest = rows;
  rest.columns -= begin;
  rest.data = static_cast<char*>(rows.data) + begin * (rows.bf16 ? 2 : 4);
  return rest;
}

RowLaunch launch_of(std::vector<DeviceRows> rows, int group) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const std::int64_t count = rows.front().rows, groups = rows.front().columns / group;
  if (count > kMost || groups > kMost) {
    throw std::invalid_argument(
        fmt::format("rows: {} rows of {} groups of {}; supported are fewer than 2^32 of both", count, groups, group));
  }
  return {std::move(rows), group};
}

}  // namespace

std::vector<RowLaunch> row_launches(std::vector<DeviceRows> operands) {
  std::vector<RowLaunch> launches;
  if (operands.front().rows == 0 || operands.front().columns == 0) return launches;
  if (std::all_of(operands.begin(), operands.end(), tight)) {
    for (DeviceRows& rows : operands) rows = flat(rows);
  }
  const std::int64_t columns = operands.front().columns, body = columns / kWideGroup * kWideGroup;
  if (operands.front().rows == 1 && body > 0 && body < columns) {
    std::vector<DeviceRows> most = operands, rest;
    for (DeviceRows& rows : most) rows.columns = body;
    if (std::all_of(most.begin(), most.end(), grouped)) {
      for (const DeviceRows& rows : operands) rest.push_back(columns_from(rows, body));
      launches.push_back(launch_of(std::move(most), kWideGroup));
      launches.push_back(launch_of(std::move(rest), 1));
      return launches;
    }
  }
  const bool wide = std::all_of(operands.begin(), operands.end(), grouped);
  launches.push_back(launch_of(std::move(operands), wide ? kWideGroup : 1));
  return launches;
}

}  // namespace longhaul
