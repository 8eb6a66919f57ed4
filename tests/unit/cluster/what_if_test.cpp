// What-ifs: what each does to links and routes, and every text of a wrong one.
#include "sim/cluster/what_if.h"

#include <gtest/gtest.h>

#include "sim/cluster/describe.h"
#include "sim/core/json.h"
#include "tests/unit/cluster/data_root.h"
#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

Expected<Topology> with_what_if(const std::string& list, const std::string& base = "dgx-a100-hdr",
                                const std::string& network = "{}") {
  const std::string text = R"({"base": ")" + base + R"(", "network": )" + network + R"(, "what_if": )" + list + "}";
  return parse_topology(*parse_json(text, "s.json"), "s.json", "/topology", kRoot);
}

Cluster cluster_of(const std::string& list, int gpus = 32, const std::string& base = "dgx-a100-hdr",
                   const std::string& network = "{}") {
  return *make_cluster(*with_what_if(list, base, network), gpus);
}

Lines cluster_errors(const std::string& list, int gpus = 32, const std::string& base = "dgx-a100-hdr",
                     const std::string& network = "{}") {
  return texts(make_cluster(*with_what_if(list, base, network), gpus, "s.json", "/gpus"));
}

double rate(const Cluster& cluster, const std::string& name) {
  for (const Link& link : cluster.links()) {
    if (link.name == name) return link.bandwidth.value / 1e9;
  }
  return -1;
}

TEST(NamesLink, FullNamesBothDirectionsAndPatterns) {
  EXPECT_TRUE(names_link("n3.nic0>", "n3.nic0>"));
  EXPECT_FALSE(names_link("n3.nic0>", "n3.nic0<"));
  EXPECT_TRUE(names_link("n3.nic0", "n3.nic0<"));
  EXPECT_FALSE(names_link("n3.nic1", "n3.nic10<"));
  EXPECT_TRUE(names_link("n*.nic2", "n17.nic2>"));
  EXPECT_TRUE(names_link("n*.nic2*", "n17.nic21>"));
  EXPECT_TRUE(names_link("n[0-3].g?.nvl", "n2.g7.nvl<"));
  EXPECT_FALSE(names_link("n[0-3].g?.nvl", "n4.g7.nvl<"));
  EXPECT_TRUE(names_link("n0.g1>g2", "n0.g1>g2"));
  EXPECT_FALSE(names_link("n0.g1", "n0.g1>g2"));
}

TEST(WhatIf, ScalesBandwidthAndLatency) {
  const Cluster cluster =
      cluster_of(R"([{"links": "n1.nic*>", "scale_bandwidth": 0.5}, {"links": "n1.nic3", "scale_latency": 3}])");
  EXPECT_DOUBLE_EQ(rate(cluster, "n1.nic3>"), 12);
  EXPECT_DOUBLE_EQ(rate(cluster, "n1.nic3<"), 24);
  EXPECT_DOUBLE_EQ(rate(cluster, "n0.nic3>"), 24);
  // Half of 2.7 us in at node 0 as before, three times the other half out of node 1.
  EXPECT_EQ(cluster.route_latency(8 + 3, 3), Time::from_us(1.35 + 3 * 1.35));
  EXPECT_EQ(cluster.route_latency(8 + 2, 2), Time::from_us(2.7));
  // One by one, in order: each changes what the one before left.
  EXPECT_DOUBLE_EQ(rate(cluster_of(R"([{"links": "n0.nic0>", "scale_bandwidth": 0.5},
                                       {"links": "n0.nic0>", "background_gbytes_per_s": 2},
                                       {"links": "n0.nic0>", "scale_bandwidth": 0.5}])"),
                        "n0.nic0>"),
                   (24 * 0.5 - 2) * 0.5);
}

