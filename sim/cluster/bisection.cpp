#include "sim/cluster/bisection.h"

#include <algorithm>
#include <limits>

namespace longhaul {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

// The least cut below a switch if it stands on the first half's side, and if on the second's.
struct Cut {
  double with_first = 0;
  double with_second = 0;
  double least() const { return std::min(with_first, with_second); }
};

class TreeCut {
 public:
  TreeCut(const Cluster& cluster, int first, int last)
      : cluster_(cluster),
        node_(cluster.node_layout()),
        fabric_(cluster.fabric_layout()),
        first_(first),
        middle_(middle_rank(cluster, first, last)),
        last_(last) {}

  double nvlink() const {
    const int per_domain = cluster_.gpus_per_domain();
    double cut = 0;
    for (int domain = first_ / per_domain; domain * per_domain < last_; ++domain) cut += domain_cut(domain);
    return cut;
  }

  // Everything above the NICs. Parts in the order of their nodes.
  double network() const {
    const int from = cluster_.node_of(first_);
    const int end = cluster_.node_of(last_ - 1) + 1;
    Cut core;
    for (int first = from; first < end;) {
      const int pod = fabric_.pod_of(first);
      int next = first;
      while (next < end && fabric_.pod_of(next) == pod) ++next;
      const Cut spine = pod_cut(first, next);
      const LinkId base = cluster_.first_link_of_pod(pod);
      const bool has_links = fabric_.links_per_pod > 0;
      const double out = has_links ? sum(base, base + fabric_.links_per_pod, 0) : kEndless;
      const double in = has_links ? sum(base, base + fabric_.links_per_pod, 1) : kEndless;
      add(core, spine, out, in);
      first = next;
    }
    return core.least();
  }

 private:
  enum class Side { kFirst, kSecond, kNone };

  Side side_of(int rank) const {
    if (rank < first_ || rank >= last_) return Side::kNone;
    return rank < middle_ ? Side::kFirst : Side::kSecond;
  }

  double rate(LinkId id) const {
    const Link& link = cluster_.links()[static_cast<std::size_t>(id)];
    return link.down ? 0 : link.bandwidth.value;
  }

  // Every second link of a part: those out of it (0) or into it (1).
  double sum(LinkId begin, LinkId end, int direction) const {
    double total = 0;
    for (LinkId id = begin + direction; id < end; id += 2) total += rate(id);
    return total;
  }

  // Hangs a part on the switch above it; `out` and `in` are what the links between carry.
  static void add(Cut& above, const Cut& part, double out, double in) {
    above.with_first += std::min(part.with_first, part.with_second + in);
    above.with_second += std::min(part.with_second, part.with_first + out);
  }

  double domain_cut(int domain) const {
    const int nodes = cluster_.gpus_per_domain() / cluster_.gpus_per_node();
    const bool pairs = cluster_.topology().node_fabric == NodeFabric::kPairs;
    double direct = 0;
    Cut second_level;
    Cut one_level;
    for (int node = domain * nodes; node < std::min((domain + 1) * nodes, cluster_.nodes()); ++node) {
      const LinkId base = cluster_.first_link_of_node(node);
      if (pairs) {
        direct += pairs_cut(node);
        continue;
      }
      Cut nvswitch;
      for (int gpu = 0; gpu < node_.gpus; ++gpu) {
        const Side side = side_of(node * node_.gpus + gpu);
        if (side == Side::kFirst) nvswitch.with_second += rate(base + node_.nvlink_up(gpu));
        if (side == Side::kSecond) nvswitch.with_first += rate(base + node_.nvlink_down(gpu));
      }
      if (cluster_.topology().nvswitch) {
        add(second_level, nvswitch, rate(base + node_.nvswitch_up()), rate(base + node_.nvswitch_down()));
      } else {
        one_level.with_first += nvswitch.with_first;
        one_level.with_second += nvswitch.with_second;
      }
    }
    return direct + second_level.least() + one_level.least();
  }

  double pairs_cut(int node) const {
    double cut = 0;
    for (int from = 0; from < node_.gpus; ++from) {
      for (int to = 0; to < node_.gpus; ++to) {
        const bool cuts =
            side_of(node * node_.gpus + from) == Side::kFirst && side_of(node * node_.gpus + to) == Side::kSecond;
        if (cuts) cut += rate(cluster_.first_link_of_node(node) + node_.nvlink(from, to));
      }
    }
    return cut;
  }

