// The planner of attention tiles and the CPU references, on the CPU: pairs, one by one, against Piece::allows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/attention/tile_plan.h"
#include "tests/gpu/attention_cases.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class PlanTest : public testing::TestWithParam<AttentionCase> {
 protected:
  const ReferenceShape& shape() const { return GetParam().shape; }
  TilePlan plan(std::int32_t rows, std::int32_t keys) const {
    return plan_tiles(GetParam().pieces, shape().q_rows, shape().k_rows, rows, keys);
  }
};

// How often each (query, key) pair is computed, by walking the plan as a kernel does.
std::vector<int> walk(const TilePlan& plan) {
  std::vector<int> pairs(static_cast<std::size_t>(plan.q_rows) * static_cast<std::size_t>(plan.k_rows));
  for (const AttentionTile& tile : plan.tiles) {
    std::int32_t key_tiles = 0;
    for (std::int32_t s = tile.segment_begin; s < tile.segment_end; ++s) {
      const AttentionSegment& segment = plan.segments[static_cast<std::size_t>(s)];
      const PieceRule& piece = plan.pieces[static_cast<std::size_t>(segment.piece)];
      key_tiles += segment.key_tiles;
      for (std::int32_t row = tile.q_row; row < tile.q_row + tile.q_count; ++row) {
        const KeySpan seen = visible_keys(piece, row - piece.q_row);
        for (std::int32_t key = 0; key < segment.key_tiles * plan.tile_keys; ++key) {
          const std::int32_t t = key / plan.tile_keys;
          const bool unmasked = t >= segment.full_from && t < segment.full_to;
          const std::int32_t in_piece = segment.k_first + key;
          const bool visible = in_piece >= seen.begin && in_piece < seen.end;
          EXPECT_TRUE(visible || !unmasked) << "row " << row << ", key " << in_piece << " goes unmasked";
          if (visible) {
            ++pairs[static_cast<std::size_t>(row) * static_cast<std::size_t>(plan.k_rows) +
                    static_cast<std::size_t>(piece.k_row + in_piece)];
          }
        }
      }
    }
    EXPECT_EQ(key_tiles, tile.key_tiles);
  }
  return pairs;
}

TEST_P(PlanTest, ComputesEachPairOfEachPieceOnce) {
  std::vector<int> want(static_cast<std::size_t>(shape().q_rows * shape().k_rows));
  for (const Piece& piece : GetParam().pieces) {
    for (std::int64_t q = 0; q < piece.q_count; ++q) {
      for (std::int64_t k = 0; k < piece.k_count; ++k) {
        if (piece.allows(piece.query_token(q), piece.key_token(k))) {
          ++want[static_cast<std::size_t>((piece.q_row + q) * shape().k_rows + piece.k_row + k)];
        }
      }
    }
  }
  EXPECT_EQ(walk(plan(128, 128)), want);
  EXPECT_EQ(walk(plan(64, 64)), want);
  EXPECT_EQ(walk(plan(33, 17)), want);
}

// The same for a backward plan, which goes over the keys.
std::vector<int> walk(const BackwardPlan& plan) {
  std::vector<int> pairs(static_cast<std::size_t>(plan.q_rows) * static_cast<std::size_t>(plan.k_rows));
  for (const KeyTile& tile : plan.tiles) {
    for (std::int32_t s = tile.segment_begin; s < tile.segment_end; ++s) {
      const BackwardSegment& segment = plan.segments[static_cast<std::size_t>(s)];
      const PieceRule& piece = plan.pieces[static_cast<std::size_t>(segment.piece)];
      EXPECT_EQ(segment.k_first, tile.k_row - piece.k_row);
      for (std::int32_t key = 0; key < tile.k_count; ++key) {
        const QuerySpan seeing = seeing_queries(piece, segment.k_first + key);
        for (std::int32_t t = 0; t < segment.q_tiles; ++t) {
          const QueryTile& queries = plan.q_tiles[static_cast<std::size_t>(segment.q_tile_begin + t)];
          const bool unmasked = t >= segment.full_from && t < segment.full_to;
          for (std::int32_t row = queries.q_row; row < queries.q_row + queries.q_count; ++row) {
            const std::int32_t query = row - piece.q_row;
            const bool sees = query >= seeing.begin && query < seeing.end;
            EXPECT_TRUE(sees || !unmasked) << "row " << row << ", key " << key << " goes unmasked";
            if (sees) {
              ++pairs[static_cast<std::size_t>(row) * static_cast<std::size_t>(plan.k_rows) +
                      static_cast<std::size_t>(tile.k_row + key)];
            }
          }
        }
      }
    }
  }
  return pairs;
}

