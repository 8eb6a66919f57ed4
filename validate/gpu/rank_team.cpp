#include "validate/gpu/rank_team.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "kernels/common/check.h"
#include "sim/core/invariant.h"

namespace longhaul {

RankTeam::RankTeam(int ranks, OnFault on_fault)
    : ranks_(ranks), on_fault_(std::move(on_fault)), barrier_(ranks), shared_(static_cast<std::size_t>(ranks)) {
  LH_ASSERT(ranks >= 1, "a team of {} ranks", ranks);
}

void RankTeam::run(const std::function<void(Member&)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([this, rank, &body] {
      try {
        LH_CUDA_CHECK(cudaSetDevice(rank));
        Member member(*this, rank);
        body(member);
      } catch (...) {
        on_fault_(rank, std::current_exception());
      }
    });
  }
}

std::vector<double> RankTeam::Member::gather(const std::vector<double>& values) {
  team_.shared_[static_cast<std::size_t>(rank_)] = values;
  barrier();
  std::vector<double> all;
  for (const std::vector<double>& part : team_.shared_) all.insert(all.end(), part.begin(), part.end());
  barrier();  // nobody writes the next values while somebody still reads these
  return all;
}

double RankTeam::Member::max(double value) {
  const std::vector<double> all = gather({value});
  return *std::max_element(all.begin(), all.end());
}

double RankTeam::Member::mean(double value) {
  const std::vector<double> all = gather({value});
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

}  // namespace longhaul
