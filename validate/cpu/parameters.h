// Parameter values that depend on the model alone: every executor and the reference start from the same numbers.
//
// A parameter is known by (unit, layer, element of the unit's flat range), never by how it is sharded. Matrices are
// row-major [in x out] and drawn uniform with variance 1/in; norm weights lie around 1; the embedding table is uniform
// in [-1, 1). Units: kLayer in the order of LayerParameters; kHead is final norm, then the head unless it is tied.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/workload/model.h"

namespace longhaul {

enum class UnitKind : std::uint8_t { kEmbedding, kLayer, kHead };
const char* to_string(UnitKind unit);

// Elements of the unit, without padding.
std::int64_t unit_elements(const ModelShape& model, UnitKind unit);

// All elements of a unit; `layer` counts for kLayer only.
std::vector<double> unit_values(const ModelShape& model, UnitKind unit, std::int64_t layer, std::uint64_t seed);

// Elements begin .. begin + out.size() - 1 of the unit's range, zero beyond its end (padding).
std::vector<double> unit_slice(const std::vector<double>& unit, std::int64_t begin, std::int64_t count);

}  // namespace longhaul
