#include "sim/schedule/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/schedule/agreement.h"

namespace longhaul {
namespace {

// One forward attention op; (rank, segment, index, chunk) tells it apart from all others of its layer.
struct Site {
  OpInstance at;
  std::int64_t share = 0, shares = 1;  // of the heads
  auto key() const { return std::make_tuple(at.rank, at.segment, at.index, at.chunk); }
};

// Tokens behind the rows of a view: its rows [row, row + count) are rows [skip, skip + count) of a run of the row map.
struct ViewRun {
  std::int64_t row = 0, skip = 0, count = 0;
  const RowRun* run = nullptr;
};

std::vector<ViewRun> view_runs(const RowMap& map, const RowList* list) {
  std::vector<ViewRun> runs;
  std::int64_t view_row = 0;
  const auto add = [&](std::int64_t begin, std::int64_t count) {  // rows of the tensor
    std::int64_t row = 0;
    for (const RowRun& run : map.runs) {
      const std::int64_t first = std::max(row, begin);
      const std::int64_t last = std::min(row + run.count, begin + count);
      if (first < last) {
        runs.push_back({view_row, first - row, last - first, &run});
        view_row += last - first;
      }
      row += run.count;
    }
  };
  if (list == nullptr) {
    add(0, map.rows);
  } else {
    for (const RowSpan& span : list->spans) add(span.begin, span.count);
  }
  return runs;
}

// Where a piece's rows lie: a document and view, if they hold the tokens that the piece claims.
struct Placed {
  DocumentId document = -1;
  TokenView view = TokenView::kClean;
};

template <class Token>
bool place_rows(const std::vector<ViewRun>& runs, std::int64_t row, std::int64_t count, std::int64_t pattern,
                const Token& token, Placed& placed) {
  auto at =
      std::upper_bound(runs.begin(), runs.end(), row, [](std::int64_t r, const ViewRun& of) { return r < of.row; });
  if (at == runs.begin()) return false;
  --at;
  placed = {at->run->document, at->run->view};
  std::int64_t done = 0;
  while (done < count) {
    if (at == runs.end()) return false;
    const std::int64_t inside = row + done - at->row;
    if (inside >= at->count) {
      ++at;
      continue;
    }
    const RowRun& run = *at->run;
    const bool same = run.document >= 0 && run.document == placed.document && run.view == placed.view;
    if (!same || token(done) != run.token(at->skip + inside)) return false;
    std::int64_t step = std::min(count - done, at->count - inside);  // tokens are consecutive inside a run of either
    if (pattern > 0) step = std::min(step, pattern - done % pattern);
    if (run.run > 0) step = std::min(step, run.run - (at->skip + inside) % run.run);
    done += step;
  }
  return true;
}

// A piece with its place in the documents.
struct PlacedPiece {
  const Piece* piece = nullptr;
  const Site* site = nullptr;
  DocumentId document = -1;
  TokenView q_view = TokenView::kClean, k_view = TokenView::kClean;
};

// Columns of the bitmap of a document: clean tokens, then noisy ones.
class Bitmap {
 public:
  Bitmap(std::int64_t tokens, bool diffusion)
      : tokens_(tokens), width_(diffusion ? 2 * tokens : tokens), words_((width_ + 63) / 64) {
    bits_.assign(static_cast<std::size_t>(width_ * words_), 0);
  }
  std::int64_t row(TokenView view, std::int64_t token) const {
    return view == TokenView::kNoisy ? tokens_ + token : token;
  }
  std::int64_t width() const { return width_; }

  // Sets columns [begin, end) of a row; returns the first that was set already, -1 if none was.
  std::int64_t set(std::int64_t row, std::int64_t begin, std::int64_t end) {
    std::int64_t twice = -1;
    each_word(row, begin, end, [&](std::uint64_t& word, std::uint64_t mask, std::int64_t first) {
      if ((word & mask) != 0 && twice < 0) twice = first + std::countr_zero(word & mask);
      word |= mask;
    });
    return twice;
  }
  // Clears columns [begin, end); returns how many were not set, and the first of them.
  std::pair<std::int64_t, std::int64_t> take(std::int64_t row, std::int64_t begin, std::int64_t end) {
    std::int64_t missing = 0, first_missing = -1;
    each_word(row, begin, end, [&](std::uint64_t& word, std::uint64_t mask, std::int64_t first) {
      const std::uint64_t absent = ~word & mask;
      if (absent != 0 && first_missing < 0) first_missing = first + std::countr_zero(absent);
      missing += std::popcount(absent);
      word &= ~mask;
    });
    return {missing, first_missing};
  }
  // First column that is still set, -1 if none is.
  std::int64_t first(std::int64_t row) const {
    for (std::int64_t w = 0; w < words_; ++w) {
      const std::uint64_t word = bits_[static_cast<std::size_t>(row * words_ + w)];
      if (word != 0) return w * 64 + std::countr_zero(word);
    }
    return -1;
  }

