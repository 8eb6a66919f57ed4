// A partition in the making: pins of nets by part, loads, and the moves that refine it. Internal to hypergraph.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/context_parallel/hypergraph.h"

namespace longhaul::hyper {

// How full a part is: its larger weight over (1 + epsilon) x mean; at most 1 where it is within bounds.
class Capacity {
 public:
  Capacity(const Hypergraph& graph, std::int32_t count, double epsilon);
  double fill(const Hypergraph::Weights& weights) const;
  // Sum over both weights of what exceeds the bound, in units of it.
  double excess(const Hypergraph::Weights& weights) const;

 private:
  double scale_[2] = {0, 0};
};

class PartitionState {
 public:
  PartitionState(const Hypergraph& graph, std::int32_t count, double epsilon, Assignment parts);

  // Brings every part within bounds as far as single moves do, then lowers the cut. Whether it ended where it would
  // begin and end again.
  bool refine();
  const Assignment& parts() const { return parts_; }
  double excess() const;

 private:
  struct Move {
    std::int64_t gain = 0;  // of the cut
    std::int32_t vertex = -1;
    std::int32_t to = -1;
  };
  std::int32_t& pins(std::size_t net, std::int32_t part) {
    return pins_[net * static_cast<std::size_t>(count_) + static_cast<std::size_t>(part)];
  }
  std::int64_t gain(std::int32_t vertex, std::int32_t to);
  double excess_change(std::int32_t vertex, std::int32_t to) const;
  Move best_move(std::int32_t vertex, double allowed);
  // Moves the vertex; lists the pins whose gains may have risen.
  void apply(std::int32_t vertex, std::int32_t to, std::vector<std::int32_t>* risen);
  void balance();
  bool pass(bool loose);

  const Hypergraph& graph_;
  std::int32_t count_;
  Capacity capacity_;
  Assignment parts_;
  std::vector<std::vector<std::int32_t>> nets_of_;
  std::vector<std::int32_t> pins_;  // net x part
  std::vector<Hypergraph::Weights> loads_;
  double excess_ = 0;    // kept up to date by moves
  double heaviest_ = 0;  // vertex, as a part of a bound
};

}  // namespace longhaul::hyper
