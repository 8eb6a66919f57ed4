// Balanced partition of a hypergraph with two weights a vertex, minimising sum of cost x (lambda - 1) over nets, lambda
// the number of parts that a net touches (DCP's objective, flashcp.md 2.6).
//
// Multilevel: the caller names the clusters of every level, coarsest first (for attention they follow from the
// documents; a matching would find the same ones). The coarsest level is placed greedily, each level is then refined by
// Fiduccia-Mattheyses passes over all parts with roll-back to the best prefix. Integers and comparisons of doubles made
// by + - * / alone: the result is a function of its input. Ties go to the lower vertex and the lower part.
//
// Why our own: Debian's METIS and Scotch partition graphs, where a tensor that k ranks read costs k - 1 edges only by
// chance of the tree chosen, and METIS draws from the process's rand(), which threads of a sweep share; Zoltan balances
// one weight a vertex and needs MPI; PaToH and KaHyPar, which DCP uses, are not in Debian.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

struct Hypergraph {
  using Weights = std::array<std::int64_t, 2>;
  struct Net {
    std::int64_t cost = 0;
    std::vector<std::int32_t> pins;  // vertices, without repeats
  };
  std::vector<Weights> vertices;
  std::vector<Net> nets;
};

// By vertex: its part, or its cluster.
using Assignment = std::vector<std::int32_t>;

// Sum of cost x (lambda - 1).
std::int64_t cut_cost(const Hypergraph& graph, const Assignment& parts);
// By part: the sums of both weights.
std::vector<Hypergraph::Weights> part_weights(const Hypergraph& graph, const Assignment& parts, std::int32_t count);

// A part of least cut among those found in which no part's weight exceeds (1 + epsilon) x the mean or, where single
// vertices make that impossible, the least excess found. `levels`: clusters of each level, coarsest first, each a
// refinement of the one before; ids may have gaps. `count` >= 1, `epsilon` >= 0.
Assignment partition_hypergraph(const Hypergraph& graph, std::span<const Assignment> levels, std::int32_t count,
                                double epsilon);

}  // namespace longhaul