 private:
  template <class Body>
  void each_word(std::int64_t row, std::int64_t begin, std::int64_t end, Body&& body) {
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t word = at / 64;
      const std::int64_t stop = std::min(end, (word + 1) * 64);
      const std::int64_t count = stop - at;
      const std::uint64_t ones = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
      body(bits_[static_cast<std::size_t>(row * words_ + word)], ones << (at % 64), word * 64);
      at = stop;
    }
  }

  std::int64_t tokens_, width_, words_;
  std::vector<std::uint64_t> bits_;
};

// Key tokens that a query token of a document sees: one range of clean and one of noisy tokens.
struct Visible {
  std::int64_t clean_end = 0;  // from 0
  std::int64_t noisy_begin = 0, noisy_end = 0;
};

Visible visible(const Objective& objective, std::int64_t tokens, TokenView view, std::int64_t query) {
  if (objective.kind == ObjectiveKind::kCausalLm) return {query + 1, 0, 0};
  const std::int64_t b = objective.block_tokens;
  const std::int64_t begin = query / b * b;
  const std::int64_t end = std::min(tokens, begin + b);
  if (view == TokenView::kClean) return {end, 0, 0};
  return {begin, begin, end};
}

const char* name_of(TokenView view) { return view == TokenView::kNoisy ? "noisy" : "clean"; }

class Coverage {
 public:
  Coverage(const Schedule& schedule, const CoverageOptions& options)
      : schedule_(schedule),
        options_(options),
        batch_(*schedule.batch),
        diffusion_(batch_.objective.kind == ObjectiveKind::kBlockDiffusion) {}

  std::vector<std::string> run() {
    collect();
    std::int64_t square = 0;
    for (const std::int64_t tokens : batch_.documents) square += (diffusion_ ? 4 : 1) * tokens * tokens;
    std::set<std::vector<std::tuple<std::int32_t, SegmentId, std::int16_t, std::int32_t>>> seen;
    for (std::int64_t layer = 0; layer < schedule_.model.layers; ++layer) {
      const std::vector<Site>& sites = layers_[layer];
      std::vector<std::tuple<std::int32_t, SegmentId, std::int16_t, std::int32_t>> keys;
      for (const Site& site : sites) keys.push_back(site.key());
      if (!seen.insert(std::move(keys)).second) continue;  // the same ops, and pieces do not depend on the layer
      check_layer(layer, sites, square <= options_.brute_force_pairs);
    }
    for (const auto& [layer, sites] : layers_) {
      if (layer < 0 || layer >= schedule_.model.layers) {
        add(place(sites.front().at) + ": attention outside the model's layers");
      }
    }
    return std::move(violations_);
  }

 private:
  void add(std::string violation) {
    if (violations_.size() < options_.max_violations) violations_.push_back(std::move(violation));
  }

  void collect() {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      Cursor cursor(static_cast<std::int32_t>(rank));
      Site site;
      while (cursor.next(schedule_, site.at)) {
        const Op& op = *site.at.op;
        if (op.kind != OpKind::kAttention || op.pass != Pass::kForward || op.pieces < 0) continue;
        site.share = 0;
        site.shares = 1;
        if (op.head_role >= 0) {
          const GroupId group = schedule_.ranks[rank].groups[static_cast<std::size_t>(op.head_role)];
          site.share = schedule_.member_index(static_cast<int>(rank), op.head_role);
          site.shares = static_cast<std::int64_t>(schedule_.groups[static_cast<std::size_t>(group)].members.size());
        }
        if (op.q_heads * site.shares != schedule_.model.q_heads) {
          add(fmt::format("{}: {} query heads in each of {} shares, the model has {}", place(site.at), op.q_heads,
                          site.shares, schedule_.model.q_heads));
        }
        layers_[site.at.layer].push_back(site);
      }
    }
  }

