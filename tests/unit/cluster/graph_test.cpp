// Explicit graphs, link by link: routes, links and every text of a wrong one.
#include <gtest/gtest.h>

#include "sim/cluster/describe.h"
#include "sim/core/json.h"
#include "tests/unit/cluster/data_root.h"
#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

// Two nodes of two GPUs with an NVLink each, two NICs a node, two switches.
const std::string kVertices = R"("vertices": [
    {"name": "a0", "kind": "gpu"}, {"name": "a1", "kind": "gpu"}, {"name": "b0", "kind": "gpu"},
    {"name": "b1", "kind": "gpu"}, {"name": "na", "kind": "nic"}, {"name": "nb", "kind": "nic"},
    {"name": "s0", "kind": "leaf", "radix": 4}, {"name": "s1", "kind": "leaf"}])";
const std::string kLinks = R"("links": [
    {"from": "a0", "to": "a1", "class": "nvlink", "count": 2, "gbytes_per_s": 25, "efficiency": 0.8, "latency_us": 0.6},
    {"from": "b0", "to": "b1", "class": "nvlink", "count": 2, "gbytes_per_s": 25, "efficiency": 0.8, "latency_us": 0.6},
    {"from": "a0", "to": "na", "class": "pcie"}, {"from": "a1", "to": "na", "class": "pcie"},
    {"from": "b0", "to": "nb", "class": "pcie"}, {"from": "b1", "to": "nb", "class": "pcie"},
    {"from": "na", "to": "s0", "class": "nic"}, {"from": "na", "to": "s1", "class": "nic"},
    {"from": "nb", "to": "s0", "class": "nic"}, {"from": "nb", "to": "s1", "class": "nic"}])";

Expected<Topology> with_graph(const std::string& vertices, const std::string& links, const std::string& more = "") {
  const std::string text =
      R"({"base": "a100-40gb-2x4", "gpus_per_node": 2, "graph": {)" + vertices + ", " + links + "}" + more + "}";
  return parse_topology(*parse_json(text, "s.json"), "s.json", "", kRoot);
}

TEST(Graph, RoutesAreShortestPaths) {
  const Cluster cluster = *make_cluster(*with_graph(kVertices, kLinks), 4);
  EXPECT_EQ(cluster.nodes(), 2);
  EXPECT_EQ(describe_route(cluster, 0, 1).links, Names{"a0.a1>"});
  EXPECT_EQ(describe_route(cluster, 1, 0).links, Names{"a0.a1<"});
  const RouteSummary far = describe_route(cluster, 0, 3);
  EXPECT_EQ(far.links, (Names{"a0.na>", "na.s0>", "nb.s0<", "b1.nb<"}));
  EXPECT_DOUBLE_EQ(far.bandwidth.value, 0.8 * 31.5e9);  // PCIe, as the topology's
  EXPECT_EQ(far.latency, Time::from_us(2.7));
  // Two links of 25 GB/s in one.
  EXPECT_DOUBLE_EQ(describe_route(cluster, 0, 1).bandwidth.value, 40e9);
}

TEST(Graph, HashSpreadsOverEqualPaths) {
  const auto topology = with_graph(kVertices, kLinks, R"(, "network": {"routing": "hash"})");
  const Cluster cluster = *make_cluster(*topology, 4);
  int by_first = 0;
  for (int from = 0; from < 2; ++from) {
    for (int to = 2; to < 4; ++to) {
      for (const auto& [a, b] : {std::pair(from, to), std::pair(to, from)}) {
        by_first += describe_route(cluster, a, b).links[1].find("s0") != std::string::npos;
        EXPECT_EQ(cluster.route(a, b), Cluster(*topology, 4).route(a, b));
      }
    }
  }
  EXPECT_GT(by_first, 0);
  EXPECT_LT(by_first, 8);
  // Parallel links stay apart.
  EXPECT_DOUBLE_EQ(describe_route(cluster, 0, 1).bandwidth.value, 20e9);
}

TEST(Graph, TakesWhatIfs) {
  const Cluster cluster =
      *make_cluster(*with_graph(kVertices, kLinks, R"(, "what_if": [{"links": "na.s0", "down": true}, {"links": "nb.s?",
                                                   "scale_bandwidth": 0.5}])"),
                    4);
  const RouteSummary far = describe_route(cluster, 0, 3);
  EXPECT_EQ(far.links, (Names{"a0.na>", "na.s1>", "nb.s1<", "b1.nb<"}));
  EXPECT_DOUBLE_EQ(far.bandwidth.value, 24e9);
  const auto cut = make_cluster(*with_graph(kVertices, kLinks, R"(, "what_if": [{"links": "na.s?", "down": true}])"), 4,
                                "s.json", "/gpus");
  EXPECT_EQ(texts(cut).at(0),
            "s.json: /what_if/0: the links that are down leave no way from rank 0 to rank 2; expected every rank to "
            "reach every other: leave one more of these links up");
  EXPECT_EQ(texts(make_cluster(*with_graph(kVertices, kLinks, R"(, "what_if": [{"rail": 0, "down": true}])"), 4)),
            Lines{"s.json: /what_if/0/rail: has no meaning here; expected \"links\": the topology is a graph, link by "
                  "link"});
}

