#include "reports/topology_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reports/format.h"
#include "sim/core/json.h"
#include "tests/unit/reports/fixtures.h"

namespace longhaul {
namespace {

using testing::count;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string svg_of(const std::string& topology, int gpus) {
  const Json json = topology.front() == '{' ? *parse_json(topology, "t.json") : Json(topology);
  const auto parsed = parse_topology(json, "t.json", "", LONGHAUL_SOURCE_ROOT);
  EXPECT_TRUE(parsed.has_value()) << topology;
  return plain_text(topology_svg(*make_cluster(*parsed, gpus)));
}

TEST(TopologySvg, DrawsOneNodeAndCountsTheRest) {
  const std::string svg = svg_of("dgx-h200-ndr", 1024);
  EXPECT_EQ(count(svg, "<rect class=\"gpu\""), 8u);
  EXPECT_EQ(count(svg, "<rect class=\"nic\""), 8u);
  EXPECT_EQ(count(svg, "<line class=\"nvlink\""), 8u);
  EXPECT_EQ(count(svg, "<line class=\"network\""), 8u);
  EXPECT_EQ(count(svg, ">leaf "), 8u + 8u);  // label and title
  EXPECT_TRUE(holds(svg, "dgx-h200-ndr: 1024 GPUs on 128 nodes"));
  EXPECT_TRUE(holds(svg, ">node 0 of 128<"));
  EXPECT_TRUE(holds(svg, "+ 127 more nodes"));
  EXPECT_TRUE(holds(svg, "spine (infiniband): 4 leaves a rail; non-blocking"));  // 32 nodes a leaf
  EXPECT_TRUE(holds(svg, "+ 3 more leaf groups"));
  EXPECT_TRUE(holds(svg, ">450 GB/s<"));
  EXPECT_TRUE(holds(svg, ">50.0 GB/s<")) << svg;
}

TEST(TopologySvg, IsTheSameEveryTimeAndWellFormed) {
  for (const char* name : {"gb200-nvl72", "a100-40gb-2x4", "aws-p5", "oci-b4-roce", "mi355x-roce"}) {
    const int gpus = std::string(name) == "a100-40gb-2x4" ? 8 : 16;
    const std::string svg = svg_of(name, gpus);
    EXPECT_EQ(svg, svg_of(name, gpus)) << name;
    EXPECT_EQ(count(svg, "<rect"), count(svg, "</rect>")) << name;
    EXPECT_EQ(count(svg, "<line"), count(svg, "</line>")) << name;
    EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << name;
    EXPECT_TRUE(holds(svg, "prefers-color-scheme:dark")) << name;
  }
}

TEST(TopologySvg, DrawsPairLinksAndASharedNic) {
  const std::string svg = svg_of("a100-40gb-2x4", 8);
  EXPECT_EQ(count(svg, "<path class=\"nvlink\""), 6u);  // 4 x 3 / 2 pairs
  EXPECT_TRUE(holds(svg, "100 GB/s between every two GPUs"));
  EXPECT_EQ(count(svg, "<line class=\"pcie\""), 4u);
  EXPECT_EQ(count(svg, "<rect class=\"nic\""), 1u);
  EXPECT_TRUE(holds(svg, "network switch (infiniband), joins 2 nodes"));
}

TEST(TopologySvg, DrawsTheDomainOfARack) {
  const std::string svg = svg_of("gb200-nvl72", 144);
  EXPECT_EQ(count(svg, "<rect class=\"gpu\""), 4u);
  EXPECT_TRUE(holds(svg, "NVSwitch system of an NVLink domain: 18 nodes of 4 GPUs, 72 GPUs"));
  EXPECT_TRUE(holds(svg, "+ 35 more nodes"));
  EXPECT_TRUE(holds(svg, "17 in this domain"));
  EXPECT_TRUE(holds(svg, "2 NVLink domains"));
}

TEST(TopologySvg, SeveralNicsAGpu) {
  EXPECT_EQ(count(svg_of("aws-p5", 16), ">4 NICs<"), 8u);
  const std::string hash = svg_of(R"({"base": "aws-p5", "network": {"routing": "hash"}})", 16);
  EXPECT_EQ(count(hash, "<rect class=\"nic\""), 16u);
  EXPECT_TRUE(holds(hash, "+ 16 more NICs"));
}

TEST(TopologySvg, ThreeLevels) {
  const std::string svg = svg_of(
      R"({"base": "dgx-a100-hdr", "network": {"nodes_per_leaf": 2, "oversubscription": 2, "leaves_per_pod": 2,
          "spine_oversubscription": 4}})",
      128);
  // 4 nodes x 8 NICs x 25 GB/s / (2 x 4) from each of four pods; 2 x 25 / 2 from each leaf.
  EXPECT_TRUE(holds(svg, "core, joins 4 pods; 100 GB/s up from each, 4.0:1"));
  EXPECT_TRUE(holds(svg, "spine (infiniband) of a pod: 2 leaves a rail; 2.0:1 oversubscribed"));
  EXPECT_TRUE(holds(svg, ">25.0 GB/s<"));
}

TEST(TopologySvg, OneNodeHasNoNetworkAndGreysUnusedGpus) {
  const std::string svg = svg_of("dgx-h200-ndr", 2);
  EXPECT_FALSE(holds(svg, "spine"));
  EXPECT_EQ(count(svg, "<rect class=\"gpu\""), 2u);
  EXPECT_EQ(count(svg, "<rect class=\"gpu idle\""), 6u);
}

