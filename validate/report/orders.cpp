#include "validate/report/orders.h"

#include <algorithm>

namespace longhaul {
namespace {

const ComparedRow* slowest_rank(const Comparison& run) {
  const ComparedRow* slowest = nullptr;
  for (const ComparedRow& row : run.rank_compute) {
    if (row.source != Source::kMeasured) continue;
    if (slowest == nullptr || row.measured > slowest->measured) slowest = &row;
  }
  return slowest;
}

double predicted_slowest(const Comparison& run) {
  double slowest = 0;
  for (const ComparedRow& row : run.rank_compute) slowest = std::max(slowest, row.predicted);
  return slowest;
}

bool comparable(const Comparison& a, const Comparison& b) {
  return a.identity.study == b.identity.study && a.identity.study_case == b.identity.study_case &&
         a.hardware.device == b.hardware.device && a.placement == b.placement && a.ranks == b.ranks &&
         a.strategy != b.strategy;
}

}  // namespace

Orders compare_orders(const std::vector<Comparison>& runs) {
  Orders orders;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (std::size_t j = i + 1; j < runs.size(); ++j) {
      if (!comparable(runs[i], runs[j])) continue;
      const Comparison* fast = &runs[i];
      const Comparison* slow = &runs[j];
      const ComparedRow* a = slowest_rank(*fast);
      const ComparedRow* b = slowest_rank(*slow);
      if (a == nullptr || b == nullptr) continue;
      if (a->measured > b->measured) {
        std::swap(a, b);
        std::swap(fast, slow);
      }
      const double predicted = predicted_slowest(*fast);
      if (a->measured_high >= b->measured_low || predicted <= 0) {
        ++orders.too_close;
        continue;
      }
      const RankKernels &over = slow->slowest_rank, &under = fast->slowest_rank;
      Ratio ratio{predicted_slowest(*slow) / predicted, 0, 0};
      ratio.low = ratio.high = ratio.value;
      if (over.time > Time::zero() && under.time > Time::zero()) {
        ratio = ratio_of(over.time, over.widths, under.time, under.widths);
      }
      orders.pairs.push_back({fast->identity.study, fast->identity.study_case, fast->hardware.device, fast->ranks,
                              fast->strategy, slow->strategy, b->measured / a->measured, ratio.value, ratio.low,
                              ratio.high});
    }
  }
  return orders;
}

}  // namespace longhaul
