// Orders that cover evenly wherever they are cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace longhaul {

// Point `index` of the additive recurrence with the generalised golden ratio of `dimensions` (1 to 4): coordinates in
// [0, 1), every prefix spread over the unit cube (M. Roberts, "The unreasonable effectiveness of quasirandom
// sequences", 2018). Coordinate d is frac(0.5 + (index + 1) / g^(d + 1)), g the root above 1 of g^(D+1) = g + 1.
std::vector<double> even_point(std::size_t index, int dimensions);

// Lists of these lengths merged so that each keeps its order and all progress alike: which list each place takes.
std::vector<std::size_t> even_merge(const std::vector<std::size_t>& lengths);

}  // namespace longhaul