TEST(Graph, BisectionIsTheMaximumFlow) {
  const TopologySummary summary = describe_topology(*make_cluster(*with_graph(kVertices, kLinks), 4));
  // Two PCIe links into a NIC of 25.2 GB/s each, two NIC links of 48 behind it.
  EXPECT_DOUBLE_EQ(summary.bisection.value, 2 * 25.2e9);
}

TEST(GraphErrors, Disconnected) {
  EXPECT_EQ(texts(with_graph(R"("vertices": [{"name": "g0", "kind": "gpu"}, {"name": "g1", "kind": "gpu"}])",
                             R"("links": [{"from": "g0", "to": "g1", "class": "nvlink", "one_way": true}])",
                             R"(, "nodes": 1)")),
            Lines{"s.json: /graph/links: leave no way from g1 to g0; expected a graph in which every GPU reaches every "
                  "other"});
}

TEST(GraphErrors, AllAtOnce) {
  EXPECT_EQ(
      texts(with_graph(
          R"("vertices": [{"name": "g0", "kind": "gpu", "radix": 3}, {"name": "g1", "kind": "cpu"},
                       {"name": "s", "kind": "leaf", "radix": 2}, {"name": "s", "kind": "spine"},
                       {"name": "g2", "kind": "gpu"}, {"name": "g3", "kind": "gpu"}])",
          R"("links": [{"from": "g0", "to": "g9", "class": "nvlnk"}, {"from": "g0", "to": "s", "class": "nic",
                       "gbytes_per_s": 0}, {"from": "s", "to": "g0", "class": "nic"}, {"from": "g2", "to": "g2",
                       "class": "nic"}, {"from": "g2", "to": "s", "class": "nic", "gbytes_per_s": -4, "count": 2}])")),
      (Lines{
          "s.json: /graph/vertices/0/radix: has no meaning here; expected only with a switch: nvswitch, pcie-switch, "
          "leaf, spine, core",
          "s.json: /graph/vertices/1/kind: is \"cpu\"; expected one of gpu, nvswitch, pcie-switch, nic, leaf, spine, "
          "core; did you mean \"gpu\"?",
          "s.json: /graph/vertices/3/name: \"s\" is the name of another vertex; expected a name of its own",
          "s.json: /graph/links/0/to: \"g9\" is no vertex; expected the name of a vertex; did you mean \"g0\"?",
          "s.json: /graph/links/0/class: is \"nvlnk\"; expected one of nvlink, pcie, nic, leaf, spine; did you mean "
          "\"nvlink\"?",
          "s.json: /graph/links/1/gbytes_per_s: is 0; expected a number from 0.001 to 100000",
          "s.json: /graph/links/2: joins s.g0 again; expected one entry for both, with \"count\"; /graph/links/1 is "
          "the "
          "other",
          "s.json: /graph/links/3/to: is where the link comes from; expected another vertex",
          "s.json: /graph/links/4/gbytes_per_s: is -4; expected a number from 0.001 to 100000",
          "s.json: /graph/vertices: hold 3 GPUs; expected a multiple of gpus_per_node, 2",
          "s.json: /graph/vertices/2/radix: is 2; expected at least 4, the links on s, or fewer links",
      }));
}

TEST(GraphErrors, Sizes) {
  EXPECT_EQ(texts(with_graph(R"("vertices": {})", R"("edges": [])")),
            (Lines{"s.json: /graph/vertices: is an object; expected a list",
                   "s.json: /graph/links: is missing; expected a list",
                   "s.json: /graph/edges: unknown key; expected one of vertices, links",
                   "s.json: /graph/vertices: hold no GPU; expected one vertex of kind \"gpu\" or more"}));
  std::string vertices = R"("vertices": [)";
  std::string links = R"("links": [)";
  for (int i = 0; i < 19; ++i) {
    const std::string name = "\"v" + std::to_string(i) + "\"";
    vertices += std::string(i > 0 ? "," : "") + R"({"name": )" + name + R"(, "kind": ")" +
                (i % 18 == 0 ? "gpu" : "leaf") + "\"}";
    const std::string next = "\"v" + std::to_string(i + 1) + "\"";
    if (i < 18)
      links += std::string(i > 0 ? "," : "") + R"({"from": )" + name + R"(, "to": )" + next + R"(, "class": "nic"})";
  }
  EXPECT_EQ(texts(with_graph(vertices + "]", links + "]", R"(, "nodes": 1)")),
            (Lines{"s.json: /graph/links: make a route of 18 links from v0 to v18; expected at most 16",
                   "s.json: /graph/links: make a route of 18 links from v18 to v0; expected at most 16"}));
  EXPECT_EQ(texts(with_graph(kVertices, kLinks, R"(, "nodes": 3)")),
            Lines{"s.json: /nodes: is 3; expected 2, as the graph has"});
}

