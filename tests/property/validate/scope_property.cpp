// Parts of a step (training.scope and passes of cli.md) on small random cases of every strategy: no rule of the
// schedule is broken, the mask is covered, the communication of attention is that of the whole step, and attention
// alone turns given Q, K, V and dO into the right O, dQ, dK, dV.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/core/rng.h"
#include "sim/schedule/checks.h"
#include "sim/schedule/coverage.h"
#include "tests/property/validate/verify_case.h"
#include "validate/cpu/executor.h"
#include "validate/cpu/ops.h"
#include "validate/cpu/reference_attention.h"

namespace longhaul {
namespace {

std::vector<StrategyRequest> cases_of(const Strategy& strategy) {
  Rng rng(11, "scopes/" + strategy.name);
  const DrawInteger draw = [&](std::int64_t low, std::int64_t high) { return rng.integer(low, high); };
  std::vector<StrategyRequest> cases;
  std::map<std::string, int> redrawn;
  while (cases.size() < 8) {
    const VerifyCase drawn = draw_applicable(strategy, draw, redrawn);
    if (drawn.request.ranks >= 2 && drawn.request.batch->tokens() <= 600) cases.push_back(drawn.request);
  }
  return cases;
}

std::shared_ptr<const Schedule> planned(const Strategy& strategy, StrategyRequest request, Scope scope, bool backward) {
  request.training.scope = scope;
  request.training.backward = backward;
  const auto applicable = check_applicable(strategy, request);
  EXPECT_TRUE(applicable.has_value()) << applicable.error();
  Planned step = strategy.plan(request);
  EXPECT_TRUE(step.has_value()) << step.error();
  return step->schedule;
}

// Bytes that enter the calls of the attention scheme's groups, by pass.
std::map<Pass, std::int64_t> attention_bytes(const Schedule& schedule) {
  const std::set<std::string> roles = {"context", "sequence"};
  std::map<Pass, std::int64_t> bytes;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Cursor cursor(static_cast<std::int32_t>(rank));
    OpInstance at;
    while (cursor.next(schedule, at)) {
      if (at.op->kind != OpKind::kCollective) continue;
      const std::string& role = schedule.roles[static_cast<std::size_t>(at.op->role)];
      if (roles.count(role) == 0 && !role.starts_with("ring of ")) continue;
      if (at.op->collective != CollectiveKind::kExchange) {
        bytes[at.op->pass] += collective_buffer_bytes(schedule, at);
      } else {
        for (const PeerBytes& peer : exchange_bytes(schedule, at)) bytes[at.op->pass] += peer.send;
      }
    }
  }
  return bytes;
}

std::vector<bool> passes_of(const Strategy& strategy) {
  return strategy.family == StrategyFamily::kPipeline ? std::vector<bool>{true} : std::vector<bool>{true, false};
}

class Scopes : public testing::TestWithParam<std::string> {
 protected:
  const Strategy& strategy() const { return *find_strategy(GetParam()); }
  bool pipeline() const { return strategy().family == StrategyFamily::kPipeline; }
  // dcp weighs the bytes and flashcp the time of the passes that there are: the forward pass alone has another plan.
  bool weighs_passes() const { return GetParam() == "dcp" || GetParam() == "flashcp"; }
};

TEST_P(Scopes, BreakNoRule) {
  for (const StrategyRequest& request : cases_of(strategy())) {
    SCOPED_TRACE(describe(request));
    const std::map<Pass, std::int64_t> whole =
        attention_bytes(*planned(strategy(), request, Scope::kForwardBackward, true));
    for (const Scope scope : {Scope::kLayers, Scope::kAttention}) {
      if (pipeline() && scope == Scope::kAttention) continue;
      for (const bool backward : passes_of(strategy())) {
        const auto schedule = planned(strategy(), request, scope, backward);
        EXPECT_EQ(check_schedule(*schedule).violations, std::vector<std::string>{});
        EXPECT_EQ(check_coverage(*schedule), std::vector<std::string>{});
        EXPECT_GT(execute(*schedule, {}).ops, 0);
        std::map<Pass, std::int64_t> expected = whole;
        if (!backward) {
          expected.erase(Pass::kBackward);
          expected.erase(Pass::kRecompute);
          if (weighs_passes()) {
            expected = attention_bytes(*planned(strategy(), request, Scope::kLayers, false));
            EXPECT_EQ(expected.size(), expected.count(Pass::kForward));
          }
        }
        EXPECT_EQ(attention_bytes(*schedule), expected);
      }
    }
  }
}

// What a part leaves out: no embedding, head, loss or optimizer; attention alone has no weights at all.
TEST_P(Scopes, HoldOnlyWhatTheyNeed) {
  for (const StrategyRequest& request : cases_of(strategy())) {
    for (const Scope scope : {Scope::kLayers, Scope::kAttention}) {
      if (pipeline() && scope == Scope::kAttention) continue;
      const auto schedule = planned(strategy(), request, scope, true);
      std::set<std::string> labels;
      for (std::size_t rank = 0; rank < schedule->ranks.size(); ++rank) {
        Cursor cursor(static_cast<std::int32_t>(rank));
        OpInstance at;
        while (cursor.next(*schedule, at)) labels.insert(at.op->label);
        const ProgramId id = schedule->ranks[rank].program;
        for (const TensorRef& ref : schedule->programs[static_cast<std::size_t>(id)].resident) {
          const std::string& name = schedule->tensors[static_cast<std::size_t>(ref.kind)].name;
          EXPECT_EQ(name.rfind("layer_", 0), 0U) << name;
          EXPECT_EQ(scope, Scope::kLayers) << name;
        }
      }
      for (const char* outside : {"embedding", "logits", "cross_entropy", "adamw_layer", "gather_head"}) {
        EXPECT_EQ(labels.count(outside), 0U) << outside;
      }
      EXPECT_EQ(labels.count("qkv"), scope == Scope::kLayers ? 1U : 0U);
    }
  }
}

// The whole batch, one document after the other.
struct GivenAttention {
  Matrix q, k, v, d_o, o, lse, d_q, d_k, d_v;
  std::map<DocumentId, std::int64_t> first_row;
};

TensorKindId kind_of(const Schedule& schedule, const std::string& name) {
  for (std::size_t kind = 0; kind < schedule.tensors.size(); ++kind) {
    if (schedule.tensors[kind].name == name) return static_cast<TensorKindId>(kind);
  }
  return -1;
}

GivenAttention reference(const Schedule& schedule, std::int16_t layer) {
  const ModelShape& model = schedule.model;
  const Batch& batch = *schedule.batch;
  const TensorKindId qkv = kind_of(schedule, "qkv");
  const TensorKindId d_o = kind_of(schedule, "attention_output_grad");
  GivenAttention r;
  const std::int64_t rows = batch.tokens();
  const auto zero = [&](std::int64_t columns) { return Matrix(Matrix::Zero(rows, columns)); };
  r.q = r.d_o = r.o = r.d_q = zero(model.q_width());
  r.k = r.v = r.d_k = r.d_v = zero(model.kv_width());
  r.lse = zero(model.q_heads);
  std::int64_t row = 0;
  for (const Sequence& sequence : batch.sequences) {
    for (const DocumentId document : sequence.documents) {
      r.first_row[document] = row;
      const std::int64_t tokens = batch.documents[static_cast<std::size_t>(document)];
      for (std::int64_t i = 0; i < tokens; ++i, ++row) {
        const RowToken token{document, TokenView::kClean, i};
        for (std::int64_t j = 0; j < model.q_width(); ++j) {
          r.q(row, j) = given_value(qkv, layer, token, j);
          r.d_o(row, j) = given_value(d_o, layer, token, j);
        }
        for (std::int64_t j = 0; j < model.kv_width(); ++j) {
          r.k(row, j) = given_value(qkv, layer, token, model.q_width() + j);
          r.v(row, j) = given_value(qkv, layer, token, model.q_width() + model.kv_width() + j);
        }
      }
    }
  }
  for (const auto& [document, first] : r.first_row) {
    const DocumentAttention attention(batch.documents[static_cast<std::size_t>(document)], batch.objective);
    attention.forward(model, first, r.q, r.k, r.v, r.o, r.lse);
    attention.backward(model, first, {r.q, r.k, r.v, r.o, r.lse, r.d_o}, r.d_q, r.d_k, r.d_v);
  }
  return r;
}

TEST_P(Scopes, AttentionOfGivenValuesIsRight) {
  if (pipeline() || strategy().objective != ObjectiveKind::kCausalLm) GTEST_SKIP() << "attention alone, causal";
  for (const StrategyRequest& request : cases_of(strategy())) {
    SCOPED_TRACE(describe(request));
    for (const bool backward : {true, false}) {
      const auto schedule = planned(strategy(), request, Scope::kAttention, backward);
      std::vector<GivenAttention> expected;
      for (std::int16_t layer = 0; layer < schedule->model.layers; ++layer) {
        expected.push_back(reference(*schedule, layer));
      }
      const TensorKindId output = kind_of(*schedule, "attention_output");
      const TensorKindId qkv_grad = kind_of(*schedule, "qkv_grad");
      double worst = 0;
      std::int64_t rows = 0;
      ExecutionOptions options;
      options.on_release = [&](int, const TensorData& tensor, const OpInstance* at) {
        if (tensor.id.kind != output && tensor.id.kind != qkv_grad) return;
        const GivenAttention& r = expected[static_cast<std::size_t>(at->layer)];
        const std::vector<RowToken> tokens = row_tokens(*tensor.row_map);
        for (std::int64_t i = 0; i < tensor.rows; ++i) {
          const RowToken& token = tokens[static_cast<std::size_t>(i)];
          if (token.document < 0) continue;
          ++rows;
          const std::int64_t row = r.first_row.at(token.document) + token.position;
          const auto compare = [&](const Matrix& reference, std::int64_t column) {
            for (std::int64_t j = 0; j < reference.cols(); ++j) {
              const double value = tensor.values[static_cast<std::size_t>(i * tensor.columns + column + j)];
              worst = std::max(worst, std::abs(value - reference(row, j)));
              if (!(worst < 1)) return;  // NaN stays
            }
          };
          if (tensor.id.kind == output) {
            compare(r.o, 0);
          } else {
            compare(r.d_q, 0);
            compare(r.d_k, request.model.q_width());
            compare(r.d_v, request.model.q_width() + request.model.kv_width());
          }
        }
      };
      execute(*schedule, options);
      EXPECT_LE(worst, 1e-10);
      // O once a layer, and again under recompute; gradients once.
      const bool again = backward && request.training.recompute == Recompute::kFull;
      EXPECT_EQ(rows, request.batch->tokens() * request.model.layers * (1 + (backward ? 1 : 0) + (again ? 1 : 0)));
    }
  }
}

TEST_P(Scopes, APipelineRefusesWhatItCannotShow) {
  if (!pipeline()) GTEST_SKIP() << "a pipeline";
  StrategyRequest request = cases_of(strategy()).front();
  request.training.scope = Scope::kAttention;
  const std::string reason =
      "a pipeline is whole layers, forward and backward; use scope \"step\", \"forward-backward\" or \"layers\" with "
      "both passes";
  EXPECT_EQ(check_applicable(strategy(), request).error(), reason);
  request.training.scope = Scope::kLayers;
  EXPECT_TRUE(check_applicable(strategy(), request).has_value());
  request.training.backward = false;
  EXPECT_EQ(check_applicable(strategy(), request).error(), reason);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Strategy, Scopes, testing::ValuesIn(strategy_names()), test_name);

}  // namespace
}  // namespace longhaul