TEST(WhatIf, ASlowRailIsItsNicsAndLeaves) {
  const Cluster cluster = cluster_of(R"([{"rail": 2, "scale_bandwidth": 0.25}])", 64, "dgx-a100-hdr",
                                     R"({"nodes_per_leaf": 4, "oversubscription": 2})");
  EXPECT_DOUBLE_EQ(rate(cluster, "n7.nic2<"), 6);
  EXPECT_DOUBLE_EQ(rate(cluster, "n7.nic1<"), 24);
  EXPECT_DOUBLE_EQ(rate(cluster, "leaf1.r2>"), 4 * 24 / 2 / 4.0);
  EXPECT_DOUBLE_EQ(rate(cluster, "leaf1.r3>"), 4 * 24 / 2);
}

// In a fat tree a rail is its NICs: the one leaf of a node is no more rail 0's than rail 1's.
TEST(WhatIf, ASlowRailOfAFatTreeIsItsNics) {
  for (const int rail : {0, 1}) {
    const std::string list = R"([{"rail": )" + std::to_string(rail) + R"(, "scale_bandwidth": 0.5}])";
    for (const char* routing : {"spread", "hash"}) {
      const Cluster cluster = cluster_of(list, 32, "dgx-a100-hdr",
                                         R"({"fabric": "fat-tree", "nodes_per_leaf": 2, "oversubscription": 2,
                                             "routing": ")" +
                                             std::string(routing) + "\"}");
      for (const LinkClassSummary& kind : describe_topology(cluster).link_classes) {
        EXPECT_EQ(kind.changed, kind.name == "nic" ? 8 : 0) << kind.name << " rail " << rail << " " << routing;
      }
    }
  }
}

TEST(WhatIf, BackgroundTakesItsRate) {
  const Cluster cluster = cluster_of(R"([{"from": 1, "to": 13, "background_gbytes_per_s": 10}])");
  // Rank 1 reaches rank 13, GPU 5 of node 1, over GPU 5 of its own node.
  EXPECT_DOUBLE_EQ(rate(cluster, "n0.g1.nvl>"), 230);
  EXPECT_DOUBLE_EQ(rate(cluster, "n0.g5.nvl<"), 230);
  EXPECT_DOUBLE_EQ(rate(cluster, "n0.nic5>"), 14);
  EXPECT_DOUBLE_EQ(rate(cluster, "n1.nic5<"), 14);
  EXPECT_DOUBLE_EQ(rate(cluster, "n1.nic5>"), 24);
}

// A non-blocking level has no links, unless a what-if names them.
TEST(WhatIf, BringsInTheLinksOfALevelThatItNames) {
  EXPECT_DOUBLE_EQ(rate(cluster_of("[]"), "leaf0.r1>"), -1);
  const Cluster cluster = cluster_of(R"([{"links": "leaf0.r1", "scale_bandwidth": 0.1}])", 8 * 40);
  EXPECT_DOUBLE_EQ(rate(cluster, "leaf0.r1>"), 20 * 24 * 0.1);
  EXPECT_EQ(describe_route(cluster, 1, 8 * 20 + 1).links, (Names{"n0.nic1>", "leaf0.r1>", "leaf1.r1<", "n20.nic1<"}));
}

TEST(WhatIf, ANicDownIsPassedOverAnotherRail) {
  const Cluster cluster = cluster_of(R"([{"links": "n1.nic3", "down": true}])");
  // From another rail: over the source's own; the target's GPU gets it over NVLink.
  EXPECT_EQ(describe_route(cluster, 0, 8 + 3).links, (Names{"n0.nic0>", "n1.nic0<", "n1.g0.nvl>", "n1.g3.nvl<"}));
  // From the same rail: GPU 0 is the first with a NIC that is up at both ends.
  EXPECT_EQ(describe_route(cluster, 3, 8 + 3).links,
            (Names{"n0.g3.nvl>", "n0.g0.nvl<", "n0.nic0>", "n1.nic0<", "n1.g0.nvl>", "n1.g3.nvl<"}));
  EXPECT_EQ(describe_route(cluster, 8 + 3, 5).links, (Names{"n1.g3.nvl>", "n1.g5.nvl<", "n1.nic5>", "n0.nic5<"}));
  // Nobody else is touched.
  EXPECT_EQ(describe_route(cluster, 3, 16 + 3).links, (Names{"n0.nic3>", "n2.nic3<"}));
}