  // The spines of a pod and all below: nodes first..last-1.
  Cut pod_cut(int first, int last) const {
    Cut spine;
    for (int begin = first; begin < last;) {
      const int leaf = fabric_.leaf_of(begin);
      int next = begin;
      while (next < last && fabric_.leaf_of(next) == leaf) ++next;
      for (int rail = 0; rail < fabric_.rails; ++rail) {
        const Cut of_leaf = leaf_cut(begin, next, rail);
        const bool has_links = fabric_.links_per_leaf > 0;
        const LinkId base = cluster_.first_link_of_leaf(leaf) + fabric_.leaf_out(rail, 0);
        const double out = has_links ? sum(base, base + 2 * fabric_.spines, 0) : kEndless;
        const double in = has_links ? sum(base, base + 2 * fabric_.spines, 1) : kEndless;
        add(spine, of_leaf, out, in);
      }
      begin = next;
    }
    return spine;
  }

  Cut leaf_cut(int first, int last, int rail) const {
    Cut leaf;
    for (int node = first; node < last; ++node) {
      for (int nic = 0; nic < node_.nics; ++nic) {
        if (fabric_.rails > 1 && nic != rail) continue;
        add_nic(leaf, node, nic);
      }
    }
    return leaf;
  }

  // What the GPUs of a NIC send through it if the leaf is not on their side, and what they get.
  void add_nic(Cut& leaf, int node, int nic) const {
    const LinkId base = cluster_.first_link_of_node(node);
    const bool pcie = cluster_.topology().pcie.has_value();
    double out = 0;
    double in = 0;
    const int nics_of_gpu = node_.ports;
    for (int gpu = 0; gpu < node_.gpus; ++gpu) {
      const int from = node_.nic_of(gpu, 0);
      if (nic < from || nic >= from + nics_of_gpu) continue;
      const Side side = side_of(node * node_.gpus + gpu);
      if (side == Side::kFirst) out += pcie ? rate(base + node_.pcie_out(gpu)) / nics_of_gpu : kEndless;
      if (side == Side::kSecond) in += pcie ? rate(base + node_.pcie_in(gpu)) / nics_of_gpu : kEndless;
    }
    leaf.with_second += std::min(out, rate(base + node_.nic_out(nic)));
    leaf.with_first += std::min(in, rate(base + node_.nic_in(nic)));
  }

  const Cluster& cluster_;
  const NodeLayout& node_;
  const FabricLayout& fabric_;
  int first_;
  int middle_;
  int last_;
};

// Whether links of one level differ that a tree of merged switches takes for alike, or several NICs share the PCIe link
// of a GPU.
bool needs_flow(const Cluster& cluster) {
  if (cluster.topology().graph) return true;
  const NodeLayout& node = cluster.node_layout();
  if (cluster.topology().pcie && node.ports > 1) return true;
  if (cluster.fabric_layout().spines == 1 && cluster.fabric_layout().cores == 1) return false;
  const auto above_nodes = cluster.links().subspan(static_cast<std::size_t>(cluster.first_link_of_leaf(0)));
  return std::any_of(above_nodes.begin(), above_nodes.end(), [&](const Link& link) {
    return link.down || link.bandwidth != cluster.link_classes()[link.link_class].effective();
  });
}

}  // namespace

int middle_rank(const Cluster& cluster, int first, int last) {
  const int nodes = (last - first + cluster.gpus_per_node() - 1) / cluster.gpus_per_node();
  return first + (nodes > 1 ? nodes / 2 * cluster.gpus_per_node() : (last - first) / 2);
}

BytesPerSecond bisection(const Cluster& cluster, int first, int last, bool with_network) {
  if (needs_flow(cluster)) return bisection_by_flow(cluster, first, last, with_network);
  const TreeCut cut(cluster, first, last);
  return {cut.nvlink() + (with_network ? cut.network() : 0)};
}

std::vector<LevelBisection> bisections(const Cluster& cluster) {
  std::vector<LevelBisection> levels;
  const auto add = [&](const char* level, std::int64_t size, bool with_network) {
    const int gpus = static_cast<int>(std::min<std::int64_t>(size, cluster.gpus()));
    if (gpus < 2 || (!levels.empty() && levels.back().gpus == gpus)) return;
    levels.push_back({level, gpus, bisection(cluster, 0, gpus, with_network)});
  };
  const bool graph = cluster.topology().graph.has_value();
  const std::int64_t node = cluster.gpus_per_node();
  add("node", node, false);
  add("NVLink domain", cluster.gpus_per_domain(), false);
  if (!graph && cluster.topology().leaves()) {
    const std::int64_t leaf = node * cluster.topology().nodes_per_leaf;
    const std::int64_t pod = leaf * cluster.topology().leaves_per_pod;
    if (leaf < cluster.gpus()) add("leaf", leaf, true);
    if (pod < cluster.gpus()) add("pod", pod, true);
  }
  add("cluster", cluster.gpus(), true);
  return levels;
}

}  // namespace longhaul