TEST_P(PlanTest, BackwardComputesTheSamePairs) {
  const std::vector<int> want = walk(plan(128, 128));
  for (const auto& [rows, keys] : {std::pair{64, 128}, {64, 64}, {33, 17}}) {
    const BackwardPlan backward = plan_backward(GetParam().pieces, shape().q_rows, shape().k_rows, rows, keys);
    EXPECT_EQ(walk(backward), want);
    std::int32_t q_rows = 0, k_rows = 0;
    for (const QueryTile& tile : backward.q_tiles) q_rows += tile.q_count;
    for (const KeyTile& tile : backward.tiles) k_rows += tile.k_count;
    EXPECT_EQ(q_rows, shape().q_rows);
    EXPECT_EQ(k_rows, shape().k_rows);
  }
}

TEST_P(PlanTest, PutsEachRowInOneTileLongTilesFirst) {
  const TilePlan tiles = plan(128, 128);
  std::vector<int> rows(static_cast<std::size_t>(shape().q_rows));
  std::int32_t longest = std::numeric_limits<std::int32_t>::max();
  for (const AttentionTile& tile : tiles.tiles) {
    EXPECT_LE(tile.q_count, 128);
    EXPECT_LE(tile.key_tiles, longest);
    longest = tile.key_tiles;
    for (std::int32_t row = tile.q_row; row < tile.q_row + tile.q_count; ++row) ++rows[static_cast<std::size_t>(row)];
  }
  EXPECT_EQ(rows, std::vector<int>(rows.size(), 1));
}