TEST(WhatIf, AnNvLinkDownGoesOverThePeers) {
  const Cluster pairs = cluster_of(R"([{"links": "n0.g0>g3", "down": true}])", 8, "a100-40gb-2x4");
  EXPECT_EQ(describe_route(pairs, 0, 3).links, (Names{"n0.g0>g1", "n0.g1>g3"}));
  EXPECT_EQ(describe_route(pairs, 3, 0).links, Names{"n0.g3>g0"});
  // Behind a switch only the network is left.
  const Cluster dgx = cluster_of(R"([{"links": "n0.g2.nvl>", "down": true}])");
  EXPECT_EQ(describe_route(dgx, 2, 5).links, (Names{"n0.nic2>", "n0.nic5<"}));
}

TEST(WhatIf, ASpineDownIsPassedOverTheOthers) {
  const std::string network = R"({"nodes_per_leaf": 2, "oversubscription": 1, "routing": "hash"})";
  const Cluster before = cluster_of("[]", 64, "dgx-a100-hdr", network);
  const Cluster after = cluster_of(R"([{"links": "leaf*.s0", "down": true}])", 64, "dgx-a100-hdr", network);
  int moved = 0;
  for (int from = 0; from < 16; ++from) {
    const Names old_links = describe_route(before, from, from + 32).links;
    const Names new_links = describe_route(after, from, from + 32).links;
    ASSERT_EQ(new_links.size(), 4u);
    EXPECT_TRUE(new_links[1].ends_with(".s1>")) << new_links[1];
    EXPECT_TRUE(new_links[2].ends_with(".s1<")) << new_links[2];
    moved += old_links != new_links;
  }
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 16);
}

TEST(WhatIf, IsSeenInTheSummary) {
  const Cluster cluster = cluster_of(
      R"([{"rail": 2, "scale_bandwidth": 0.25, "scale_latency": 2}, {"links": "n0.nic7", "down": true},
          {"from": 0, "to": 9, "background_gbytes_per_s": 1.5}])");
  const TopologySummary summary = describe_topology(cluster);
  EXPECT_EQ(summary.what_ifs,
            (Names{"rail 2, bandwidth x 0.25, latency x 2", "n0.nic7 down", "rank 0 to rank 9, background 1.5 GB/s"}));
  // 4 nodes: rail 2 both ways, NIC 7 both ways, and the two NICs of the route over rail 1.
  EXPECT_EQ(summary.link_classes[1].changed, 8 + 2 + 2);
}

TEST(WhatIfErrors, OfTheList) {
  const std::string at = "s.json: /topology/what_if";
  EXPECT_EQ(texts(with_what_if("7")), Lines{at + ": is 7; expected a list of what-ifs"});
  EXPECT_EQ(texts(with_what_if(R"([7])")), Lines{at + "/0: is 7; expected an object"});
  EXPECT_EQ(
      texts(with_what_if(
          R"([{"link": "n0.nic0", "scale_bandwidth": 0}, {"rail": 1},
                       {"links": "n0.nic0", "rail": 2, "down": true},
                       {"from": 3, "scale_latency": 2}, {"from": 3, "to": 3, "background_gbytes_per_s": -1},
                       {"links": "n0.nic0", "down": true, "scale_bandwidth": 0.5},
                       {"links": "n0.nic0", "down": false}])")),
      (Lines{
          at + "/0/scale_bandwidth: is 0; expected a number from 0.001 to 1000",
          at + "/0/links: is missing; expected a link's name or a pattern; or \"rail\", or \"from\" and \"to\"",
          at + "/0/link: unknown key; did you mean \"links\"?",
          at + "/1: changes nothing; expected \"scale_bandwidth\", \"scale_latency\", \"background_gbytes_per_s\" or "
               "\"down\": true",
          at + "/2/rail: contradicts another key; expected one of \"links\", \"rail\", \"from\" with \"to\"",
          at + "/3/to: is missing; expected a rank: background traffic has two ends",
          at + "/3/scale_latency: has no meaning here; expected only \"background_gbytes_per_s\" with \"from\" and "
               "\"to\"",
          at + "/4/background_gbytes_per_s: is -1; expected a number from 0.001 to 100000",
          at + "/4/to: is 3; expected another rank than \"from\"",
          at + "/5/down: contradicts another key; expected a link that is down has no bandwidth, latency or traffic",
          at + "/6/down: is false; expected true, or no entry at all",
      }));
  EXPECT_EQ(texts(with_what_if(R"([{"links": "", "down": true}])")),
            Lines{at + "/0/links: is empty; expected a link's name or a pattern"});
}

