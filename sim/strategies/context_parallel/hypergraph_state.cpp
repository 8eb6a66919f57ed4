#include "sim/strategies/context_parallel/hypergraph_state.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

namespace longhaul::hyper {
namespace {

constexpr int kMostPasses = 6;
constexpr double kRounding = 1e-9;     // of an excess that is a sum of differences
constexpr std::size_t kPatience = 64;  // moves without a better cut before a pass ends, and a 16th of the vertices

Hypergraph::Weights plus(const Hypergraph::Weights& a, const Hypergraph::Weights& b) {
  return {a[0] + b[0], a[1] + b[1]};
}
Hypergraph::Weights minus(const Hypergraph::Weights& a, const Hypergraph::Weights& b) {
  return {a[0] - b[0], a[1] - b[1]};
}

}  // namespace

Capacity::Capacity(const Hypergraph& graph, std::int32_t count, double epsilon) {
  for (std::size_t d = 0; d < 2; ++d) {
    std::int64_t sum = 0;
    for (const Hypergraph::Weights& weights : graph.vertices) sum += weights[d];
    if (sum > 0) scale_[d] = static_cast<double>(count) / (static_cast<double>(sum) * (1 + epsilon));
  }
}

double Capacity::fill(const Hypergraph::Weights& weights) const {
  return std::max(static_cast<double>(weights[0]) * scale_[0], static_cast<double>(weights[1]) * scale_[1]);
}

double Capacity::excess(const Hypergraph::Weights& weights) const {
  double sum = 0;
  for (std::size_t d = 0; d < 2; ++d) sum += std::max(0.0, static_cast<double>(weights[d]) * scale_[d] - 1);
  return sum;
}

PartitionState::PartitionState(const Hypergraph& graph, std::int32_t count, double epsilon, Assignment parts)
    : graph_(graph),
      count_(count),
      capacity_(graph, count, epsilon),
      parts_(std::move(parts)),
      nets_of_(graph.vertices.size()),
      pins_(graph.nets.size() * static_cast<std::size_t>(count), 0),
      loads_(part_weights(graph, parts_, count)) {
  for (std::size_t n = 0; n < graph.nets.size(); ++n) {
    for (const std::int32_t pin : graph.nets[n].pins) {
      nets_of_[static_cast<std::size_t>(pin)].push_back(static_cast<std::int32_t>(n));
      ++pins(n, parts_[static_cast<std::size_t>(pin)]);
    }
  }
  for (const Hypergraph::Weights& weights : graph.vertices) {
    heaviest_ = std::max(heaviest_, capacity_.fill(weights));
  }
  excess_ = excess();
}

double PartitionState::excess() const {
  double sum = 0;
  for (const Hypergraph::Weights& load : loads_) sum += capacity_.excess(load);
  return sum;
}

std::int64_t PartitionState::gain(std::int32_t vertex, std::int32_t to) {
  const std::int32_t from = parts_[static_cast<std::size_t>(vertex)];
  std::int64_t sum = 0;
  for (const std::int32_t n : nets_of_[static_cast<std::size_t>(vertex)]) {
    const auto net = static_cast<std::size_t>(n);
    if (pins(net, from) == 1) sum += graph_.nets[net].cost;
    if (pins(net, to) == 0) sum -= graph_.nets[net].cost;
  }
  return sum;
}

double PartitionState::excess_change(std::int32_t vertex, std::int32_t to) const {
  const Hypergraph::Weights& weights = graph_.vertices[static_cast<std::size_t>(vertex)];
  const Hypergraph::Weights& source = loads_[static_cast<std::size_t>(parts_[static_cast<std::size_t>(vertex)])];
  const Hypergraph::Weights& target = loads_[static_cast<std::size_t>(to)];
  return capacity_.excess(minus(source, weights)) - capacity_.excess(source) + capacity_.excess(plus(target, weights)) -
         capacity_.excess(target);
}

// The move of greatest gain that adds no excess, or leaves at most `allowed` of it; then the one into the emptier part.
PartitionState::Move PartitionState::best_move(std::int32_t vertex, double allowed) {
  Move best;
  best.vertex = vertex;
  double best_fill = 0;
  const Hypergraph::Weights& weights = graph_.vertices[static_cast<std::size_t>(vertex)];
  for (std::int32_t to = 0; to < count_; ++to) {
    if (to == parts_[static_cast<std::size_t>(vertex)]) continue;
    const double change = excess_change(vertex, to);
    if (change > 0 && excess_ + change > allowed) continue;
    const std::int64_t value = gain(vertex, to);
    const double fill = capacity_.fill(plus(loads_[static_cast<std::size_t>(to)], weights));
    if (best.to >= 0 && (value < best.gain || (value == best.gain && fill >= best_fill))) continue;
    best.to = to;
    best.gain = value;
    best_fill = fill;
  }
  return best;
}

void PartitionState::apply(std::int32_t vertex, std::int32_t to, std::vector<std::int32_t>* risen) {
  const std::int32_t from = parts_[static_cast<std::size_t>(vertex)];
  for (const std::int32_t n : nets_of_[static_cast<std::size_t>(vertex)]) {
    const auto net = static_cast<std::size_t>(n);
    const bool last_here = --pins(net, from) == 1;  // whoever is left would now free the part
    const bool first_there = ++pins(net, to) == 1;  // the others may now follow at no cost
    if (risen == nullptr || !(last_here || first_there)) continue;
    risen->insert(risen->end(), graph_.nets[net].pins.begin(), graph_.nets[net].pins.end());
  }
  excess_ += excess_change(vertex, to);
  const Hypergraph::Weights& weights = graph_.vertices[static_cast<std::size_t>(vertex)];
  loads_[static_cast<std::size_t>(from)] = minus(loads_[static_cast<std::size_t>(from)], weights);
  loads_[static_cast<std::size_t>(to)] = plus(loads_[static_cast<std::size_t>(to)], weights);
  parts_[static_cast<std::size_t>(vertex)] = to;
}

namespace {

// Vertices of parts above their bound, by what their moves have in common: part, weights and destination fix how much
// excess a move takes away, so that of each kind only the move of greatest gain counts. A heap may hold old gains and
// vertices that left; `now` tells which.
class MoveKinds {
 public:
  using Now = std::function<std::optional<std::int64_t>(std::int32_t vertex, std::int32_t part, std::int32_t to)>;

