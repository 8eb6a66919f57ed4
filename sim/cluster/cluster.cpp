#include "sim/cluster/cluster.h"

#include <algorithm>

#include "sim/cluster/apply_what_ifs.h"
#include "sim/cluster/graph_routes.h"
#include "sim/cluster/touched_routes.h"
#include "sim/core/invariant.h"
#include "sim/core/mix.h"

namespace longhaul {
namespace {

int parts_of(int nodes, int nodes_per_part, int links_per_part) {
  return links_per_part == 0 ? 0 : (nodes - 1) / nodes_per_part + 1;
}

// Every way in which two nodes can stand to each other, by PairPattern::id().
constexpr PairPattern kPatterns[PairPattern::kCount] = {
    {NodeRelation::kSameNode, true},  {NodeRelation::kSameLeaf, true}, {NodeRelation::kSameLeaf, false},
    {NodeRelation::kSamePod, true},   {NodeRelation::kSamePod, false}, {NodeRelation::kOtherPod, true},
    {NodeRelation::kOtherPod, false},
};

}  // namespace

Cluster::Cluster(const Topology& topology, int gpus, Errors& errors)
    : topology_(topology),
      gpus_(gpus),
      nodes_((gpus + topology.gpus_per_node - 1) / topology.gpus_per_node),
      node_layout_(topology),
      fabric_layout_(topology, node_layout_),
      classes_(link_classes_of(topology)) {
  if (topology.graph) {
    add_graph_links();
  } else {
    leaf_groups_ = parts_of(nodes_, fabric_layout_.nodes_per_leaf, fabric_layout_.links_per_leaf);
    pods_ = parts_of(nodes_, fabric_layout_.nodes_per_pod, fabric_layout_.links_per_pod);
    add_links();
    add_templates();
  }
  const std::size_t before = errors.size();
  mark_down(*this, links_, errors);
  if (errors.size() > before) return;
  route_around_down_links();
  check_ways(*this, errors);
  if (errors.size() > before) return;
  change_links(*this, links_, errors);
}

Cluster::Cluster(const Topology& topology, int gpus) : Cluster(built(topology, gpus)) {}

Cluster Cluster::built(const Topology& topology, int gpus) {
  Errors errors;
  Cluster cluster(topology, gpus, errors);
  LH_ASSERT(errors.empty(), "{}", errors.empty() ? "" : errors.front().to_string());
  return cluster;
}

void Cluster::route_around_down_links() {
  graph_routes_.reset();
  touched_.reset();
  if (topology_.graph) {
    std::vector<bool> down;
    for (const Link& link : links_) down.push_back(link.down);
    graph_routes_ = std::make_shared<const GraphRoutes>(*topology_.graph, down);
  } else if (std::any_of(links_.begin(), links_.end(), [](const Link& link) { return link.down; })) {
    touched_ = touched_routes(*this);
  }
}

Cluster Cluster::with_what_ifs_down(std::size_t count) const {
  Cluster other = *this;
  for (Link& link : other.links_) link.down = false;
  other.topology_.what_ifs.resize(count);
  Errors none;
  mark_down(other, other.links_, none);
  other.route_around_down_links();
  return other;
}

void Cluster::add_links() {
  const auto add = [&](std::vector<NamedLink> part) {
    for (NamedLink& link : part) {
      const LinkClass& kind = classes_[link.link_class];
      links_.push_back({std::move(link.name), kind.effective(), kind.latency, kind.scope, link.link_class});
    }
  };
  links_.reserve(static_cast<std::size_t>(first_link_of_pod(pods_)));
  for (int node = 0; node < nodes_; ++node) add(node_links(topology_, node));
  for (int leaf = 0; leaf < leaf_groups_; ++leaf) add(leaf_links(topology_, leaf));
  for (int pod = 0; pod < pods_; ++pod) add(pod_links(topology_, pod));
}

void Cluster::add_graph_links() {
  for (const GraphLink& link : topology_.graph->links) {
    const auto kind = std::find_if(classes_.begin(), classes_.end(),
                                   [&](const LinkClass& of) { return of.name == link.link_class.name; });
    LH_ASSERT(kind != classes_.end(), "no class \"{}\" of link {}", link.link_class.name, link.name);
    links_.push_back({link.name, link.link_class.effective(), link.link_class.latency, link.link_class.scope,
                      static_cast<std::uint8_t>(kind - classes_.begin())});
  }
}

void Cluster::add_templates() {
  template_first_.push_back(0);
  for (const PairPattern pattern : kPatterns) {
    const PairGraph graph(topology_, pattern, {}, nullptr);
    for (int from = 0; from < gpus_per_node(); ++from) {
      for (const std::optional<PartRoute>& route : graph.routes_from(from)) {
        LH_ASSERT(route.has_value(), "a node of {} without a way to another", topology_.name);
        template_links_.insert(template_links_.end(), route->begin(), route->end());
        template_first_.push_back(static_cast<std::int32_t>(template_links_.size()));
      }
    }
  }
}

PairPattern Cluster::pattern_of(int source, int target) const {
  const int domain_nodes = gpus_per_domain() / gpus_per_node();
  if (source == target) return {NodeRelation::kSameNode, true};
  const bool joined = source / domain_nodes == target / domain_nodes;
  if (fabric_layout_.leaf_of(source) == fabric_layout_.leaf_of(target)) return {NodeRelation::kSameLeaf, joined};
  if (fabric_layout_.pod_of(source) == fabric_layout_.pod_of(target)) return {NodeRelation::kSamePod, joined};
  return {NodeRelation::kOtherPod, joined};
}

PathChoice Cluster::choice_of(int from, int to) const {
  if (topology_.routing == Routing::kSpread) return {};
  auto pick = [hash = mix(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to))](int count) mutable {
    const auto place = static_cast<int>(hash % static_cast<std::uint64_t>(count));
    hash /= static_cast<std::uint64_t>(count);
    return place;
  };
  PathChoice choice;
  choice.port = pick(node_layout_.ports);
  choice.spine = pick(fabric_layout_.spines);
  choice.core = pick(fabric_layout_.cores);
  return choice;
}

