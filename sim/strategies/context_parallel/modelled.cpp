#include "sim/strategies/context_parallel/modelled.h"

#include <algorithm>
#include <numeric>

#include "sim/core/invariant.h"
#include "sim/network/collectives.h"
#include "sim/strategies/context_parallel/placed.h"

namespace longhaul {
namespace {

constexpr std::int64_t kElementBytes = 2;  // bf16

struct RankWork {
  AttentionWork own;       // shards that begin their document
  AttentionWork gathered;  // the others
};

RankWork rank_work(const std::vector<Shard>& shards, bool full) {
  RankWork work;
  std::vector<DocumentId> gathered;
  for (const Shard& shard : shards) {
    if (shard.is_padding()) continue;
    const AttentionPieceSize piece{shard.tokens, shard.prefix + shard.tokens, shard_pairs(shard.prefix, shard.tokens)};
    if (shard.prefix == 0 && !full) {
      work.own.add(piece);
    } else {
      work.gathered.add(piece);
      gathered.push_back(shard.document);
    }
  }
  // The gathered copy has a document once: its shards see the same rows.
  std::sort(gathered.begin(), gathered.end());
  work.gathered.shared_keys = std::adjacent_find(gathered.begin(), gathered.end()) != gathered.end();
  return work;
}

// Rows that are put in order behind a gather of parts.
std::int64_t ordered_rows(const std::vector<Shard>& shards, bool full) {
  std::int64_t rows = 0;
  for (const Shard& shard : shards) {
    if (!shard.is_padding() && shard.prefix > 0 && !full) rows += shard.prefix + shard.tokens;
  }
  return rows;
}

// cp_loads(plan).nonlast_max, alone.
std::int64_t nonlast_max(const CpPlan& plan) {
  std::int64_t most = 0;
  for (const std::vector<Shard>& shards : plan.ranks) {
    std::int64_t rows = 0;
    for (const Shard& shard : shards) {
      if (!shard.is_padding() && !shard.is_last()) rows += shard.tokens;
    }
    most = std::max(most, rows);
  }
  return most;
}

}  // namespace

// Transfers of the first replica's group alone, and what was asked before.
struct CpClock::Transfers {
  Transfers(const Cluster& cluster, int ranks) : collectives(cluster), group(static_cast<std::size_t>(ranks)) {
    std::iota(group.begin(), group.end(), 0);
  }
  Collectives collectives;
  std::vector<int> group;
  std::map<std::int64_t, PassSeconds> gathers;  // by bytes a rank
  // By (prefix, tokens) of a rank's shards, in order. Searches change few ranks of a plan at a time.
  std::map<std::vector<std::int64_t>, PassSeconds> by_rank;
};
constexpr std::size_t kMostKnownRanks = 100'000;

CpClock::CpClock(const StrategyRequest& request) : request_(&request) {
  const bool again = request.training.backward && request.training.recompute == Recompute::kFull;
  forward_passes_ = again ? 2 : 1;
  if (known()) transfers_ = std::make_unique<Transfers>(*request.cluster, request.degrees.cp);
}

CpClock::~CpClock() = default;

bool CpClock::known() const { return request_->kernels != nullptr && request_->cluster != nullptr; }

CpClock::PassSeconds CpClock::attention(const AttentionWork& work) const {
  if (work.pieces == 0) return {};
  const ModelShape& model = request_->model;
  PassSeconds seconds;
  seconds.forward = request_->kernels->attention_forward(work, model.q_heads, model.kv_heads, model.head_dim).seconds;
  if (request_->training.backward) {
    seconds.backward =
        request_->kernels->attention_backward(work, model.q_heads, model.kv_heads, model.head_dim).seconds;
  }
  return seconds;
}

CpClock::PassSeconds CpClock::rank_attention(const std::vector<Shard>& shards, bool full) const {
  std::vector<std::int64_t> key = {full ? 1 : 0};
  key.reserve(2 * shards.size() + 1);
  for (const Shard& shard : shards) {
    if (shard.is_padding()) continue;
    key.push_back(shard.prefix);
    key.push_back(shard.tokens);
  }
  auto& known = transfers_->by_rank;
  if (known.size() >= kMostKnownRanks) known.clear();
  const auto [entry, fresh] = known.try_emplace(std::move(key));
  if (fresh) {
    const RankWork work = rank_work(shards, full);
    AttentionWork all = work.own;
    all.merge(work.gathered);
    entry->second = attention(all);
  }
  return entry->second;
}

// K and V of `rows` read and written once.
double CpClock::copy_seconds(std::int64_t rows) const {
  if (rows == 0) return 0;
  return request_->kernels->elementwise(Bytes{4 * rows * request_->model.kv_width() * kElementBytes}).seconds;
}

CpClock::PassSeconds CpClock::communication(const CpPlan& plan, CpTraffic traffic) const {
  const std::int64_t row_bytes = 2 * request_->model.kv_width() * kElementBytes;
  PassSeconds seconds;
  if (traffic == CpTraffic::kNeed) {
    std::map<std::pair<int, int>, std::int64_t> rows;
    const std::vector<ReceivedRows> received = needed_rows(plan);
    for (std::size_t to = 0; to < received.size(); ++to) {
      for (const PlacedShard& placed : received[to].shards) {
        rows[{static_cast<int>(placed.rank), static_cast<int>(to)}] += placed.shard.tokens;
      }
    }
    std::vector<PeerMessage> cast, reduce;
    for (const auto& [pair, count] : rows) {
      cast.push_back({pair.first, pair.second, Bytes{count * row_bytes}});
      reduce.push_back({pair.second, pair.first, Bytes{count * row_bytes}});
    }
    seconds.forward = transfers_->collectives.exchange(cast).alone.seconds();
    seconds.backward = transfers_->collectives.exchange(reduce).alone.seconds();
  } else {
    const std::int64_t rows = traffic == CpTraffic::kFull ? plan.padded_tokens_per_rank : nonlast_max(plan);
    const auto [known, fresh] = transfers_->gathers.try_emplace(rows);
    if (fresh) {
      known->second.forward =
          transfers_->collectives.all_gather(transfers_->group, Bytes{rows * row_bytes}).alone.seconds();
      known->second.backward =
          transfers_->collectives.reduce_scatter(transfers_->group, Bytes{rows * row_bytes}).alone.seconds();
    }
    seconds = known->second;
  }
  if (!request_->training.backward) seconds.backward = 0;
  return seconds;
}

double CpClock::layer_seconds(const CpPlan& plan, CpTraffic traffic, bool overlap) const {
  LH_ASSERT(known(), "no device or cluster to model time with");
  const bool full = traffic == CpTraffic::kFull;
  const PassSeconds transfer = communication(plan, traffic);
  double forward = 0, backward = 0;  // of the slowest rank in each pass
  for (const std::vector<Shard>& shards : plan.ranks) {
    const double copies = copy_seconds(ordered_rows(shards, full));
    if (overlap) {
      const RankWork work = rank_work(shards, full);
      const PassSeconds own = attention(work.own), gathered = attention(work.gathered);
      forward = std::max(forward, std::max(own.forward, transfer.forward) + copies + gathered.forward);
      backward = std::max(backward, gathered.backward + copies + std::max(own.backward, transfer.backward));
    } else {
      const PassSeconds seconds = rank_attention(shards, full);
      forward = std::max(forward, transfer.forward + copies + seconds.forward);
      backward = std::max(backward, seconds.backward + copies + transfer.backward);
    }
  }
  return forward_passes_ * forward + (request_->training.backward ? backward : 0);
}

double CpClock::forward_attention_seconds(const CpPlan& plan) const {
  LH_ASSERT(known(), "no device to model time with");
  double slowest = 0;
  for (const std::vector<Shard>& shards : plan.ranks) {
    slowest = std::max(slowest, attention(rank_work(shards, true).gathered).forward);
  }
  return slowest;
}

}  // namespace longhaul
