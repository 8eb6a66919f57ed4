#include "reports/topology_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "reports/format.h"

namespace longhaul {
namespace {

constexpr int kMaxNodes = 4;
constexpr int kMaxGpus = 16;  // of a node that are drawn
constexpr int kGpuWidth = 46;
constexpr int kGpuHeight = 34;
constexpr int kGap = 10;
constexpr int kPad = 16;           // inside a node
constexpr int kMargin = 24;        // of the picture, and between nodes
constexpr int kFabricHeight = 26;  // NVSwitch, leaf and spine bars
constexpr int kMaxLeaves = 8;      // that are drawn one by one

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double middle() const { return x + width / 2; }
};

// Where everything stands. Heights grow downwards: network above, nodes below it, GPUs at the bottom of a node.
struct Drawing {
  const Cluster* cluster = nullptr;
  int nodes = 0;  // drawn
  int gpus = 0;   // drawn in each
  int nics = 0;   // drawn in each
  bool pairs = false;
  double node_width = 0, node_height = 0, node_top = 0;
  double width = 0, height = 0;
  std::string frames;  // below everything
  std::string body;

  double node_x(int node) const { return kMargin + node * (node_width + kMargin); }
};

std::string rect(const Box& box, const char* style, const std::string& title = "") {
  const std::string inner = title.empty() ? "" : "<title>" + escape_html(title) + "</title>";
  return fmt::format(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="4">{}</rect>)", style,
                     box.x, box.y, box.width, box.height, inner);
}

std::string text(double x, double y, const std::string& content, const char* style = "",
                 const char* anchor = "middle") {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", style, x, y, anchor,
                     escape_html(content));
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", style, x1, y1, x2, y2);
}

std::string rate_text(const LinkClass& link) { return format_bytes(link.rated.value) + "/s"; }

// GPUs in a row; the last place of a longer row says how many more there are.
std::vector<Box> gpu_boxes(const Drawing& drawing, int node, double y) {
  std::vector<Box> boxes;
  for (int gpu = 0; gpu < drawing.gpus; ++gpu) {
    boxes.push_back({drawing.node_x(node) + kPad + gpu * (kGpuWidth + kGap), y, kGpuWidth, kGpuHeight});
  }
  return boxes;
}

// A direct link between every two GPUs: arcs below the GPUs, the deeper the farther.
std::string pair_links(const std::vector<Box>& gpus) {
  std::string out;
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < gpus.size(); ++b) {
      const double y = gpus[a].y + gpus[a].height;
      const double depth = y + 14 + 16 * static_cast<double>(b - a);
      out += fmt::format(R"(<path class="nvlink" d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}"/>)",
                         gpus[a].middle(), y, gpus[a].middle(), depth, gpus[b].middle(), depth, gpus[b].middle(), y);
    }
  }
  return out;
}

std::vector<Box> nic_boxes(const Drawing& drawing, int node, double y) {
  std::vector<Box> boxes;
  const double inner = drawing.node_width - 2 * kPad;
  const double width = std::min<double>(kGpuWidth, inner / drawing.nics - 4);
  for (int nic = 0; nic < drawing.nics; ++nic) {
    const double middle = drawing.node_x(node) + kPad + inner * (nic + 0.5) / drawing.nics;
    boxes.push_back({middle - width / 2, y, width, 18});
  }
  return boxes;
}

std::string gpu_html(const Drawing& drawing, const std::vector<Box>& gpus, int node) {
  std::string out;
  const int per_node = drawing.cluster->gpus_per_node();
  const int present = std::min(per_node, drawing.cluster->gpus() - node * per_node);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const int local = static_cast<int>(gpu);
    const bool last = local + 1 == drawing.gpus && drawing.gpus < per_node;
    const Box& box = gpus[gpu];
    if (last) {
      out += rect(box, "more") + text(box.middle(), box.y + 21, fmt::format("+{}", per_node - local), "small");
      continue;
    }
    const bool used = local < present;
    const std::string title = used ? fmt::format("rank {}: node {}, GPU {}", node * per_node + local, node, local)
                                   : fmt::format("node {}, GPU {}: not used", node, local);
    out += rect(box, used ? "gpu" : "gpu idle", title);
    out += text(box.middle(), box.y + 21, fmt::format("GPU {}", local), used ? "on-gpu" : "small");
  }
  return out;
}