LinkId Cluster::base_of(LinkOwner owner, int source, int target) const {
  switch (owner) {
    case LinkOwner::kSourceNode:
      return first_link_of_node(source);
    case LinkOwner::kTargetNode:
      return first_link_of_node(target);
    case LinkOwner::kSourceLeaf:
      return first_link_of_leaf(fabric_layout_.leaf_of(source));
    case LinkOwner::kTargetLeaf:
      return first_link_of_leaf(fabric_layout_.leaf_of(target));
    case LinkOwner::kSourcePod:
      return first_link_of_pod(fabric_layout_.pod_of(source));
    case LinkOwner::kTargetPod:
      return first_link_of_pod(fabric_layout_.pod_of(target));
  }
  return 0;
}

const LinkClass& Cluster::described(LinkId link) const {
  const auto at = static_cast<std::size_t>(link);
  return topology_.graph ? topology_.graph->links[at].link_class : classes_[links_[at].link_class];
}

bool Cluster::is_changed(LinkId link) const {
  const Link& now = links_[static_cast<std::size_t>(link)];
  const LinkClass& before = described(link);
  return now.down || now.bandwidth != before.effective() || now.latency != before.latency;
}

std::optional<Route> Cluster::find_route(int from, int to) const {
  LH_ASSERT(from >= 0 && from < gpus_ && to >= 0 && to < gpus_, "route from rank {} to {} of {}", from, to, gpus_);
  if (from == to) return Route{};
  if (graph_routes_) {
    const std::uint64_t hash = mix(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to));
    const auto links = graph_routes_->route(from, to, topology_.routing == Routing::kHash ? hash : 0);
    if (!links || links->size() > kMaxHops) return std::nullopt;
    return Route(links->begin(), links->end());
  }
  if (touched_ == nullptr) return template_route(from, to);
  const int source = node_of(from);
  const int target = node_of(to);
  const auto leaf = [&](int node) { return touched_->leaf_profile(fabric_layout_.leaf_of(node)); };
  const auto pod = [&](int node) { return touched_->pod_profile(fabric_layout_.pod_of(node)); };
  const TouchedRoutes::Ends ends{pattern_of(source, target),
                                 choice_of(from, to),
                                 {touched_->node_profile(source), touched_->node_profile(target), leaf(source),
                                  leaf(target), pod(source), pod(target)}};
  if (!ends.touched()) return template_route(from, to);
  const std::optional<PartRoute> part_route = touched_->route(ends, local_of(from), local_of(to));
  if (!part_route) return std::nullopt;
  Route route;
  for (const PartLink& link : *part_route) route.push_back(link_at(link, source, target));
  return route;
}

Route Cluster::route(int from, int to) const {
  std::optional<Route> route = find_route(from, to);
  LH_ASSERT(route.has_value(), "no route from rank {} to {} of {}", from, to, topology_.name);
  return *route;
}

std::span<const PartLink> Cluster::pattern_route(PairPattern pattern, int from, int to) const {
  LH_ASSERT(!topology_.graph, "a pattern's route in an explicit graph");
  const auto entry = static_cast<std::size_t>((pattern.id() * gpus_per_node() + from) * gpus_per_node() + to);
  const auto first = static_cast<std::size_t>(template_first_[entry]);
  return std::span(template_links_).subspan(first, static_cast<std::size_t>(template_first_[entry + 1]) - first);
}

// The template is that of the first of all parallel links; those that the flow takes follow by their numbers.
Route Cluster::template_route(int from, int to) const {
  const int source = node_of(from);
  const int target = node_of(to);
  const PathChoice choice = choice_of(from, to);
  Route route;
  for (const PartLink& link : pattern_route(pattern_of(source, target), local_of(from), local_of(to))) {
    LinkId id = link_at(link, source, target);
    if (link.owner >= LinkOwner::kSourcePod) {
      id += 2 * (choice.spine * fabric_layout_.cores + choice.core);
    } else if (link.owner >= LinkOwner::kSourceLeaf) {
      id += 2 * ((fabric_layout_.rails > 1 ? choice.port : 0) * fabric_layout_.spines + choice.spine);
    } else if (node_layout_.is_nic(link.index)) {
      id += 2 * choice.port;
    }
    route.push_back(id);
  }
  return route;
}

Time Cluster::route_latency(int from, int to) const {
  Time latency;
  for (const LinkId link : route(from, to)) latency += links_[static_cast<std::size_t>(link)].latency;
  return latency;
}

}  // namespace longhaul
