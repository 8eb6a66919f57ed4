// What is left of an exchange when its last member comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sim/network/collectives.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMega = 1'000'000;

// Ranks of two nodes; 9 and 10 send much to 0, 8 little.
const std::vector<int>& ranks() {
  static const std::vector<int> of = {0, 8, 9, 10};
  return of;
}

std::vector<PeerMessage> uneven() {
  return {{8, 0, Bytes{8 * kMega}}, {9, 0, Bytes{64 * kMega}}, {10, 0, Bytes{64 * kMega}}, {0, 8, Bytes{kMega}}};
}

// Only what rank 8 sends and receives; the others stay members.
std::vector<PeerMessage> of_rank_8() {
  std::vector<PeerMessage> messages = uneven();
  messages[1].bytes = messages[2].bytes = Bytes{0};
  return messages;
}

TEST(LateExchange, MembersThatComeTogetherHaveAllOfIt) {
  const Cluster cluster = plain_cluster(16);
  Collectives collectives(cluster);
  const Transfer whole = collectives.exchange(uneven());
  const Transfer left = collectives.exchange_left(whole, uneven(), ranks(), std::vector<Time>(4, Time::zero()));
  EXPECT_EQ(left.alone, whole.alone);
  EXPECT_EQ(left.loads, whole.loads);
}

// Rank 8 comes last, the others have waited w: their messages are over at T(all) - w from then on, rank 8's after
// T(8) of their own.
TEST(LateExchange, TheLastOfTwoBoundsIsTheEnd) {
  const Cluster cluster = plain_cluster(16);
  Collectives collectives(cluster);
  const Transfer whole = collectives.exchange(uneven());
  const Transfer last = collectives.exchange(of_rank_8());
  ASSERT_LT(last.alone.ps() * 4, whole.alone.ps());
  for (const double part : {0.05, 0.3, 0.6, 0.99, 1.5}) {
    const Time w = Time::from_seconds(part * whole.alone.seconds());
    const Transfer left = collectives.exchange_left(whole, uneven(), ranks(), std::vector<Time>{w, Time::zero(), w, w});
    const std::int64_t expected = std::max(last.alone.ps(), (whole.alone - w).ps());
    EXPECT_NEAR(static_cast<double>(left.alone.ps()), static_cast<double>(expected), 2) << part;
    for (const LinkLoad& load : left.loads) {
      const auto same = [&](const LinkLoad& of) { return of.link == load.link; };
      EXPECT_LE(load.bytes, std::find_if(whole.loads.begin(), whole.loads.end(), same)->bytes);
    }
  }
}

// Whom the last member has nothing to do with is not held up by it; one that came before it still is by its own.
TEST(LateExchange, EveryMembersComingCounts) {
  const Cluster cluster = plain_cluster(16);
  Collectives collectives(cluster);
  const Transfer whole = collectives.exchange(uneven());
  const Time w = whole.alone;
  std::vector<PeerMessage> without_10 = uneven();
  without_10[2].bytes = Bytes{0};
  const Transfer two = collectives.exchange(without_10);  // of 8 and 9
  const Time early = Time::from_seconds(0.1 * two.alone.seconds());
  const Transfer left =
      collectives.exchange_left(whole, uneven(), ranks(), std::vector<Time>{w, Time::zero(), early, w});
  EXPECT_NEAR(static_cast<double>(left.alone.ps()), static_cast<double>((two.alone - early).ps()), 2);
}

TEST(LateExchange, EvenExchangesDoNotAsk) {
  const Cluster cluster = plain_cluster(16);
  const Collectives collectives(cluster);
  std::vector<PeerMessage> all, ring;
  std::vector<int> node;
  for (int rank = 0; rank < 8; ++rank) {
    node.push_back(rank);
    ring.push_back({rank, (rank + 1) % 8, Bytes{kMega}});
    for (int to = 0; to < 8; ++to) all.push_back({rank, to, Bytes{kMega}});
  }
  EXPECT_FALSE(collectives.waits_matter(all, node));
  EXPECT_FALSE(collectives.waits_matter(ring, node));
  EXPECT_FALSE(collectives.waits_matter(std::vector<PeerMessage>{{0, 8, Bytes{kMega}}}, std::vector<int>{0, 8}));
  EXPECT_TRUE(collectives.waits_matter(uneven(), ranks()));
}

}  // namespace
}  // namespace longhaul
