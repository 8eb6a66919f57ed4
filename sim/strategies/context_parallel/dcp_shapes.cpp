#include "sim/strategies/context_parallel/dcp_shapes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/placed.h"

namespace longhaul {
namespace {

// What one rank does with blocks of others.
struct Worker {
  std::vector<std::size_t> local, own, remote;               // work: both own, own queries, queries of others
  std::map<std::int32_t, int> key_division, query_division;  // of blocks that come from elsewhere
  std::vector<std::map<std::int32_t, std::int64_t>> key_rows, query_rows;  // by division: first row of each block
};

class ShapeMaker {
 public:
  ShapeMaker(const DcpPlan& plan, int divisions) : plan_(plan), divisions_(static_cast<std::size_t>(divisions)) {
    place_blocks();
    workers_.resize(plan.rows.ranks.size());
    for (std::size_t i = 0; i < plan.work.size(); ++i) {
      const DcpWork& work = plan.work[i];
      Worker& worker = workers_[static_cast<std::size_t>(work.worker)];
      if (owner(work.query) != work.worker) {
        worker.remote.push_back(i);
      } else {
        (owner(work.key) == work.worker ? worker.local : worker.own).push_back(i);
      }
    }
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) divide(static_cast<std::int32_t>(rank));
  }

  std::vector<BlockShape> make() {
    std::vector<BlockShape> shapes(workers_.size());
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      shapes[rank].divisions.resize(divisions_);
      make_pieces(rank, shapes[rank]);
    }
    for (std::size_t d = 0; d < divisions_; ++d) make_exchanges(d, shapes);
    return shapes;
  }

 private:
  const DcpBlock& block(std::int32_t index) const { return plan_.blocks[static_cast<std::size_t>(index)]; }
  std::int32_t owner(std::int32_t index) const { return block(index).owner; }
  std::int64_t row(std::int32_t index) const { return rows_[static_cast<std::size_t>(index)]; }
  std::int64_t pairs(const DcpWork& work) const {
    const DcpBlock &query = block(work.query), &key = block(work.key);
    return work.query == work.key ? causal_pairs(query.tokens) : query.tokens * key.tokens;
  }

  // Local row of each block on its owner.
  void place_blocks() {
    std::map<DocumentId, std::vector<PlacedShard>> of_document;
    for (std::size_t rank = 0; rank < plan_.rows.ranks.size(); ++rank) {
      for (const PlacedShard& shard : place(plan_.rows.ranks[rank], rank)) {
        if (!shard.shard.is_padding()) of_document[shard.shard.document].push_back(shard);
      }
    }
    for (auto& [document, shards] : of_document) {
      std::sort(shards.begin(), shards.end(),
                [](const PlacedShard& a, const PlacedShard& b) { return a.shard.prefix < b.shard.prefix; });
    }
    for (const DcpBlock& of : plan_.blocks) {
      const std::vector<PlacedShard>& shards = of_document.at(of.document);
      const auto after =
          std::upper_bound(shards.begin(), shards.end(), of.first,
                           [](std::int64_t token, const PlacedShard& shard) { return token < shard.shard.prefix; });
      const PlacedShard& shard = *(after - 1);
      LH_ASSERT(static_cast<std::int32_t>(shard.rank) == of.owner, "block of rank {} stands on {}", of.owner,
                shard.rank);
      rows_.push_back(shard.row + of.first - shard.shard.prefix);
    }
  }