// NICs at the top of a node, GPUs below, the fabric at the bottom. Returns where the NICs stand.
std::vector<Box> add_node(Drawing& drawing, int node) {
  const Topology& topology = drawing.cluster->topology();
  const Box frame{drawing.node_x(node), drawing.node_top, drawing.node_width, drawing.node_height};
  drawing.frames += rect(frame, "node");
  drawing.body += text(frame.x + kPad, frame.y + 22, fmt::format("node {}", node), "name", "start");
  const std::vector<Box> nics = nic_boxes(drawing, node, frame.y + 32);
  const std::vector<Box> gpus = gpu_boxes(drawing, node, frame.y + 78);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const std::size_t nic =
        gpu * static_cast<std::size_t>(topology.nics_per_node) / static_cast<std::size_t>(topology.gpus_per_node);
    if (nic < nics.size()) {
      drawing.body += line(gpus[gpu].middle(), gpus[gpu].y, nics[nic].middle(), nics[nic].y + nics[nic].height, "pcie");
    }
  }
  for (std::size_t nic = 0; nic < nics.size(); ++nic) {
    drawing.body += rect(nics[nic], "nic", fmt::format("NIC {}, {} one way", nic, rate_text(topology.nic)));
    if (nics[nic].width >= 30) drawing.body += text(nics[nic].middle(), nics[nic].y + 13, "NIC", "on-nic");
  }
  if (drawing.pairs) {
    drawing.body += pair_links(gpus);
  } else {
    const Box fabric{frame.x + kPad, gpus[0].y + kGpuHeight + 22, frame.width - 2 * kPad, kFabricHeight};
    for (const Box& gpu : gpus) {
      drawing.body += line(gpu.middle(), gpu.y + gpu.height, gpu.middle(), fabric.y, "nvlink");
    }
    drawing.body += rect(fabric, "fabric");
    drawing.body +=
        text(fabric.middle(), fabric.y + 17, "NVSwitch, " + rate_text(topology.nvlink) + " a GPU, one way", "small");
  }
  drawing.body += gpu_html(drawing, gpus, node);
  return nics;
}

// One bar that every NIC hangs on.
void add_single_switch(Drawing& drawing, const std::vector<std::vector<Box>>& nics) {
  const Box bar{kMargin, 62, drawing.width - 2 * kMargin, kFabricHeight};
  std::string lines;
  for (const auto& node : nics) {
    for (const Box& nic : node) lines += line(nic.middle(), nic.y, nic.middle(), bar.y + bar.height, "network");
  }
  drawing.body = lines + drawing.body + rect(bar, "fabric");
  drawing.body += text(bar.middle(), bar.y + 17, "network switch", "small");
}

// A leaf a rail, the spine above them. All nodes that are drawn hang on the first leaf of each rail.
void add_rails(Drawing& drawing, const std::vector<std::vector<Box>>& nics) {
  const Topology& topology = drawing.cluster->topology();
  const Box spine{kMargin, 52, drawing.width - 2 * kMargin, kFabricHeight};
  const int leaves = std::min(drawing.nics, kMaxLeaves);
  const double pitch = (drawing.width - 2 * kMargin) / leaves;
  std::string lines, boxes;
  for (int leaf = 0; leaf < leaves; ++leaf) {
    const Box box{kMargin + leaf * pitch + 4, spine.y + spine.height + 26, pitch - 8, kFabricHeight};
    lines += line(box.middle(), spine.y + spine.height, box.middle(), box.y, "network");
    for (const auto& node : nics) {
      const Box& nic = node[static_cast<std::size_t>(leaf)];
      lines += line(nic.middle(), nic.y, box.middle(), box.y + box.height, "network");
    }
    boxes += rect(box, "fabric") + text(box.middle(), box.y + 17, fmt::format("leaf {}", leaf), "small");
  }
  const int leaf_groups =
      (drawing.cluster->nodes() + topology.nodes_per_leaf - 1) / std::max(topology.nodes_per_leaf, 1);
  std::string label = "spine";
  if (topology.oversubscription > 1)
    label += fmt::format(", {}:1 oversubscribed", format_number(topology.oversubscription, 1));
  if (leaf_groups > 1) label += fmt::format(", {} leaves a rail", leaf_groups);
  drawing.body =
      lines + drawing.body + boxes + rect(spine, "fabric") + text(spine.middle(), spine.y + 17, label, "small");
}