// Groups add query tiles that are masked, and leave the pairs as they were.
TEST_P(PlanTest, BackwardGroupsComputeTheSamePairs) {
  const std::vector<int> want = walk(plan(128, 128));
  for (const int group : {2, 3, 8}) {
    const BackwardGroups groups{group, 1e9, 0};
    const std::int64_t q_rows = shape().q_rows, k_rows = shape().k_rows;
    EXPECT_EQ(walk(plan_backward(GetParam().pieces, q_rows, k_rows, 33, 17, groups)), want) << group;
    EXPECT_EQ(walk(plan_backward(GetParam().pieces, q_rows, k_rows, 64, 128, groups)), want) << group;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PlanTest, testing::ValuesIn(attention_cases(64)),
                         [](const auto& test) { return test.param.name; });

// 16,384 causal in tiles of 128 x 128: tile i visits i + 1 key tiles, all but its last unmasked: 128 x 129 / 2 visits.
TEST(Plan, VisitsNoMaskedTile) {
  const TilePlan plan = plan_tiles(packed_documents({16384}), 16384, 16384, 128, 128);
  EXPECT_EQ(plan.key_tiles(), 128 * 129 / 2);
  for (const AttentionSegment& segment : plan.segments) {
    EXPECT_EQ(segment.full_from, 0);
    EXPECT_EQ(segment.full_to, segment.key_tiles - 1);
  }
}

// Blocks of 16 divide tiles of 128: a corrupted tile i visits one tile of its own blocks and the i clean tiles before
// it and its own one; a clean tile i visits i + 1. Sum over i = 0 .. 7: (i + 2) + (i + 1) = 8 x 3 + 2 x 28, but the
// first corrupted tile's strict span still has keys (112), so it is no exception.
TEST(Plan, VisitsBlockDiffusionWithoutWaste) {
  EXPECT_EQ(plan_tiles(block_diffusion(1024, 16, false), 2048, 2048, 128, 128).key_tiles(), 8 * 3 + 2 * 28);
}

// 1,024 causal: key tile i of 8 sees 16 - 2 i query tiles. In fours: 16 for the first four, 8 for the others.
TEST(Plan, GroupsVisitTheUnion) {
  const BackwardPlan plan = plan_backward(packed_documents({1024}), 1024, 1024, 64, 128, {4, 1e9, 0});
  ASSERT_EQ(plan.tiles.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    const KeyTile& tile = plan.tiles[i];
    EXPECT_EQ(tile.k_row, static_cast<std::int32_t>(128 * i));
    EXPECT_EQ(tile.q_tiles, i < 4 ? 16 : 8);
    const BackwardSegment& segment = plan.segments[static_cast<std::size_t>(tile.segment_begin)];
    EXPECT_EQ(segment.q_tile_begin, i < 4 ? 0 : 8);
    EXPECT_EQ(segment.full_from, static_cast<std::int32_t>(2 * (i % 4) + 2));
  }
  EXPECT_THAT(
      [] {
        plan_backward({}, 1, 1, 64, 128, {0, 0, 0});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("key tiles in groups of 0")));
}

// Causal, four key tiles that visit u, u - 2, u - 4 and u - 6 query tiles: joining adds 12 steps and saves 3 u - 12
// fetches, at 0.03 a fetch enough from u = 138 on. Of 256 key tiles, 512 query tiles, u = 512, 504, .. 8: the 47 groups
// down to u = 144 are joined.
TEST(Plan, JoinsWhereFetchesSavedOutweighStepsAdded) {
  const auto steps = [](const std::vector<Piece>& pieces, std::int64_t rows, const BackwardGroups& groups) {
    std::int64_t sum = 0;
    for (const KeyTile& tile : plan_backward(pieces, rows, rows, 64, 128, groups).tiles) sum += tile.q_tiles;
    return sum;
  };
  const std::vector<Piece> causal = packed_documents({32768});
  EXPECT_EQ(steps(causal, 32768, {4, 0.03, 0}), 256 * 257 + 47 * 12);
  // Those of at most 400 query tiles stay in the L2: 14 groups visit more.
  EXPECT_EQ(steps(causal, 32768, {4, 0.03, 400}), 256 * 257 + 14 * 12);
  // Corrupted keys of blocks of 16, two query tiles each, save nothing: what is added is the clean keys' alone.
  const std::vector<Piece> blocks = block_diffusion(8192, 16, false);
  EXPECT_EQ(steps(blocks, 16384, {4, 1e9, 0}), steps(blocks, 16384, {}) + 16 * 24);
}

TEST(Plan, RefusesPiecesItCannotRun) {
  const auto plan_of = [](const Piece& piece) { return [piece] { plan_tiles({&piece, 1}, 100, 100, 64, 64); }; };
  const Piece good = piece_of(0, 10, 0, 10, MaskRule::kBlockCausal);
  Piece piece = good;
  EXPECT_THAT(plan_of(piece),
              ThrowsMessage<std::invalid_argument>(HasSubstr("piece 0: a block rule with blocks of 0")));
  piece.block = 4;
  EXPECT_NO_THROW(plan_of(piece)());
  piece.q_row = 91;
  EXPECT_THAT(plan_of(piece), ThrowsMessage<std::invalid_argument>(HasSubstr("query rows 91 + 10")));
  piece.q_row = 0;
  piece.k_count = 101;
  EXPECT_THAT(plan_of(piece), ThrowsMessage<std::invalid_argument>(HasSubstr("key rows 0 + 101")));
  piece.k_count = 10;
  piece.operand = 1;
  EXPECT_THAT(plan_of(piece), ThrowsMessage<std::invalid_argument>(HasSubstr("operand 1")));
  piece.operand = 0;
  piece.k_run = 8;
  piece.k_stride = 4;
  EXPECT_THAT(plan_of(piece), ThrowsMessage<std::invalid_argument>(HasSubstr("key runs of 8 every 4 tokens")));
  piece.k_run = piece.k_stride = 0;
  piece.q_token = (std::int64_t{1} << 30) - 5;
  EXPECT_THAT(plan_of(piece), ThrowsMessage<std::invalid_argument>(HasSubstr("overflow")));
  EXPECT_THAT([] { plan_tiles({}, std::int64_t{1} << 30, 1, 64, 64); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("must be in 0 .. 2^30 - 1")));
}

// Two halves of the keys, each attended alone and merged, are the whole.
TEST(Reference, MergesPartsIntoTheWhole) {
  const ReferenceShape shape{20, 30, 2, 1, 64};
  const auto q = random_rows(20 * 2 * 64, 1), k = random_rows(30 * 64, 2), v = random_rows(30 * 64, 3);
  const std::vector<Piece> whole = {piece_of(0, 15, 0, 30, MaskRule::kFull)};
  const std::vector<Piece> left = {piece_of(0, 15, 0, 11, MaskRule::kFull)};
  const std::vector<Piece> right = {piece_of(0, 15, 11, 19, MaskRule::kFull)};
  const AttentionReference want = attention_reference(shape, whole, q, k, v);
  AttentionReference merged = attention_reference(shape, left, q, k, v);
  const AttentionReference part = attention_reference(shape, right, q, k, v);
  merge_reference(merged.o, merged.lse, part.o, part.lse, 64);
  for (std::size_t i = 0; i < want.o.size(); ++i) EXPECT_NEAR(merged.o[i], want.o[i], 1e-14);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_NEAR(merged.lse[i], want.lse[i], 1e-14);
  for (std::size_t i = 30; i < 40; ++i) EXPECT_EQ(merged.lse[i], -std::numeric_limits<double>::infinity());
}

// A row of NaN is no row without keys, on either side and beside either kind.
TEST(Reference, MergesOfNanAreNan) {
  const double nan = std::nan(""), nothing = -std::numeric_limits<double>::infinity();
  std::vector<double> o = {1, nan, 0, nan}, lse = {1, nan, nothing, nan};
  merge_reference(o, lse, std::vector<double>{nan, 2, nan, 0}, std::vector<double>{nan, 2, nan, nothing}, 1);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(o[i]) && std::isnan(lse[i])) << i;
}