  MoveKinds(const Hypergraph& graph, std::int32_t count, Now now) : now_(std::move(now)) {
    std::map<Hypergraph::Weights, std::int32_t> known;
    for (const Hypergraph::Weights& weights : graph.vertices) {
      const auto [entry, fresh] = known.try_emplace(weights, static_cast<std::int32_t>(known.size()));
      kind_.push_back(entry->second);
    }
    heaps_.resize(static_cast<std::size_t>(count));
    for (auto& of_part : heaps_) of_part.resize(static_cast<std::size_t>(count));
  }

  void offer(std::int32_t vertex, std::int32_t part, std::int32_t to, std::int64_t gain) {
    auto& kinds = heaps_[static_cast<std::size_t>(part)][static_cast<std::size_t>(to)];
    kinds[kind_[static_cast<std::size_t>(vertex)]].emplace(gain, -vertex);
  }
  // Calls `visit(gain, vertex)` for the best move of each kind; of equal gains the lower vertex.
  template <class Visit>
  void for_best(std::int32_t part, std::int32_t to, const Visit& visit) {
    auto& kinds = heaps_[static_cast<std::size_t>(part)][static_cast<std::size_t>(to)];
    for (auto kind = kinds.begin(); kind != kinds.end();) {
      auto& heap = kind->second;
      while (!heap.empty() && now_(-heap.top().second, part, to) != heap.top().first) heap.pop();
      if (heap.empty()) {
        kind = kinds.erase(kind);
        continue;
      }
      visit(heap.top().first, -heap.top().second);
      ++kind;
    }
  }

