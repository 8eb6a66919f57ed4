#include "reports/topology_svg.h"

#include <gtest/gtest.h>

#include <string>

namespace longhaul {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string svg_of(const char* name, int gpus) {
  const auto topology = read_topology(name, LONGHAUL_SOURCE_ROOT);
  EXPECT_TRUE(topology.has_value()) << name;
  return topology_svg(Cluster(*topology, gpus));
}

TEST(TopologySvg, ShowsEveryGpuAndNicOfTwoNodes) {
  const std::string svg = svg_of("dgx-h200-ndr", 16);
  EXPECT_EQ(count(svg, "<rect class=\"gpu\""), 16u);
  EXPECT_EQ(count(svg, "<rect class=\"nic\""), 16u);
  EXPECT_EQ(count(svg, ">leaf "), 8u);
  EXPECT_EQ(count(svg, "NVSwitch, "), 2u);
  EXPECT_EQ(svg.find("more nodes"), std::string::npos);
}

TEST(TopologySvg, ElidesNodesWithACount) {
  const std::string svg = svg_of("dgx-h200-ndr", 1024);
  EXPECT_EQ(count(svg, "<rect class=\"node\""), 4u);
  EXPECT_NE(svg.find("+ 124 more nodes"), std::string::npos);
  EXPECT_NE(svg.find("4 leaves a rail"), std::string::npos);  // 128 nodes, 32 a leaf
  EXPECT_NE(svg.find("1024 GPUs on 128 nodes"), std::string::npos);
}

TEST(TopologySvg, DrawsPairLinks) {
  const std::string svg = svg_of("a100-40gb-2x4", 8);
  EXPECT_EQ(count(svg, "<path class=\"nvlink\""), 12u);  // 4 x 3 / 2 pairs a node
  EXPECT_EQ(count(svg, "network switch"), 1u);
  EXPECT_EQ(count(svg, "<rect class=\"nic\""), 2u);
}

TEST(TopologySvg, OneNodeHasNoNetworkAndGreysUnusedGpus) {
  const std::string svg = svg_of("dgx-h200-ndr", 2);
  EXPECT_EQ(svg.find("spine"), std::string::npos);
  EXPECT_EQ(count(svg, "<rect class=\"gpu\""), 2u);
  EXPECT_EQ(count(svg, "<rect class=\"gpu idle\""), 6u);
}

}  // namespace
}  // namespace longhaul
