#include "sim/timeline/timeline.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(Fingerprint, DependsOnEveryField) {
  const OpRecord plain;
  const std::uint64_t base = fingerprint({&plain, 1});
  std::vector<OpRecord> changed(14, plain);
  changed[0].rank = 1;
  changed[1].stream = 1;
  changed[2].kind = OpKind::kGemm;
  changed[3].pass = Pass::kBackward;
  changed[4].label = "x";
  changed[5].segment = 1;
  changed[6].index = 1;
  changed[7].chunk = 1;
  changed[8].layer = 1;
  changed[9].group = 1;
  changed[10].issue = Time::from_ps(1);
  changed[11].arrival = Time::from_ps(1);
  changed[12].start = Time::from_ps(1);
  changed[13].end = Time::from_ps(1);
  for (std::size_t i = 0; i < changed.size(); ++i) EXPECT_NE(fingerprint({&changed[i], 1}), base) << "field " << i;
}

TEST(Fingerprint, DependsOnOrder) {
  OpRecord a;
  a.label = "a";
  OpRecord b;
  b.label = "b";
  EXPECT_NE(fingerprint(std::vector<OpRecord>{a, b}), fingerprint(std::vector<OpRecord>{b, a}));
}

TEST(RankTotals, SumsBusyAndIdleTime) {
  // 1 + 2 in forward, 4 in backward; idle 8 + 16 + 32 + 64 + 128.
  RankTotals totals;
  totals.compute[static_cast<std::size_t>(Pass::kForward)][static_cast<std::size_t>(OpKind::kGemm)] = Time::from_ps(1);
  totals.compute[static_cast<std::size_t>(Pass::kForward)][static_cast<std::size_t>(OpKind::kMove)] = Time::from_ps(2);
  totals.compute[static_cast<std::size_t>(Pass::kBackward)][static_cast<std::size_t>(OpKind::kGemm)] = Time::from_ps(4);
  totals.imbalance = Time::from_ps(8);
  totals.exposed_communication = Time::from_ps(16);
  totals.bubble = Time::from_ps(32);
  totals.launch = Time::from_ps(64);
  totals.tail = Time::from_ps(128);
  EXPECT_EQ(totals.busy(Pass::kForward).ps(), 3);
  EXPECT_EQ(totals.busy(Pass::kBackward, OpKind::kGemm).ps(), 4);
  EXPECT_EQ(totals.busy().ps(), 7);
  EXPECT_EQ(totals.idle().ps(), 248);
}

}  // namespace
}  // namespace longhaul