  void check_layer(std::int64_t layer, const std::vector<Site>& sites, bool brute_force) {
    std::vector<PlacedPiece> pieces;
    std::int64_t shares = 1;
    for (const Site& site : sites) {
      shares = std::lcm(shares, site.shares);
      place_pieces(site, pieces);
    }
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const PlacedPiece& a, const PlacedPiece& b) { return a.document < b.document; });
    for (std::int64_t share = 0; share < shares; ++share) {
      std::size_t next = 0;
      for (std::size_t d = 0; d < batch_.documents.size(); ++d) {
        std::vector<PlacedPiece> of_document;
        for (; next < pieces.size() && static_cast<std::size_t>(pieces[next].document) == d; ++next) {
          const Site& site = *pieces[next].site;
          if (share * site.shares / shares == site.share) of_document.push_back(pieces[next]);
        }
        const std::string where = fmt::format("layer {}, document {}{}", layer, d,
                                              shares > 1 ? fmt::format(", head share {} of {}", share, shares) : "");
        if (brute_force) {
          check_bits(where, batch_.documents[d], of_document);
        } else {
          check_sum(where, batch_.documents[d], of_document);
        }
      }
    }
  }

  std::vector<ViewRun> runs_of(const OpInstance& at, const View& view, std::int32_t chunk) const {
    const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(view.tensor.kind)];
    if (kind.rows == kFlat) return {};
    const RowMap& map = *schedule_.shape(at.rank, chunk).row_maps[static_cast<std::size_t>(kind.rows)];
    return view_runs(map,
                     view.rows == kAllRows ? nullptr : at.shape->row_lists[static_cast<std::size_t>(view.rows)].get());
  }

  void place_pieces(const Site& site, std::vector<PlacedPiece>& pieces) {
    const OpInstance& at = site.at;
    const std::vector<Piece>& list = at.shape->pieces[static_cast<std::size_t>(at.op->pieces)]->pieces;
    const std::vector<ViewRun> queries = runs_of(at, at.op->q, at.chunk);
    std::vector<std::vector<ViewRun>> keys;
    for (const ExpandedOperand& operand : expand_operands(at)) {
      keys.push_back(runs_of(at, operand.operand->key, operand.chunk));
    }
    for (const Piece& piece : list) {
      const auto refuse = [&](const char* what) {
        add(fmt::format("{}: a piece of query rows {} + {} and key rows {} + {} of operand {} {}", place(at),
                        piece.q_row, piece.q_count, piece.k_row, piece.k_count, piece.operand, what));
      };
      Placed q, k;
      if (piece.operand < 0 || static_cast<std::size_t>(piece.operand) >= keys.size()) {
        refuse("names an operand that the op lacks");
      } else if (!place_rows(
                     queries, piece.q_row, piece.q_count, piece.q_run,
                     [&](std::int64_t i) { return piece.query_token(i); }, q)) {
        refuse("claims query tokens that its rows do not hold");
      } else if (!place_rows(
                     keys[static_cast<std::size_t>(piece.operand)], piece.k_row, piece.k_count, piece.k_run,
                     [&](std::int64_t i) { return piece.key_token(i); }, k)) {
        refuse("claims key tokens that its rows do not hold");
      } else if (q.document != k.document) {
        refuse("pairs two documents");
      } else if (static_cast<std::size_t>(q.document) >= batch_.documents.size()) {
        refuse("names a document that the batch lacks");
      } else {
        pieces.push_back({&piece, &site, q.document, q.view, k.view});
      }
    }
  }

  // Sums alone: as many pairs as the document has.
  void check_sum(const std::string& where, std::int64_t tokens, const std::vector<PlacedPiece>& pieces) {
    std::int64_t pairs = 0;
    for (const PlacedPiece& placed : pieces) pairs += placed.piece->pairs;
    const std::int64_t expected = document_pairs(tokens, batch_.objective);
    if (pairs != expected) add(fmt::format("{}: the pieces hold {} pairs, the mask {}", where, pairs, expected));
  }

  void check_bits(const std::string& where, std::int64_t tokens, const std::vector<PlacedPiece>& pieces) {
    Bitmap bits(tokens, diffusion_);
    for (const PlacedPiece& placed : pieces) {
      std::int64_t twice = -1, query = 0;
      for (std::int64_t i = 0; i < placed.piece->q_count; ++i) {
        const std::int64_t found = set_row(bits, placed, i);
        if (twice < 0 && found >= 0) {
          twice = found;
          query = placed.piece->query_token(i);
        }
      }
      if (twice < 0) continue;
      add(fmt::format("{}: {} covers {} query token {} with {} key token {} a second time", where,
                      place(placed.site->at), name_of(placed.q_view), query, name_of(placed.k_view), twice % tokens));
    }
    compare_bits(where, tokens, bits);
  }

  // The pairs of query row `i` of a piece; returns a column that was set before, or -1.
  std::int64_t set_row(Bitmap& bits, const PlacedPiece& placed, std::int64_t i) {
    const Piece& piece = *placed.piece;
    const std::int64_t query = piece.query_token(i);
    const std::int64_t row = bits.row(placed.q_view, query);
    std::int64_t twice = -1;
    const auto set = [&](std::int64_t begin, std::int64_t end) {  // key tokens
      const std::int64_t found =
          bits.set(row, bits.row(placed.k_view, begin), bits.row(placed.k_view, begin) + end - begin);
      if (twice < 0) twice = found;
    };
    const std::int64_t run = piece.k_run == 0 ? piece.k_count : piece.k_run;
    for (std::int64_t j = 0; j < piece.k_count; j += run) {
      const std::int64_t first = piece.key_token(j);
      std::int64_t begin = first, end = first + std::min(run, piece.k_count - j);
      const std::int64_t block = piece.block > 0 ? query / piece.block * piece.block : 0;
      switch (piece.rule) {
        case MaskRule::kFull:
          break;
        case MaskRule::kCausal:
          end = std::min(end, query + 1);
          break;
        case MaskRule::kBlockDiagonal:
          begin = std::max(begin, block);
          end = std::min(end, block + piece.block);
          break;
        case MaskRule::kBlockCausal:
          end = std::min(end, block + piece.block);
          break;
        case MaskRule::kBlockCausalStrict:
          end = std::min(end, block);
          break;
      }
      if (begin < end) set(begin, end);
    }
    return twice;
  }

  void compare_bits(const std::string& where, std::int64_t tokens, Bitmap& bits) {
    std::int64_t missing = 0;
    std::string first;
    for (const TokenView view : {TokenView::kClean, TokenView::kNoisy}) {
      if (view == TokenView::kNoisy && !diffusion_) continue;
      for (std::int64_t query = 0; query < tokens; ++query) {
        const std::int64_t row = bits.row(view, query);
        const Visible sees = visible(batch_.objective, tokens, view, query);
        const auto take = [&](TokenView keys, std::int64_t begin, std::int64_t end) {
          const auto [absent, column] = bits.take(row, bits.row(keys, begin), bits.row(keys, begin) + end - begin);
          missing += absent;
          if (absent > 0 && first.empty()) {
            first =
                fmt::format("{} query token {}, {} key token {}", name_of(view), query, name_of(keys), column % tokens);
          }
        };
        if (sees.clean_end > 0) take(TokenView::kClean, 0, sees.clean_end);
        if (sees.noisy_end > sees.noisy_begin) take(TokenView::kNoisy, sees.noisy_begin, sees.noisy_end);
        const std::int64_t masked = bits.first(row);
        if (masked >= 0) {
          add(fmt::format("{}: {} query token {} sees {} key token {}, which the mask hides", where, name_of(view),
                          query, masked >= tokens ? "noisy" : "clean", masked % tokens));
        }
      }
    }
    if (missing > 0) add(fmt::format("{}: {} pairs are covered by no piece, the first: {}", where, missing, first));
  }

  const Schedule& schedule_;
  const CoverageOptions& options_;
  const Batch& batch_;
  bool diffusion_;
  std::map<std::int64_t, std::vector<Site>> layers_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> check_coverage(const Schedule& schedule, const CoverageOptions& options) {
  LH_ASSERT(schedule.batch != nullptr, "a schedule without a batch");
  return Coverage(schedule, options).run();
}

}  // namespace longhaul