 private:
  using Heap = std::priority_queue<std::pair<std::int64_t, std::int32_t>>;  // gain, -vertex
  Now now_;
  std::vector<std::int32_t> kind_;                                // by vertex: its weights
  std::vector<std::vector<std::map<std::int32_t, Heap>>> heaps_;  // by part, destination; then by kind
};

}  // namespace

// Moves out of parts above their bound, each time the one that costs least cut for the excess that it takes away; of
// equals the lower vertex, then the lower part.
void PartitionState::balance() {
  if (excess() <= 0) return;
  MoveKinds moves(graph_, count_, [&](std::int32_t vertex, std::int32_t part, std::int32_t to) {
    const bool here = parts_[static_cast<std::size_t>(vertex)] == part;
    return here ? std::optional(gain(vertex, to)) : std::nullopt;
  });
  std::vector<char> offered(static_cast<std::size_t>(count_), 0);
  const auto offer = [&](std::int32_t vertex) {
    const std::int32_t part = parts_[static_cast<std::size_t>(vertex)];
    if (offered[static_cast<std::size_t>(part)] == 0) return;
    for (std::int32_t to = 0; to < count_; ++to) {
      if (to != part) moves.offer(vertex, part, to, gain(vertex, to));
    }
  };
  for (std::size_t step = 0; step < graph_.vertices.size() && excess() > 0; ++step) {
    Move best;
    double best_cost = 0;
    for (std::int32_t part = 0; part < count_; ++part) {
      const auto p = static_cast<std::size_t>(part);
      if (capacity_.excess(loads_[p]) <= 0) continue;
      if (offered[p] == 0) {
        offered[p] = 1;
        for (std::size_t v = 0; v < parts_.size(); ++v) {
          if (parts_[v] == part) offer(static_cast<std::int32_t>(v));
        }
      }
      for (std::int32_t to = 0; to < count_; ++to) {
        if (to == part) continue;
        moves.for_best(part, to, [&](std::int64_t value, std::int32_t vertex) {
          const double change = excess_change(vertex, to);
          if (change >= 0) return;
          // A gain is better the more excess goes with it, a loss the less it is for each unit of excess.
          const double cost = value > 0 ? static_cast<double>(value) * change : static_cast<double>(value) / change;
          const bool before = vertex != best.vertex ? vertex < best.vertex : to < best.to;
          if (best.to >= 0 && (cost > best_cost || (cost == best_cost && !before))) return;
          best = {value, vertex, to};
          best_cost = cost;
        });
      }
    }
    if (best.to < 0) return;
    apply(best.vertex, best.to, nullptr);
    offer(best.vertex);
    for (const std::int32_t net : nets_of_[static_cast<std::size_t>(best.vertex)]) {
      for (const std::int32_t pin : graph_.nets[static_cast<std::size_t>(net)].pins) {
        if (pin != best.vertex) offer(pin);
      }
    }
  }
}

// One Fiduccia-Mattheyses pass; whether the cut went down. Each vertex moves at most once; the queue may hold old
// gains, which are looked at again when they come up. On its way a loose pass may overfill parts by two of the heaviest
// vertices, so that vertices can change places; no pass ends with more excess than it began with.
bool PartitionState::pass(bool loose) {
  const double bound = excess() + kRounding;
  const double allowed = loose ? bound + 2 * heaviest_ : 0;
  using Entry = std::tuple<std::int64_t, std::int32_t, std::int32_t>;  // gain, -vertex, to
  std::priority_queue<Entry> queue;
  std::vector<std::int64_t> queued(parts_.size(), INT64_MIN);
  std::vector<char> moved(parts_.size(), 0);
  const auto offer = [&](std::int32_t vertex) {
    const auto v = static_cast<std::size_t>(vertex);
    if (moved[v] != 0 || nets_of_[v].empty()) return;
    const Move move = best_move(vertex, allowed);
    if (move.to < 0 || move.gain <= queued[v]) return;
    queued[v] = move.gain;
    queue.emplace(move.gain, -vertex, move.to);
  };
  for (std::size_t v = 0; v < parts_.size(); ++v) offer(static_cast<std::int32_t>(v));
  struct Done {
    std::int32_t vertex, from;
  };
  std::vector<Done> done;
  std::size_t best_length = 0;
  std::int64_t sum = 0, best_sum = 0;
  std::vector<std::int32_t> risen;
  const std::size_t patience = kPatience + parts_.size() / 16;
  while (!queue.empty() && done.size() - best_length < patience) {
    const auto [value, negated, to] = queue.top();
    queue.pop();
    const std::int32_t vertex = -negated;
    const auto v = static_cast<std::size_t>(vertex);
    if (moved[v] != 0 || value != queued[v]) continue;
    queued[v] = INT64_MIN;
    const Move now = best_move(vertex, allowed);
    if (now.to < 0) continue;
    if (now.gain < value) {
      queued[v] = now.gain;
      queue.emplace(now.gain, -vertex, now.to);
      continue;
    }
    moved[v] = 1;
    done.push_back({vertex, parts_[v]});
    risen.clear();
    apply(vertex, now.to, &risen);
    sum += now.gain;
    if (sum > best_sum && excess_ <= bound) {
      best_sum = sum;
      best_length = done.size();
    }
    for (const std::int32_t pin : risen) offer(pin);
  }
  while (done.size() > best_length) {
    apply(done.back().vertex, done.back().from, nullptr);
    done.pop_back();
  }
  excess_ = excess();  // free of what rounding added up
  return best_sum > 0;
}

bool PartitionState::refine() {
  balance();
  excess_ = excess();
  for (int i = 0; i < kMostPasses; ++i) {
    const bool strict = pass(false), loose = pass(true);
    if (!strict && !loose) return true;
  }
  return false;
}

}  // namespace longhaul::hyper
