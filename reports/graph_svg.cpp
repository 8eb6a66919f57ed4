#include "reports/graph_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/svg_parts.h"

namespace longhaul {
namespace {

constexpr int kMaxInRow = 24;
constexpr double kMargin = 24;
constexpr double kWidth = 76;
constexpr double kHeight = 30;
constexpr double kPitch = 88;
constexpr double kRowPitch = 92;

struct Row {
  VertexKind kind;
  const char* name;
  const char* style;
};

// From the top.
constexpr Row kRows[] = {{VertexKind::kCore, "core", "fabric"},        {VertexKind::kSpine, "spine", "fabric"},
                         {VertexKind::kLeaf, "leaf", "fabric"},        {VertexKind::kNic, "NIC", "nic"},
                         {VertexKind::kPcieSwitch, "PCIe", "fabric"},  {VertexKind::kGpu, "GPU", "gpu"},
                         {VertexKind::kNvSwitch, "NVSwitch", "fabric"}};

const char* text_style(VertexKind kind) {
  if (kind == VertexKind::kGpu) return "on-gpu";
  return kind == VertexKind::kNic ? "on-nic" : "";
}

const char* line_style(const std::string& link_class) {
  if (link_class == "nvlink") return "nvlink";
  if (link_class == "pcie") return "pcie";
  return link_class == "nic" ? "network" : "uplink";
}

double width_of(const GraphSpec& graph, const Row& row) {
  const auto count = std::count_if(graph.vertices.begin(), graph.vertices.end(),
                                   [&](const GraphVertex& vertex) { return vertex.kind == row.kind; });
  const double more = count > kMaxInRow ? 90 : 0;
  return 2 * kMargin + 70 + kPitch * static_cast<double>(std::min<std::ptrdiff_t>(count, kMaxInRow)) + more;
}

}  // namespace

std::string graph_svg(const Cluster& cluster) {
  const GraphSpec& graph = *cluster.topology().graph;
  std::map<int, Box> boxes;  // by vertex
  const Topology& topology = cluster.topology();
  const std::string title = fmt::format("{}: {} GPUs in a graph of {} vertices and {} links", topology.name,
                                        cluster.gpus(), graph.vertices.size(), graph.links.size());
  double width = svg_title_width(title, kMargin);
  for (const Row& row : kRows) width = std::max(width, width_of(graph, row));
  double y = 50;
  std::string body = svg_paragraph(kMargin, y, width - 2 * kMargin, topology.description);
  y += 14;
  for (const Row& row : kRows) {
    int shown = 0;
    int hidden = 0;
    for (int vertex = 0; vertex < static_cast<int>(graph.vertices.size()); ++vertex) {
      const GraphVertex& of = graph.vertices[static_cast<std::size_t>(vertex)];
      if (of.kind != row.kind) continue;
      if (shown == kMaxInRow) {
        ++hidden;
        continue;
      }
      const Box box{kMargin + 70 + kPitch * shown++, y, kWidth, kHeight};
      boxes[vertex] = box;
      body += svg_labelled(box, row.style, of.name, text_style(of.kind), of.name);
    }
    if (shown == 0) continue;
    body += svg_text(kMargin, y + 19, row.name, "name");
    const double end = kMargin + 70 + kPitch * shown;
    if (hidden > 0) body += svg_text(end, y + 19, fmt::format("+ {} more", hidden), "small");
    y += kRowPitch;
  }
  std::string lines;
  for (std::size_t id = 0; id < graph.links.size(); ++id) {
    const GraphLink& link = graph.links[id];
    const auto from = boxes.find(link.from);
    const auto to = boxes.find(link.to);
    if (from == boxes.end() || to == boxes.end()) continue;
    const Link& built = cluster.links()[id];
    const auto link_id = static_cast<LinkId>(id);
    const std::string style = svg_link_style(cluster, link_id, link_id, line_style(link.link_class.name));
    const std::string tip = fmt::format("{}: {} one way", link.name, svg_rate(built.bandwidth));
    const Box& a = from->second;
    const Box& b = to->second;
    if (a.y != b.y) {
      const bool down = a.y < b.y;
      lines += svg_line(a.middle(), down ? a.bottom() : a.y, b.middle(), down ? b.y : b.bottom(), style, tip);
    } else {
      const double depth = a.bottom() + 8 + std::abs(a.x - b.x) / kPitch * 8;
      lines += fmt::format(R"(<path class="{}" d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}"/>)",
                           style == "uplink" ? "nvlink" : style, a.middle(), a.bottom(), a.middle(), depth, b.middle(),
                           depth, b.middle(), b.bottom());
    }
  }
  double foot = y + 4;
  const std::string notes = svg_what_ifs(kMargin, foot, width - 2 * kMargin, topology);
  return svg_document(width, foot + 12, title, topology.description,
                      svg_text(kMargin, 32, title, "title") + lines + body + notes);
}

}  // namespace longhaul
