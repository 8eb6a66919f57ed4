#include "reports/topology_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "reports/format.h"
#include "reports/graph_svg.h"
#include "reports/svg_parts.h"

namespace longhaul {
namespace {

constexpr int kMaxGpus = 16;  // of a node that are drawn
constexpr int kMaxLeaves = 16;
constexpr double kMargin = 24;
constexpr double kPad = 16;
constexpr double kGpuWidth = 52;
constexpr double kGpuPitch = 64;
constexpr double kGpuHeight = 34;
constexpr double kBar = 28;    // height of a bar of switches
constexpr double kGap = 38;    // between two levels
constexpr double kMore = 172;  // width of what stands for the other nodes

std::string plural(int count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string leaves_of(int count) { return count == 1 ? "1 leaf" : fmt::format("{} leaves", count); }

// The first node with a link that is down, else the first with one that what-ifs change.
int node_to_draw(const Cluster& cluster) {
  std::optional<int> changed;
  for (int node = 0; node < cluster.nodes(); ++node) {
    const LinkId first = cluster.first_link_of_node(node);
    for (LinkId link = first; link < first + cluster.node_layout().links; ++link) {
      if (cluster.links()[static_cast<std::size_t>(link)].down) return node;
      if (!changed && cluster.is_changed(link)) changed = node;
    }
  }
  return changed.value_or(0);
}

class Picture {
 public:
  explicit Picture(const Cluster& cluster)
      : cluster_(cluster),
        topology_(cluster.topology()),
        layout_(cluster.node_layout()),
        fabric_(cluster.fabric_layout()),
        node_(node_to_draw(cluster)) {
    gpus_ = std::min(layout_.gpus, kMaxGpus);
    nics_ = std::min(layout_.nics, kMaxGpus);
    pairs_ = topology_.node_fabric == NodeFabric::kPairs;
    wide_domain_ = cluster.gpus_per_domain() > layout_.gpus;
    node_width_ = std::max(2 * kPad + std::max(gpus_, nics_) * kGpuPitch - (kGpuPitch - kGpuWidth), 420.0);
    title_ =
        fmt::format("{}: {} on {}", topology_.name, plural(cluster_.gpus(), "GPU"), plural(cluster_.nodes(), "node"));
    width_ = 2 * kMargin + node_width_ + (cluster.nodes() > 1 ? kMore : 0);
    page_width_ = std::max(width_, svg_title_width(title_, kMargin));
  }

  std::string draw() {
    double y = 50;
    std::string head = svg_text(kMargin, 32, title_, "title");
    head += svg_paragraph(kMargin, y, page_width_ - 2 * kMargin, topology_.description);
    if (cluster_.nodes() > 1) y = add_network(y);
    y = add_node(y);
    y = add_notes(y + 26);
    return svg_document(page_width_, y, title_, topology_.description, head + lines_ + boxes_);
  }

 private:
  LinkId node_link_id(int index) const { return cluster_.first_link_of_node(node_) + index; }
  const Link& node_link(int index) const { return cluster_.links()[static_cast<std::size_t>(node_link_id(index))]; }
  double inner() const { return node_width_ - 2 * kPad; }
  double gpu_middle(int gpu) const { return kMargin + kPad + inner() * (gpu + 0.5) / gpus_; }
  double nic_middle(int nic) const { return kMargin + kPad + inner() * (nic + 0.5) / nics_; }

  void add_link(int out, int in, double x1, double y1, double x2, double y2, const char* style) {
    const Link& link = node_link(out);
    lines_ += svg_line(x1, y1, x2, y2, svg_link_style(cluster_, node_link_id(out), node_link_id(in), style),
                       fmt::format("{}: {} one way", link.name, svg_rate(link.bandwidth)));
  }

  // Cores, spines and leaves, from the top. Returns where the node begins.
  double add_network(double y) {
    const double width = width_ - 2 * kMargin;
    if (!topology_.leaves()) {
      leaves_ = {{kMargin, y, width, kBar}};
      boxes_ += svg_labelled(leaves_[0], "fabric",
                             fmt::format("network switch ({}), joins {}", technology_name(topology_.technology),
                                         plural(cluster_.nodes(), "node")));
      return y + kBar + kGap;
    }
    const int pod_nodes = topology_.leaves_per_pod * topology_.nodes_per_leaf;
    if (topology_.leaves_per_pod > 0) {
      const int pods = (cluster_.nodes() - 1) / pod_nodes + 1;
      boxes_ += svg_labelled({kMargin, y, width, kBar}, "fabric",
                             fmt::format("core, joins {}; {} up from each, {}:1", plural(pods, "pod"),
                                         svg_rate(pod_rate()), format_number(topology_.spine_oversubscription, 1)));
      lines_ += svg_line(kMargin + width / 2, y + kBar, kMargin + width / 2, y + kBar + kGap, "uplink");
      y += kBar + kGap;
    }
    const int groups = (cluster_.nodes() - 1) / topology_.nodes_per_leaf + 1;
    const int under = topology_.leaves_per_pod > 0 ? std::min(groups, topology_.leaves_per_pod) : groups;
    const bool rails = topology_.network_fabric == NetworkFabric::kRails;
    boxes_ += svg_labelled({kMargin, y, width, kBar}, "fabric", spine_label(under, rails));
    y += kBar;
    const int drawn = rails ? std::min(fabric_.rails, kMaxLeaves) : 1;
    for (int leaf = 0; leaf < drawn; ++leaf) {
      const double pitch = rails ? inner() / drawn : node_width_;
      const double left = rails ? kMargin + kPad : kMargin;
      const Box box{left + leaf * pitch + 4, y + kGap, pitch - 8, kBar};
      leaves_.push_back(box);
      lines_ += svg_line(box.middle(), y, box.middle(), box.y, uplink_style(leaf));
      if (leaf == 0) rates_ += svg_text(box.middle() + 6, y + kGap / 2 + 4, svg_rate(leaf_rate()), "rate");
      boxes_ += svg_labelled(box, "fabric", rails ? fmt::format("leaf {}", leaf) : "leaf", "",
                             fmt::format("leaf {}: {} of {}", leaf, rails ? "NIC of this number" : "all NICs",
                                         plural(topology_.nodes_per_leaf, "node")));
    }
    if (groups > 1) {
      boxes_ += svg_text(kMargin + node_width_ + 12, y + kGap + 18,
                         fmt::format("+ {} more leaf group{}", groups - 1, groups == 2 ? "" : "s"), "name");
    }
    return y + kGap + kBar + kGap;
  }

  std::string spine_label(int leaf_groups, bool rails) const {
    const std::string apart = topology_.routing == Routing::kHash ? plural(fabric_.spines, "spine") : "spine";
    const std::string leaves = rails ? fmt::format("{} a rail", leaves_of(leaf_groups)) : leaves_of(leaf_groups);
    return fmt::format("{} ({}){}: {}; {}", apart, technology_name(topology_.technology),
                       topology_.leaves_per_pod > 0 ? " of a pod" : "", leaves,
                       topology_.oversubscription > 1
                           ? fmt::format("{}:1 oversubscribed", format_number(topology_.oversubscription, 1))
                           : "non-blocking");
  }

  // What a leaf and a pod have upwards, as rated, all parallel links together.
  BytesPerSecond leaf_rate() const { return {cluster_.link_classes()[kLeafClass].rated.value * fabric_.spines}; }
  BytesPerSecond pod_rate() const {
    return {cluster_.link_classes()[kSpineClass].rated.value * fabric_.spines * fabric_.cores};
  }

  // Of the leaf above the node that is drawn.
  std::string uplink_style(int rail) const {
    if (fabric_.links_per_leaf == 0) return "uplink";
    std::string style = "uplink";
    const LinkId base = cluster_.first_link_of_leaf(fabric_.leaf_of(node_));
    for (int spine = 0; spine < fabric_.spines && style == "uplink"; ++spine) {
      const LinkId out = base + fabric_.leaf_out(rail, spine);
      style = svg_link_style(cluster_, out, out + 1, "uplink");
    }
    return style;
  }

  double add_node(double top) {
    const double nic_y = top + 32;
    const double gpu_y = nic_y + 18 + 34;
    const double below = gpu_y + kGpuHeight;
    const double switch_y = below + 32;
    const double inside = pairs_ ? below + 26 + 14 * gpus_ : wide_domain_ ? below + 14 : switch_y + kBar + kPad;
    boxes_ += svg_rect({kMargin, top, node_width_, inside - top}, "node");
    boxes_ += svg_text(kMargin + kPad, top + 20, fmt::format("node {} of {}", node_, cluster_.nodes()), "name");
    for (int nic = 0; nic < nics_; ++nic) add_nic(nic, nic_y);
    if (layout_.nics > nics_) {
      boxes_ += svg_text(kMargin + node_width_ - kPad, top + 20, fmt::format("+ {} more NICs", layout_.nics - nics_),
                         "small", "end");
    }
    for (int gpu = 0; gpu < gpus_; ++gpu) add_gpu(gpu, nic_y + 18, gpu_y, switch_y);
    double bottom = inside;
    if (pairs_) add_pairs(below);
    if (!pairs_) bottom = add_nvswitch(switch_y, inside);
    add_others(top, inside);
    boxes_ += rates_;
    return bottom;
  }

  void add_nic(int nic, double y) {
    const double x = nic_middle(nic);
    const double width = std::min(kGpuWidth, inner() / nics_ - 4);
    if (!leaves_.empty()) {
      const bool own = fabric_.rails > 1 && nic < static_cast<int>(leaves_.size());
      const Box& leaf = leaves_[own ? static_cast<std::size_t>(nic) : 0];
      const double to = own ? leaf.middle() : x;
      add_link(layout_.nic_out(nic), layout_.nic_in(nic), x, y, to, leaf.bottom(), "network");
      if (nic == 0) {
        rates_ +=
            svg_text(x + 6, leaf.bottom() + kGap / 2 + 4, svg_rate(cluster_.link_classes()[kNicClass].rated), "rate");
      }
    }
    const int bundled = layout_.ports == 1 ? topology_.nics_per_gpu() : 1;
    boxes_ += svg_labelled({x - width / 2, y, width, 18}, "nic",
                           bundled > 1 ? fmt::format("{} NICs", bundled) : fmt::format("NIC {}", nic), "on-nic",
                           fmt::format("{}: {} one way", node_link(layout_.nic_out(nic)).name,
                                       svg_rate(node_link(layout_.nic_out(nic)).bandwidth)));
  }

  void add_gpu(int gpu, double nic_bottom, double y, double switch_y) {
    const double x = gpu_middle(gpu);
    const int rank = node_ * layout_.gpus + gpu;
    const bool used = rank < cluster_.gpus();
    const bool last = gpu + 1 == gpus_ && gpus_ < layout_.gpus;
    const Box box{x - kGpuWidth / 2, y, kGpuWidth, kGpuHeight};
    for (int port = 0; port < layout_.ports; ++port) {
      const int nic = layout_.nic_of(gpu, port);
      if (nic >= nics_) continue;
      if (topology_.pcie) {
        add_link(layout_.pcie_out(gpu), layout_.pcie_in(gpu), x, y, nic_middle(nic), nic_bottom, "pcie");
      } else {
        lines_ += svg_line(x, y, nic_middle(nic), nic_bottom, "pcie");
      }
    }
    if (gpu == 0 && topology_.pcie) rates_ += svg_text(x + 6, y - 8, svg_rate(topology_.pcie->rated), "rate");
    if (!pairs_) {
      add_link(layout_.nvlink_up(gpu), layout_.nvlink_down(gpu), x, y + kGpuHeight, x, switch_y, "nvlink");
      if (gpu == 0) rates_ += svg_text(x + 6, y + kGpuHeight + 20, svg_rate(topology_.nvlink.rated), "rate");
    }
    if (last) {
      boxes_ += svg_labelled(box, "more", fmt::format("+{}", layout_.gpus - gpu), "small");
    } else {
      boxes_ += svg_labelled(box, used ? "gpu" : "gpu idle", fmt::format("GPU {}", gpu), used ? "on-gpu" : "small",
                             used ? fmt::format("rank {}", rank) : "not used");
    }
  }

  // A direct link between every two GPUs: arcs below them, the deeper the farther.
  void add_pairs(double y) {
    for (int a = 0; a < gpus_; ++a) {
      for (int b = a + 1; b < gpus_; ++b) {
        const double depth = y + 10 + 17 * (b - a);
        const std::string style =
            svg_link_style(cluster_, node_link_id(layout_.nvlink(a, b)), node_link_id(layout_.nvlink(b, a)), "nvlink");
        lines_ += fmt::format(R"(<path class="{}" d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}"/>)",
                              style, gpu_middle(a), y, gpu_middle(a), depth, gpu_middle(b), depth, gpu_middle(b), y);
      }
    }
    rates_ += svg_text(kMargin + kPad, y + 18 + 14 * gpus_,
                       fmt::format("{} between every two GPUs", svg_rate(topology_.nvlink.rated)), "rate");
  }

  // Inside the node, or below all nodes of a domain. Returns the bottom of everything.
  double add_nvswitch(double y, double inside) {
    const Box bar{kMargin + (wide_domain_ ? 0 : kPad), y, wide_domain_ ? width_ - 2 * kMargin : inner(), kBar};
    if (!wide_domain_) {
      boxes_ += svg_labelled(bar, "fabric", "NVSwitch");
      return inside;
    }
    const int nodes = std::min(cluster_.nodes(), cluster_.gpus_per_domain() / layout_.gpus);
    const std::string joins = fmt::format("NVSwitch system of an NVLink domain: {} of {} GPUs, {} GPUs",
                                          plural(nodes, "node"), layout_.gpus, nodes * layout_.gpus);
    if (!topology_.nvswitch) {
      boxes_ += svg_labelled(bar, "fabric", joins);
      return bar.bottom();
    }
    boxes_ += svg_labelled({kMargin, y, node_width_, kBar}, "fabric", "NVSwitches of the node");
    add_link(layout_.nvswitch_up(), layout_.nvswitch_down(), kMargin + 60, y + kBar, kMargin + 60, y + kBar + kGap,
             "nvlink");
    rates_ += svg_text(kMargin + 66, y + kBar + 22, svg_rate(topology_.nvswitch->rated), "rate");
    const Box second{bar.x, y + kBar + kGap, bar.width, kBar};
    boxes_ += svg_labelled(second, "fabric", joins);
    return second.bottom();
  }

  void add_others(double top, double bottom) {
    const int others = cluster_.nodes() - 1;
    if (others < 1) return;
    const double x = kMargin + node_width_ + 16;
    for (int i = std::min(others, 3) - 1; i >= 0; --i) {
      boxes_ += svg_rect({x + 6.0 * i, top + 6.0 * i, kMore - 34, bottom - top - 12}, "more");
    }
    boxes_ += svg_text(x + 10, top + 24, fmt::format("+ {} more node{}", others, others == 1 ? "" : "s"), "name");
    if (!wide_domain_) return;
    const int same = std::min(cluster_.nodes(), cluster_.gpus_per_domain() / layout_.gpus) - 1;
    boxes_ += svg_text(x + 10, top + 42, fmt::format("{} in this domain", same), "small");
    boxes_ +=
        svg_text(x + 10, top + 58,
                 fmt::format("{} NVLink domain{}", cluster_.domains(), cluster_.domains() == 1 ? "" : "s"), "small");
  }

  // Device, NICs, and the what-ifs. Returns the height of the picture.
  double add_notes(double y) {
    const double width = page_width_ - 2 * kMargin;
    const auto note = [&](const std::string& text) { boxes_ += svg_paragraph(kMargin, y, width, text); };
    note(fmt::format("{} GPUs; NVLink: {} of a GPU, {} one way", topology_.device.name,
                     plural(topology_.nvlink_links, "link"), svg_rate(topology_.nvlink_rate_per_gpu())));
    note(fmt::format("{} a node, {} each, one way, {}", plural(topology_.nics_per_node, "NIC"),
                     svg_rate(topology_.nic.rated), technology_name(topology_.technology)));
    note("rates as rated; what NCCL reaches of them: longhaul topology");
    boxes_ += svg_what_ifs(kMargin, y, width, topology_);
    return y + 6;
  }

  const Cluster& cluster_;
  const Topology& topology_;
  const NodeLayout& layout_;
  const FabricLayout& fabric_;
  int node_;      // that is drawn
  int gpus_ = 0;  // drawn
  int nics_ = 0;
  bool pairs_ = false;
  bool wide_domain_ = false;
  double node_width_ = 0;
  double width_ = 0;
  double page_width_ = 0;
  std::string title_;
  std::vector<Box> leaves_;  // or the one switch
  std::string lines_;        // below the boxes
  std::string boxes_;
  std::string rates_;  // above everything
};

}  // namespace

std::string topology_svg(const Cluster& cluster) {
  return cluster.topology().graph ? graph_svg(cluster) : Picture(cluster).draw();
}

}  // namespace longhaul