// The node that is drawn is the one that is changed.
TEST(TopologySvg, MarksWhatIfs) {
  const std::string svg = svg_of(
      R"({"base": "dgx-h200-ndr", "what_if": [{"links": "n3.nic5", "down": true},
          {"links": "n3.g1.nvl>", "scale_bandwidth": 0.5}]})",
      64);
  EXPECT_TRUE(holds(svg, ">node 3 of 8<"));
  EXPECT_EQ(count(svg, "<line class=\"down\""), 1u);
  EXPECT_EQ(count(svg, "<line class=\"changed\""), 1u);
  EXPECT_TRUE(holds(svg, "what if: n3.nic5 down"));
  EXPECT_TRUE(holds(svg, "what if: n3.g1.nvl&gt;, bandwidth x 0.5"));
}

TEST(TopologySvg, ExplicitGraphs) {
  const std::string svg = svg_of(
      R"({"base": "a100-40gb-2x4", "gpus_per_node": 2, "nodes": 1, "what_if": [{"links": "b.s", "down": true}],
          "graph": {
          "vertices": [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}, {"name": "s", "kind": "nvswitch"}],
          "links": [{"from": "a", "to": "b", "class": "nvlink"}, {"from": "a", "to": "s", "class": "nvlink"},
                    {"from": "b", "to": "s", "class": "nvlink"}]}})",
      2);
  EXPECT_EQ(count(svg, "<rect class=\"gpu\""), 2u);
  EXPECT_EQ(count(svg, "<path class=\"nvlink\""), 2u);  // a and b stand in one row; a line each way
  EXPECT_EQ(count(svg, "<line class=\"nvlink\""), 2u);
  EXPECT_EQ(count(svg, "<line class=\"down\""), 2u);
  EXPECT_TRUE(holds(svg, "2 GPUs in a graph of 3 vertices and 6 links"));
}

double page_width(const std::string& svg) { return std::stod(svg.substr(svg.find("viewBox=\"0 0 ") + 13)); }

// Longest text of a style, in letters.
std::size_t longest(const std::string& svg, const std::string& style) {
  const std::string mark = "<text class=\"" + style + "\"";
  std::size_t most = 0;
  for (std::size_t at = svg.find(mark); at != std::string::npos; at = svg.find(mark, at + 1)) {
    const std::size_t begin = svg.find('>', at) + 1;
    most = std::max(most, svg.find("</text>", begin) - begin);
  }
  return most;
}

// Nothing is cut off at the right: a long title widens the page, long text is broken into lines. Measured in a browser:
// at most 11 px a letter of a title, 6.2 px a letter of small text.
TEST(TopologySvg, LongTextsStayOnThePage) {
  const std::string words =
      "a description that says far more than one line holds, with who built the machine, when, and of which parts";
  const std::string text =
      "\"name\": \"the-cluster-with-the-very-long-name-of-the-other-department-2\", "
      "\"description\": \"" +
      words + ", " + words + "\", \"what_if\": [";
  std::string many = R"({"links": "*nvl", "scale_latency": 2})";
  for (int i = 0; i < 13; ++i) many += R"(, {"links": "*[abcdefghijklmnopqrstuvwxyz]*[>]", "scale_bandwidth": 0.5})";
  const std::string graph = R"("gpus_per_node": 2, "nodes": 1, "graph": {
      "vertices": [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}, {"name": "top-of-rack-switch-1", "kind":
      "leaf"}], "links": [{"from": "a", "to": "top-of-rack-switch-1", "class": "nvlink"}, {"from": "a", "to": "b",
      "class": "nvlink"}, {"from": "b", "to": "top-of-rack-switch-1", "class": "nvlink"}]}, )";
  for (const std::string& svg :
       {svg_of("{\"base\": \"dgx-h200-ndr\", " + text + many + "]}", 8),
        svg_of("{\"base\": \"a100-40gb-2x4\", " + graph + text + R"({"links": "a.*", "scale_latency": 2}]})", 2)}) {
    EXPECT_LE(static_cast<double>(longest(svg, "title")) * 11 + 48, page_width(svg));
    EXPECT_LE(static_cast<double>(longest(svg, "small")) * 6.2 + 48, page_width(svg));
    EXPECT_TRUE(holds(svg, "a description that says")) << "the description is shown";
    EXPECT_GE(count(svg, "<text class=\"small\""), 3u);
    EXPECT_TRUE(holds(svg, "<rect class=\"page\""));  // light text needs the dark page
  }
  EXPECT_TRUE(holds(svg_of("{\"base\": \"dgx-h200-ndr\", " + text + many + "]}", 8), ">+ 2 more what-ifs<"));
  const std::string cut = svg_of("{\"base\": \"a100-40gb-2x4\", " + graph + text + "]}", 2);
  EXPECT_TRUE(holds(cut, ">top-of-rac\u2026<")) << cut;
  EXPECT_TRUE(holds(cut, "<title>top-of-rack-switch-1</title>"));
}

TEST(TopologySvg, MarksWhatIfsOfGraphs) {
  const std::string svg = svg_of(
      R"({"base": "a100-40gb-2x4", "gpus_per_node": 2, "nodes": 1,
          "what_if": [{"links": "a.s>", "scale_bandwidth": 0.5}],
          "graph": {"vertices": [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}, {"name": "s", "kind":
          "nvswitch"}], "links": [{"from": "a", "to": "s", "class": "nvlink", "gbytes_per_s": 25}, {"from": "b",
          "to": "s", "class": "nvlink"}]}})",
      2);
  EXPECT_EQ(count(svg, "<line class=\"changed\""), 1u);
  EXPECT_EQ(count(svg, "<line class=\"nvlink\""), 3u);
}

}  // namespace
}  // namespace longhaul