double loss(const ReferenceShape& shape, const std::vector<Piece>& pieces, const std::vector<Bf16>& q,
            const std::vector<Bf16>& k, const std::vector<Bf16>& v, const std::vector<Bf16>& d_o) {
  const AttentionReference result = attention_reference(shape, pieces, q, k, v);
  double sum = 0;
  for (std::size_t i = 0; i < result.o.size(); ++i) sum += result.o[i] * static_cast<double>(to_float(d_o[i]));
  return sum;
}

// Central differences of sum(O dO). Inputs are multiples of 2^-5 below 1, so that steps of 2^-5 are exact in bf16; the
// error is h^2 / 6 of the third derivative, which is below 1 here.
TEST(Reference, GradientsMatchDifferences) {
  const ReferenceShape shape{9, 9, 2, 1, 64};
  const std::vector<Piece> pieces = packed_documents({5, 4});
  const auto coarse = [](std::int64_t size, std::uint32_t seed) {
    std::vector<Bf16> values = random_rows(size, seed);
    for (Bf16& x : values) x = to_bf16(std::floor(to_float(x) * 32.0F) / 32.0F);
    return values;
  };
  std::vector<Bf16> q = coarse(9 * 2 * 64, 1), k = coarse(9 * 64, 2), v = coarse(9 * 64, 3);
  const std::vector<Bf16> d_o = coarse(9 * 2 * 64, 4);
  const AttentionGradients gradients = attention_reference_backward(shape, pieces, q, k, v, d_o);
  const auto check = [&](std::vector<Bf16>& x, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < x.size(); i += 37) {
      const Bf16 old = x[i];
      x[i] = to_bf16(to_float(old) + 0x1p-5F);
      const double above = loss(shape, pieces, q, k, v, d_o);
      x[i] = to_bf16(to_float(old) - 0x1p-5F);
      const double below = loss(shape, pieces, q, k, v, d_o);
      x[i] = old;
      EXPECT_NEAR((above - below) / 0x1p-4, gradient[i], 0x1p-10 / 6) << i;
    }
  };
  check(q, gradients.q);
  check(k, gradients.k);
  check(v, gradients.v);
}

}  // namespace
}  // namespace longhaul