TEST(WhatIfErrors, NamesAndRanksOfTheCluster) {
  EXPECT_EQ(cluster_errors(R"([{"links": "n0.nci3>", "scale_bandwidth": 0.5}, {"rail": 8, "scale_bandwidth": 0.5},
                               {"from": 0, "to": 32, "background_gbytes_per_s": 1}, {"links": "n4.*", "down": true}])"),
            (Lines{
                "s.json: /topology/what_if/0/links: \"n0.nci3>\" names no link of this cluster; expected a name or a "
                "pattern of its 128 links, such as \"n0.g0.nvl>\" or \"n3.nic7<\"; did you mean \"n0.nic3>\"?",
                "s.json: /topology/what_if/1/rail: there is no rail 8; expected 0 to 7",
                "s.json: /topology/what_if/2/to: there is no rank 32; expected 0 to 31",
                "s.json: /topology/what_if/3/links: \"n4.*\" names no link of this cluster; expected a name or a "
                "pattern of its 128 links, such as \"n0.g0.nvl>\" or \"n3.nic7<\"",
            }));
}

TEST(WhatIfErrors, BackgroundOfAllThatALinkCarries) {
  EXPECT_EQ(cluster_errors(R"([{"links": "n0.nic0>", "background_gbytes_per_s": 24}])"),
            Lines{"s.json: /topology/what_if/0/background_gbytes_per_s: is 24; expected less than the 24 GB/s that "
                  "n0.nic0> carries"});
}

TEST(WhatIfErrors, ARouteThatDoesNotExist) {
  const std::string remedy = "; expected every rank to reach every other: leave one more of these links up";
  EXPECT_EQ(cluster_errors(R"([{"links": "n2.nic*>", "down": true}])").at(0),
            "s.json: /topology/what_if/0: the links that are down leave no way from rank 16 to rank 0" + remedy);
  EXPECT_EQ(cluster_errors(R"([{"links": "n2.nic*>", "down": true}])").size(), 1u);  // once for two nodes, not a rank
  EXPECT_EQ(cluster_errors(R"([{"links": "n0.nic0", "down": true}])", 8, "a100-40gb-2x4").at(0),
            "s.json: /topology/what_if/0: the links that are down leave no way from rank 0 to rank 4" + remedy);
  // Node 1 keeps only rail 0, node 2 only rail 1; leaves without a way up between them.
  EXPECT_EQ(cluster_errors(R"([{"links": "n1.nic[1-7]", "down": true}, {"links": "n2.nic[02-7]", "down": true},
                               {"links": "leaf0.r1", "down": true}])")
                .at(0),
            "s.json: /topology/what_if/2: the links that are down leave no way from rank 8 to rank 16" + remedy);
}

// The entry that takes the last way is named, not the first of the list; each pair of nodes once.
TEST(WhatIfErrors, TheEntryThatCutsRanksOffIsNamed) {
  const std::string remedy = "; expected every rank to reach every other: leave one more of these links up";
  const std::string at = "s.json: /topology/what_if/";
  EXPECT_EQ(cluster_errors(R"([{"links": "n0.nic0", "down": true}, {"links": "n3.g1.nvl", "down": true},
                               {"links": "n1.nic[0-6]", "down": true}, {"rail": 2, "scale_bandwidth": 0.5},
                               {"links": "n1.nic7<", "down": true}, {"rail": 5, "down": true}])"),
            (Lines{at + "4: the links that are down leave no way from rank 0 to rank 8" + remedy,
                   at + "4: the links that are down leave no way from rank 16 to rank 8" + remedy,
                   at + "4: the links that are down leave no way from rank 24 to rank 8" + remedy}));
}

}  // namespace
}  // namespace longhaul
