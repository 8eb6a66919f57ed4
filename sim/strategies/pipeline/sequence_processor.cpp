#include "sim/strategies/pipeline/sequence_processor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Where the quadratic a x^2 + b x reaches `work`.
double quadratic_root(double a, double b, double work) {
  if (work <= 0) return 0;
  // The rationalised form of dpp.md 3's root: no cancellation, and right for a = 0 too.
  return 2 * work / (b + std::sqrt(b * b + 4 * a * work));
}

// A bucket that can still take the smallest short document.
struct LiveBucket {
  double seconds = 0;
  std::int64_t tokens = 0;
  std::int32_t index = 0;
  double ratio() const { return seconds / static_cast<double>(tokens); }
};

bool earlier(const LiveBucket& a, const LiveBucket& b) {
  const double ra = a.ratio();
  const double rb = b.ratio();
  return ra != rb ? ra < rb : a.index < b.index;
}

class BucketFiller {
 public:
  BucketFiller(std::vector<ChunkBucket>& buckets, double target_seconds, std::int64_t token_cap,
               std::int64_t least_tokens)
      : buckets_(buckets), target_(target_seconds), cap_(token_cap), least_tokens_(least_tokens) {
    for (std::size_t i = 0; i < buckets.size(); ++i) insert(static_cast<std::int32_t>(i));
  }

  double target_seconds() const { return target_; }

  void place(std::int32_t document, std::int64_t tokens, double seconds) {
    auto found = first_fit(tokens, seconds);
    if (found == live_.end()) {
      const double loosened = least_time(tokens, seconds);
      if (loosened == std::numeric_limits<double>::infinity()) return open(document, tokens, seconds);
      target_ = loosened;
      found = first_fit(tokens, seconds);
      LH_ASSERT(found != live_.end(), "no bucket for document {} after loosening to {} s", document, target_);
    }
    const std::int32_t index = found->index;
    live_.erase(found);
    add(index, document, tokens, seconds);
  }

 private:
  std::vector<LiveBucket>::iterator first_fit(std::int64_t tokens, double seconds) {
    return std::find_if(live_.begin(), live_.end(), [&](const LiveBucket& bucket) {
      return bucket.seconds + seconds <= target_ && bucket.tokens + tokens <= cap_;
    });
  }

  // The least time of a bucket with the document, over those that it fits by tokens; infinity if there are none.
  double least_time(std::int64_t tokens, double seconds) const {
    double least = std::numeric_limits<double>::infinity();
    for (const LiveBucket& bucket : live_) {
      if (bucket.tokens + tokens <= cap_) least = std::min(least, bucket.seconds + seconds);
    }
    return least;
  }

  void open(std::int32_t document, std::int64_t tokens, double seconds) {
    buckets_.push_back({});
    add(static_cast<std::int32_t>(buckets_.size()) - 1, document, tokens, seconds);
  }

  void add(std::int32_t index, std::int32_t document, std::int64_t tokens, double seconds) {
    ChunkBucket& bucket = buckets_[static_cast<std::size_t>(index)];
    bucket.shorts.push_back(document);
    bucket.tokens += tokens;
    bucket.seconds += seconds;
    insert(index);
  }

  void insert(std::int32_t index) {
    const ChunkBucket& bucket = buckets_[static_cast<std::size_t>(index)];
    if (bucket.tokens + least_tokens_ > cap_) return;  // full for good: no document is smaller
    const LiveBucket live{bucket.seconds, bucket.tokens, index};
    live_.insert(std::upper_bound(live_.begin(), live_.end(), live, earlier), live);
  }

  std::vector<ChunkBucket>& buckets_;
  std::vector<LiveBucket> live_;  // ascending tot_time / tot_tokens
  double target_;                 // T_t
  std::int64_t cap_;              // T_m
  std::int64_t least_tokens_;
};

}  // namespace

std::int32_t SliceMesh::slices_of(std::int64_t tokens) const {
  LH_ASSERT(tokens >= 1 && tokens <= cuts.back(), "{} tokens on a mesh of {}", tokens, cuts.back());
  return static_cast<std::int32_t>(std::lower_bound(cuts.begin(), cuts.end(), tokens) - cuts.begin());
}

std::int64_t SliceMesh::most_tokens() const {
  std::int64_t most = 0;
  for (std::size_t j = 1; j < cuts.size(); ++j) most = std::max(most, cuts[j] - cuts[j - 1]);
  return most;
}

std::optional<SliceMesh> make_mesh(const StageCost& cost, std::int64_t longest, std::int32_t slices, std::int32_t sp) {
  LH_ASSERT(longest >= 1 && slices >= 1 && sp >= 1, "{} tokens in {} slices, sp = {}", longest, slices, sp);
  const double work = cost.piece(0, longest);
  SliceMesh mesh;
  mesh.cuts.push_back(0);
  for (std::int32_t j = 1; j <= slices; ++j) {
    std::int64_t cut = longest;
    if (j < slices) {
      const double exact =
          work > 0 ? quadratic_root(cost.attention(), cost.linear(), work * j / slices)
                   : static_cast<double>(longest) * j / slices;  // a free model: any cut is an equal-time cut
      cut = static_cast<std::int64_t>(exact / sp + 0.5) * sp;
    }
    if (cut <= mesh.cuts.back() || cut > longest) return std::nullopt;
    mesh.cell_seconds = std::max(mesh.cell_seconds, cost.piece(mesh.cuts.back(), cut - mesh.cuts.back()));
    mesh.cuts.push_back(cut);
  }
  return mesh;
}

ProcessedDocuments process_documents(const std::vector<std::int64_t>& lengths, const StageCost& cost,
                                     const SliceMesh& mesh, std::int64_t token_cap) {
  LH_ASSERT(token_cap >= mesh.most_tokens(), "token cap {} under a cell's {}", token_cap, mesh.most_tokens());
  ProcessedDocuments result;
  result.tail_bucket.assign(lengths.size(), -1);
  std::vector<std::int32_t> shorts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto document = static_cast<std::int32_t>(i);
    const std::int32_t slices = mesh.slices_of(lengths[i]);
    result.slices.push_back(slices);
    if (slices == 1) {
      shorts.push_back(document);
    } else if (lengths[i] < mesh.cuts[static_cast<std::size_t>(slices)]) {
      const std::int64_t first = mesh.cuts[static_cast<std::size_t>(slices) - 1];
      result.tail_bucket[i] = static_cast<std::int32_t>(result.buckets.size());
      result.buckets.push_back({document, {}, lengths[i] - first, cost.piece(first, lengths[i] - first)});
    }
  }
  // Time rises with tokens, so descending tokens is Alg. 1's descending time.
  const auto tokens_of = [&](std::int32_t document) { return lengths[static_cast<std::size_t>(document)]; };
  std::stable_sort(shorts.begin(), shorts.end(),
                   [&](std::int32_t a, std::int32_t b) { return tokens_of(a) > tokens_of(b); });
  const std::int64_t least = shorts.empty() ? 0 : tokens_of(shorts.back());
  BucketFiller filler(result.buckets, mesh.cell_seconds, token_cap, least);
  for (const std::int32_t document : shorts) {
    filler.place(document, tokens_of(document), cost.piece(0, tokens_of(document)));
  }
  result.target_seconds = filler.target_seconds();
  return result;
}

}  // namespace longhaul