// Faults elsewhere in the file hide none of the graph's.
TEST(GraphErrors, BesideFaultsOfTheClasses) {
  EXPECT_EQ(texts(with_graph(R"("vertices": [{"name": "g0", "kind": "gpu"}, {"name": "g1", "kind": "gpu"}])",
                             R"("links": [{"from": "g0", "to": "g9", "class": "nvlink"}])",
                             R"(, "scale_nvlink": 0, "nodes": 0)")),
            (Lines{"s.json: /nodes: is 0; expected an integer from 1 to 1048576",
                   "s.json: /scale_nvlink: is 0; expected a number from 0.001 to 1000",
                   "s.json: /graph/links/0/to: \"g9\" is no vertex; expected the name of a vertex; did you mean "
                   "\"g0\"?"}));
}

TEST(GraphErrors, WhatIfsOfAMachineWithoutLinks) {
  const auto topology =
      parse_topology(*parse_json(R"({"base": "dgx-a100-hdr", "gpus_per_node": 1, "network": {"nics_per_node": 1},
                      "what_if": [{"links": "g0.nic", "down": true}],
                      "graph": {"vertices": [{"name": "g0", "kind": "gpu"}], "links": []}})",
                                 "s.json"),
                     "s.json", "", kRoot);
  ASSERT_TRUE(topology.has_value());
  EXPECT_EQ(texts(make_cluster(*topology, 1)),
            Lines{"s.json: /what_if/0/links: \"g0.nic\" names no link of this cluster; expected no such entry: the "
                  "cluster has no links"});
}

// Every class that a link may name is one of the cluster's, also where the topology has no such links itself; what-ifs
// are counted against the link's own rate, and whole classes scale rates that links give themselves.
TEST(Graph, LinksOfEveryClassAreCounted) {
  const auto topology =
      parse_topology(*parse_json(R"({"base": "dgx-a100-hdr", "gpus_per_node": 2, "network": {"nics_per_node": 2},
                      "scale_nvlink": 0.5, "scale_network": 0.25,
                      "what_if": [{"links": "x.p", "scale_bandwidth": 0.5}, {"links": "p.n>", "down": true}],
                      "graph": {"vertices": [{"name": "x", "kind": "gpu"}, {"name": "y", "kind": "gpu"},
                      {"name": "p", "kind": "pcie-switch"}, {"name": "n", "kind": "nic"}, {"name": "l", "kind": "leaf"},
                      {"name": "s", "kind": "spine"}], "links": [
                      {"from": "x", "to": "y", "class": "nvlink", "gbytes_per_s": 200, "efficiency": 1},
                      {"from": "x", "to": "p", "class": "pcie", "gbytes_per_s": 32, "efficiency": 1},
                      {"from": "p", "to": "n", "class": "nic"}, {"from": "n", "to": "l", "class": "leaf"},
                      {"from": "l", "to": "s", "class": "spine", "gbytes_per_s": 100, "efficiency": 1}]}})",
                                 "s.json"),
                     "s.json", "", kRoot);
  const Cluster cluster = *make_cluster(*topology, 2);
  std::vector<std::string> counted;
  for (const LinkClassSummary& kind : describe_topology(cluster).link_classes) {
    counted.push_back(kind.name + " " + std::to_string(kind.links) + " " + std::to_string(kind.changed));
  }
  EXPECT_EQ(counted, (std::vector<std::string>{"nvlink 2 0", "nic 2 1", "pcie 2 2", "leaf 2 0", "spine 2 0"}));
  EXPECT_DOUBLE_EQ(describe_topology(cluster).link_classes[2].rated.value, 8e9);  // the link's own: no class has one
  for (const Link& link : cluster.links()) ASSERT_LT(link.link_class, cluster.link_classes().size()) << link.name;
  EXPECT_DOUBLE_EQ(cluster.links()[0].bandwidth.value, 100e9);  // 200 x 0.5
  EXPECT_DOUBLE_EQ(cluster.links()[2].bandwidth.value, 4e9);    // 32 x 0.25, then the what-if's half
  EXPECT_DOUBLE_EQ(cluster.described(2).effective().value, 8e9);
  EXPECT_DOUBLE_EQ(cluster.links()[8].bandwidth.value, 25e9);  // 100 x 0.25
}

TEST(GraphErrors, PcieWithoutARate) {
  const auto topology = parse_topology(
      *parse_json(R"({"base": "dgx-a100-hdr", "gpus_per_node": 2, "network": {"nics_per_node": 2}, "graph": {"vertices":
                      [{"name": "x", "kind": "gpu"}, {"name": "y", "kind": "gpu"}], "links": [{"from": "x", "to": "y",
                      "class": "pcie"}]}})",
                  "s.json"),
      "s.json", "", kRoot);
  EXPECT_EQ(texts(topology),
            Lines{"s.json: /graph/links/0/gbytes_per_s: is missing; expected a rate: the topology has no "
                  "link of class \"pcie\" to take it from"});
}

}  // namespace
}  // namespace longhaul