  // Which division brings each block that a rank takes from others.
  void divide(std::int32_t rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank)];
    std::map<std::int32_t, std::int64_t> key_work;  // own queries' pairs by key block of another rank
    std::vector<std::int64_t> load(divisions_, 0);
    std::map<std::int32_t, std::int64_t> query_work;
    std::map<std::int32_t, std::vector<std::int32_t>> keys_of;
    for (const std::size_t i : worker.own) key_work[plan_.work[i].key] += pairs(plan_.work[i]);
    for (const std::size_t i : worker.remote) {
      const DcpWork& work = plan_.work[i];
      query_work[work.query] += pairs(work);
      if (owner(work.key) == rank) continue;
      key_work.try_emplace(work.key, 0);
      keys_of[work.query].push_back(work.key);
    }
    std::vector<std::int32_t> keys;
    std::int64_t total = 0, done = 0;
    for (const auto& [key, of_key] : key_work) {
      keys.push_back(key);
      total += of_key;
    }
    std::stable_sort(keys.begin(), keys.end(), [&](std::int32_t a, std::int32_t b) {
      return owner(a) != owner(b) ? owner(a) < owner(b) : row(a) < row(b);
    });
    const auto count = static_cast<std::int64_t>(divisions_);
    for (const std::int32_t key : keys) {
      const std::int64_t d = total == 0 ? 0 : std::min(count - 1, done * count / total);
      worker.key_division[key] = static_cast<int>(d);
      load[static_cast<std::size_t>(d)] += key_work.at(key);
      done += key_work.at(key);
    }
    std::vector<std::int32_t> queries;
    for (const auto& [query, of_query] : query_work) queries.push_back(query);
    std::stable_sort(queries.begin(), queries.end(),
                     [&](std::int32_t a, std::int32_t b) { return query_work.at(a) > query_work.at(b); });
    for (const std::int32_t query : queries) {
      std::size_t first = 0;
      for (const std::int32_t key : keys_of[query]) {
        first = std::max(first, static_cast<std::size_t>(worker.key_division.at(key)));
      }
      const auto lightest = std::min_element(load.begin() + static_cast<std::ptrdiff_t>(first), load.end());
      worker.query_division[query] = static_cast<int>(lightest - load.begin());
      *lightest += query_work.at(query);
    }
    place_received(worker.key_division, worker.key_rows);
    place_received(worker.query_division, worker.query_rows);
  }

  // Received rows of a division stand in order of sender and of the sender's rows.
  void place_received(const std::map<std::int32_t, int>& division,
                      std::vector<std::map<std::int32_t, std::int64_t>>& rows) {
    rows.resize(divisions_);
    for (std::size_t d = 0; d < divisions_; ++d) {
      std::int64_t next = 0;
      for (const std::int32_t index : received(division, d)) {
        rows[d][index] = next;
        next += block(index).tokens;
      }
    }
  }

  std::vector<std::int32_t> received(const std::map<std::int32_t, int>& division, std::size_t d) const {
    std::vector<std::int32_t> blocks;
    for (const auto& [index, of] : division) {
      if (static_cast<std::size_t>(of) == d) blocks.push_back(index);
    }
    std::stable_sort(blocks.begin(), blocks.end(), [&](std::int32_t a, std::int32_t b) {
      return owner(a) != owner(b) ? owner(a) < owner(b) : row(a) < row(b);
    });
    return blocks;
  }

  Piece piece_of(const DcpWork& work, std::int64_t q_row, std::int64_t k_row, int operand) const {
    const auto shard = [&](std::int32_t index) {
      return Shard{block(index).document, block(index).first, block(index).tokens, 0};
    };
    Piece piece = run_piece(shard(work.query), q_row, shard(work.key), k_row, operand);
    piece.pairs = piece_pairs(piece);
    return piece;
  }

  void make_pieces(std::size_t rank, BlockShape& shape) {
    const Worker& worker = workers_[rank];
    std::vector<Piece> local;
    for (const std::size_t i : worker.local) {
      const DcpWork& work = plan_.work[i];
      local.push_back(piece_of(work, row(work.query), row(work.key), 0));
    }
    shape.local_pieces = joined(std::move(local));
    std::vector<std::vector<Piece>> own(divisions_), remote(divisions_);
    std::vector<std::set<std::pair<std::int64_t, std::int32_t>>> own_blocks(divisions_);  // by local row
    for (const std::size_t i : worker.own) {
      const DcpWork& work = plan_.work[i];
      own_blocks[static_cast<std::size_t>(worker.key_division.at(work.key))].insert({row(work.query), work.query});
    }
    std::vector<std::map<std::int32_t, std::int64_t>> own_row(divisions_);  // of each query block in the launch
    for (std::size_t d = 0; d < divisions_; ++d) {
      std::vector<RowSpan> spans;
      std::int64_t next = 0;
      for (const auto& [local_row, index] : own_blocks[d]) {
        spans.push_back({local_row, block(index).tokens});
        own_row[d][index] = next;
        next += block(index).tokens;
      }
      shape.divisions[d].own_rows = make_row_list(std::move(spans));
    }
    for (const std::size_t i : worker.own) {
      const DcpWork& work = plan_.work[i];
      const auto d = static_cast<std::size_t>(worker.key_division.at(work.key));
      own[d].push_back(piece_of(work, own_row[d].at(work.query), worker.key_rows[d].at(work.key), 0));
    }
    for (const std::size_t i : worker.remote) {
      const DcpWork& work = plan_.work[i];
      const auto d = static_cast<std::size_t>(worker.query_division.at(work.query));
      const std::int64_t q_row = worker.query_rows[d].at(work.query);
      if (owner(work.key) == static_cast<std::int32_t>(rank)) {
        remote[d].push_back(piece_of(work, q_row, row(work.key), 0));
      } else {
        const int brought = worker.key_division.at(work.key);
        const std::int64_t k_row = worker.key_rows[static_cast<std::size_t>(brought)].at(work.key);
        remote[d].push_back(piece_of(work, q_row, k_row, brought + 1));
      }
    }
    for (std::size_t d = 0; d < divisions_; ++d) {
      shape.divisions[d].own_pieces = joined(std::move(own[d]));
      shape.divisions[d].remote_pieces = joined(std::move(remote[d]));
    }
  }

  // Where `b` continues `a`: one piece with the keys or the queries of both and no pair more.
  static bool try_join(Piece& a, const Piece& b, bool along_keys) {
    if (a.operand != b.operand) return false;
    Piece both = a;
    const bool same_queries = a.q_row == b.q_row && a.q_count == b.q_count && a.q_token == b.q_token;
    const bool next_keys = b.k_row == a.k_row + a.k_count && b.k_token == a.k_token + a.k_count;
    const bool next_queries = b.q_row == a.q_row + a.q_count && b.q_token == a.q_token + a.q_count;
    const bool same_keys = a.k_row == b.k_row && a.k_token == b.k_token && b.k_count >= a.k_count;
    if (along_keys ? !(same_queries && next_keys) : !(next_queries && same_keys)) return false;
    if (along_keys) {
      both.k_count += b.k_count;
    } else {
      both.q_count += b.q_count;
      both.k_count = b.k_count;
    }
    both.rule = both.k_token + both.k_count <= both.q_token ? MaskRule::kFull : MaskRule::kCausal;
    both.pairs = piece_pairs(both);
    if (both.pairs != a.pairs + b.pairs) return false;
    a = both;
    return true;
  }

  // Tiles of adjoining blocks become larger pieces: first along keys, then along queries.
  static PieceListPtr joined(std::vector<Piece> pieces) {
    const auto pass = [&](bool along_keys) {
      std::vector<Piece> kept;
      for (const Piece& piece : pieces) {
        if (kept.empty() || !try_join(kept.back(), piece, along_keys)) kept.push_back(piece);
      }
      pieces = std::move(kept);
    };
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.q_row, a.operand, a.k_row) < std::tie(b.q_row, b.operand, b.k_row);
    });
    pass(true);
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.operand, a.k_row, a.q_row) < std::tie(b.operand, b.k_row, b.q_row);
    });
    pass(false);
    return make_piece_list(std::move(pieces));
  }

  // Sends and receives of one division. `rows[rank]`: first row of each block that the rank receives.
  void make_exchanges(std::size_t d, std::vector<BlockShape>& shapes) {
    const std::size_t ranks = shapes.size();
    bool any_query = false, any_key = false;
    for (const Worker& worker : workers_) {
      any_query |= !worker.query_rows[d].empty();
      any_key |= !worker.key_rows[d].empty();
    }
    std::vector<std::vector<BlockPeer>> peers(ranks, std::vector<BlockPeer>(ranks));
    for (const bool keys : {false, true}) make_route(d, keys, shapes, peers);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      BlockDivision& division = shapes[rank].divisions[d];
      bool queries_move = false, keys_move = false;
      for (std::size_t other = 0; other < ranks; ++other) {
        BlockPeer& peer = peers[rank][other];
        peer.peer = static_cast<std::int32_t>(other);
        queries_move |= peer.query_send != nullptr || peer.query_receive != nullptr;
        keys_move |= peer.key_send != nullptr || peer.key_receive != nullptr;
      }
      // A call of the whole group: one that moves nothing takes part in it. If nobody moves anything there is none.
      peers[rank][rank].joins_queries = any_query && !queries_move;
      peers[rank][rank].joins_keys = any_key && !keys_move;
      division.peers = std::move(peers[rank]);
    }
  }

  void make_route(std::size_t d, bool keys, std::vector<BlockShape>& shapes,
                  std::vector<std::vector<BlockPeer>>& peers) {
    const std::size_t ranks = shapes.size();
    std::vector<std::vector<std::vector<RowSpan>>> sends(ranks, std::vector<std::vector<RowSpan>>(ranks));
    for (std::size_t to = 0; to < ranks; ++to) {
      const Worker& worker = workers_[to];
      std::vector<RowRun> runs;
      std::map<std::size_t, RowSpan> arrivals;  // by sender
      for (const std::int32_t index : received(keys ? worker.key_division : worker.query_division, d)) {
        const DcpBlock& of = block(index);
        const auto from = static_cast<std::size_t>(of.owner);
        const std::int64_t at = (keys ? worker.key_rows : worker.query_rows)[d].at(index);
        runs.push_back({of.document, TokenView::kClean, of.first, of.tokens});
        sends[from][to].push_back({row(index), of.tokens});
        RowSpan& span = arrivals[from];
        if (span.count == 0) span.begin = at;
        span.count += of.tokens;
      }
      BlockDivision& division = shapes[to].divisions[d];
      (keys ? division.key_rows : division.query_rows) = make_row_map(std::move(runs));
      for (const auto& [from, span] : arrivals) {
        (keys ? peers[to][from].key_receive : peers[to][from].query_receive) = make_row_list({span});
      }
    }
    for (std::size_t from = 0; from < ranks; ++from) {
      std::vector<RowSpan> all;
      std::int64_t sent = 0;
      for (std::size_t to = 0; to < ranks; ++to) {
        std::int64_t rows = 0;
        for (const RowSpan& span : sends[from][to]) rows += span.count;
        if (rows == 0) continue;
        (keys ? peers[from][to].key_send : peers[from][to].query_send) = make_row_list({{sent, rows}});
        all.insert(all.end(), sends[from][to].begin(), sends[from][to].end());
        sent += rows;
      }
      BlockDivision& division = shapes[from].divisions[d];
      (keys ? division.key_sends : division.query_sends) = make_row_list(std::move(all));
    }
  }

  const DcpPlan& plan_;
  std::size_t divisions_;
  std::vector<std::int64_t> rows_;
  std::vector<Worker> workers_;
};

}  // namespace

std::vector<BlockShape> dcp_shapes(const DcpPlan& plan, int divisions) { return ShapeMaker(plan, divisions).make(); }

}  // namespace longhaul