constexpr const char* kStyle =
    "<style>svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;background:#fff}"
    "text{font-size:11px;fill:#1c2127}.title{font-size:18px;font-weight:650}.name{font-weight:600;font-size:12px}"
    ".small{fill:#626b75}.on-gpu{fill:#fff}.on-nic{font-size:10px}.node{fill:#f6f7f8;stroke:#cfd4da}.gpu{fill:#3a6db3}."
    "idle{fill:#e3e6ea}"
    ".more{fill:none;stroke:#8b929b;stroke-dasharray:3 3}.nic{fill:#de8a2c}.fabric{fill:#e8eef6;stroke:#a9bcd6}"
    ".nvlink{stroke:#3a6db3;stroke-width:1.5;fill:none;opacity:.7}.pcie{stroke:#8b929b}"
    ".network{stroke:#de8a2c;opacity:.55}</style>";

}  // namespace

std::string topology_svg(const Cluster& cluster) {
  const Topology& topology = cluster.topology();
  Drawing drawing;
  drawing.cluster = &cluster;
  drawing.nodes = std::min(cluster.nodes(), kMaxNodes);
  drawing.gpus = std::min(topology.gpus_per_node, kMaxGpus);
  drawing.nics = std::min(topology.nics_per_node, kMaxGpus);
  drawing.pairs = topology.node_fabric == NodeFabric::kPairs;
  drawing.node_width = std::max(2.0 * kPad + drawing.gpus * (kGpuWidth + kGap) - kGap, 260.0);
  drawing.node_height = 112 + (drawing.pairs ? 22 + 16.0 * drawing.gpus : 22 + kFabricHeight + kPad);
  const bool rails = topology.network_fabric == NetworkFabric::kRails && cluster.nodes() > 1;
  drawing.node_top = cluster.nodes() == 1 ? 52 : rails ? 190 : 130;
  const int hidden = cluster.nodes() - drawing.nodes;
  drawing.width = std::max(drawing.node_x(drawing.nodes) + (hidden > 0 ? 130 : 0), 460.0);
  drawing.height = drawing.node_top + drawing.node_height + 54;

  std::vector<std::vector<Box>> nics;
  for (int node = 0; node < drawing.nodes; ++node) nics.push_back(add_node(drawing, node));
  if (cluster.nodes() > 1 && rails) add_rails(drawing, nics);
  if (cluster.nodes() > 1 && !rails) add_single_switch(drawing, nics);
  if (hidden > 0) {
    drawing.body += text(drawing.node_x(drawing.nodes), drawing.node_top + drawing.node_height / 2,
                         fmt::format("+ {} more nodes", hidden), "name", "start");
  }
  const std::string nvlink = fmt::format("NVLink {} one way, {}", rate_text(topology.nvlink),
                                         drawing.pairs ? "a link between every two GPUs" : "each GPU to the NVSwitch");
  const std::string nic = fmt::format("{} NIC{} a node, {} each, one way", topology.nics_per_node,
                                      topology.nics_per_node == 1 ? "" : "s", rate_text(topology.nic));
  const std::string title =
      fmt::format("{}: {} GPU{} on {} node{}", topology.name, cluster.gpus(), cluster.gpus() == 1 ? "" : "s",
                  cluster.nodes(), cluster.nodes() == 1 ? "" : "s");
  const double foot = drawing.node_top + drawing.node_height + 24;
  const std::string notes = text(kMargin, foot, topology.device.name + ". " + nvlink + ".", "small", "start") +
                            text(kMargin, foot + 16, nic + ".", "small", "start");
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\"><title>{2}</title><desc>{3}; {4}.</desc>{5}{6}{7}{8}{9}</svg>\n",
      drawing.width, drawing.height, escape_html(title), escape_html(nvlink), escape_html(nic), kStyle,
      text(kMargin, 32, title, "title", "start"), drawing.frames, drawing.body, notes);
}

}  // namespace longhaul
