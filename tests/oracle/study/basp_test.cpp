// BASP against its notes (basp.md 2.3 and the validation targets of 2.11), on schedules and simulated steps.
//
// Ulysses runs sp = N with micro-batch B; BASP cuts the N ranks into B groups of K = N/B (basp.md 2.1).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/oracle/study/observed_network.h"
#include "tests/oracle/study/oracle_case.h"
#include "tests/oracle/study/schedule_text.h"

namespace longhaul::oracle {
namespace {

StepCase step_of(const std::string& strategy, const std::string& model, std::int64_t batch, std::int64_t tokens,
                 int ranks = 8) {
  StepCase of;
  of.strategy = strategy;
  of.model = shipped_model(model);
  of.sequences.assign(static_cast<std::size_t>(batch), {tokens});
  of.degrees.sp = ranks;
  of.gpus_per_node = 4;
  of.zero_stage = 3;
  of.recompute = Recompute::kFull;
  of.micro_batch_sequences = batch;
  return of;
}

struct Printed {
  const char *model, *buffer_ulysses, *buffer_basp, *gpu_ulysses, *gpu_basp, *node_ulysses, *gather_gb;
};

// basp.md 2.3, "Worked values": MB per rank per layer, forward; GB per rank of one all-gather of all parameters.
constexpr Printed kTable[] = {
    {"llama3.2-1b", "41.94", "41.94", "36.70", "31.46", "20.97", "2.16"},
    {"llama3.2-3b", "67.11", "67.11", "58.72", "50.33", "33.55", "5.62"},
    {"llama3-8b", "83.89", "83.89", "73.40", "62.91", "41.94", "14.05"},
    {"qwen1.5-1.8b", "67.11", "67.11", "58.72", "50.33", "33.55", "3.21"},
    {"qwen2.5-3b", "50.33", "41.94", "44.04", "31.46", "25.17", "5.40"},
    {"qwen3-8b", "83.89", "83.89", "73.40", "62.91", "41.94", "14.33"},
};

std::string mb(std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6); }

// b_fwd(P) = n d e (2 h + 2 h_kv r(P)), r(P) = max(1, P / h_kv), n = B S / N (basp.md 2.3).
std::int64_t forward_buffer(const ModelShape& model, std::int64_t group, std::int64_t n) {
  const std::int64_t replication = std::max<std::int64_t>(1, group / model.kv_heads);
  return n * model.head_dim * 2 * (2 * model.q_heads + 2 * model.kv_heads * replication);
}

// 2.11 c, table 2.3: N = 8, G = 4, B = 2, S = 16384, bf16. On every rank and the first, a middle and the last layer:
// buffer b, w = b (P-1)/P leaves the GPU, o = b (P - g_P)/P leaves the node, with g_P = 4 of P = 8 and of P = 4.
TEST(BaspOracle, ExchangeBytesAreTableOfWorkedValues) {
  for (const Printed& row : kTable) {
    SCOPED_TRACE(row.model);
    for (const bool basp : {false, true}) {
      const StepCase of = step_of(basp ? "basp" : "ulysses", row.model, 2, 16384);
      const auto schedule = schedule_of(of);
      const std::int64_t group = basp ? 4 : 8, b = forward_buffer(of.model, group, 4096);
      for (int rank = 0; rank < 8; ++rank) {
        for (const int layer : {0, static_cast<int>(of.model.layers) / 2, static_cast<int>(of.model.layers) - 1}) {
          const Volume forward = volume_of(*schedule, rank, {"sequence", layer, Pass::kForward, {}}, 4);
          EXPECT_EQ(forward.calls, 4);  // Q, K, V in, O out: 2.5
          EXPECT_EQ(forward.buffer, b);
          EXPECT_EQ(forward.leaves_gpu * group, b * (group - 1));
          EXPECT_EQ(forward.leaves_node * group, b * (group - 4));
          EXPECT_EQ(mb(forward.buffer), basp ? row.buffer_basp : row.buffer_ulysses);
          EXPECT_EQ(mb(forward.leaves_gpu), basp ? row.gpu_basp : row.gpu_ulysses);
          EXPECT_EQ(mb(forward.leaves_node), basp ? "0.00" : row.node_ulysses);
          // 2.3: backward has the same four exchanges in reverse.
          EXPECT_EQ(volume_of(*schedule, rank, {"sequence", layer, Pass::kBackward, {}}, 4), forward);
        }
      }
    }
  }
}

// 2.3, last line: B = 8, S = 8192, Llama-3.2-1B: n = 8192, b = 83.89 MB, Ulysses leaves GPU 73.40, leaves node 41.94;
// BASP has K = 1 and no exchange at all.
TEST(BaspOracle, EightSequencesOfOneRankEach) {
  const auto ulysses = schedule_of(step_of("ulysses", "llama3.2-1b", 8, 8192));
  const auto basp = schedule_of(step_of("basp", "llama3.2-1b", 8, 8192));
  for (int rank = 0; rank < 8; ++rank) {
    const Volume volume = volume_of(*ulysses, rank, {"sequence", 3, Pass::kForward, {}}, 4);
    EXPECT_EQ(mb(volume.buffer), "83.89");
    EXPECT_EQ(mb(volume.leaves_gpu), "73.40");
    EXPECT_EQ(mb(volume.leaves_node), "41.94");
    EXPECT_EQ(volume_of(*basp, rank, {"sequence", {}, {}, {}}, 4), Volume{});
  }
}

// 2.3: a step moves (2 + c_r) b_fwd a layer, c_r = 1 under full recompute, else 0. So L (2 + c_r) b in all.
TEST(BaspOracle, StepMovesForwardBackwardAndRecompute) {
  for (const char* strategy : {"ulysses", "basp"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      StepCase of = step_of(strategy, "qwen2.5-3b", 2, 16384);
      of.recompute = recompute;
      const auto schedule = schedule_of(of);
      const std::int64_t passes = recompute == Recompute::kFull ? 3 : 2;
      const std::int64_t b = forward_buffer(of.model, of.strategy == "basp" ? 4 : 8, 4096);
      for (const int rank : {0, 3, 4, 7}) {
        const Volume step = volume_of(*schedule, rank, {"sequence", {}, {}, {}}, 4);
        EXPECT_EQ(step.calls, 4 * passes * of.model.layers) << strategy;
        EXPECT_EQ(step.buffer, passes * of.model.layers * b) << strategy;
      }
    }
  }
}

// 2.6: an all-gather of all parameters brings a rank (N-1)/N Psi e_p; gradients go back as (N-1)/N Psi e_g. Units are
// padded to multiples of N; here N = 8 divides all of them, so the figures are exact. The parameters are gathered in
// forward and again in backward; the head, and a table that it does not share, only once: their uses are neighbours.
TEST(BaspOracle, ZeroGathersAreTheWholeModel) {
  for (const Printed& row : kTable) {
    SCOPED_TRACE(row.model);
    for (const char* strategy : {"ulysses", "basp"}) {
      const StepCase of = step_of(strategy, row.model, 2, 16384);
      const auto schedule = schedule_of(of);
      const std::int64_t all = total_parameters(of.model);
      ASSERT_EQ(layer_parameters(of.model).total() % 8 + embedding_parameters(of.model) % 8 + all % 8, 0);
      for (const int rank : {0, 7}) {
        const auto bytes = [&](CollectiveKind kind, std::optional<Pass> pass) {
          return volume_of(*schedule, rank, {"zero", {}, pass, kind}, 4).leaves_gpu;
        };
        const std::int64_t whole = all / 8 * 7 * 2;
        EXPECT_EQ(fmt::format("{:.2f}", static_cast<double>(whole) / 1e9), row.gather_gb);
        EXPECT_EQ(bytes(CollectiveKind::kAllGather, Pass::kForward), whole);
        const std::int64_t layers = of.model.layers * layer_parameters(of.model).total();
        const std::int64_t tied = of.model.tied_embeddings ? embedding_parameters(of.model) : 0;
        const std::int64_t again = bytes(CollectiveKind::kAllGather, {}) - whole;
        EXPECT_EQ(again, (layers + tied) / 8 * 7 * 2);
        EXPECT_EQ(bytes(CollectiveKind::kReduceScatter, {}), whole);
      }
    }
  }
}

// 2.11 a: B = 1 gives K = N: the same schedule, field by field, on every rank; B = 2 does not.
TEST(BaspOracle, OneSequenceIsUlyssesFieldByField) {
  for (const std::int64_t tokens : {16384, 1001}) {  // 1001: with padding
    const auto ulysses = schedule_lines(*schedule_of(step_of("ulysses", "qwen2.5-3b", 1, tokens)));
    EXPECT_GT(ulysses.size(), 100u);
    EXPECT_EQ(ulysses, schedule_lines(*schedule_of(step_of("basp", "qwen2.5-3b", 1, tokens))));
  }
  EXPECT_NE(schedule_lines(*schedule_of(step_of("ulysses", "llama3.2-1b", 2, 16384))),
            schedule_lines(*schedule_of(step_of("basp", "llama3.2-1b", 2, 16384))));
}

// 2.11 a: "identical traces": every op record of every rank, on the testbed.
TEST(BaspOracle, OneSequenceHasUlyssesTimeline) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  RecordedTimeline timelines[2];
  Totals totals[2];
  std::shared_ptr<const Schedule> schedules[2];
  for (int i = 0; i < 2; ++i) {
    schedules[i] = schedule_of(step_of(i == 0 ? "ulysses" : "basp", "llama3.2-1b", 1, 16384));
    SimulationOptions options;
    options.unfolded = true;
    options.sink = &timelines[i];
    options.trace.ranks = {0, 1, 2, 3, 4, 5, 6, 7};
    totals[i] = simulate(*schedules[i], cluster, kernels, options);
  }
  EXPECT_GT(timelines[0].ops.size(), 8u * 16u * 30u);
  EXPECT_EQ(timelines[0].ops.size(), timelines[1].ops.size());
  EXPECT_EQ(fingerprint(timelines[0].ops), fingerprint(timelines[1].ops));
  EXPECT_EQ(totals[0].step, totals[1].step);
  EXPECT_EQ(totals[0].link_bytes, totals[1].link_bytes);
}

// 2.11 b: no all-to-all byte leaves a node when K <= G and the groups are aligned; with K > G each rank sends
// b (K - G)/K off its node. From the op lists, and from what a simulated step puts on the network.
TEST(BaspOracle, AllToAllStaysInsideNodesOfSmallGroups) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  for (const std::int64_t batch : {1, 2, 4, 8}) {
    const StepCase of = step_of("basp", "llama3.2-1b", batch, 8192);
    const auto schedule = schedule_of(of);
    const std::int64_t group = 8 / batch, b = forward_buffer(of.model, group, batch * 1024);
    std::int64_t off_node = 0, sent = 0;
    for (int rank = 0; rank < 8; ++rank) {
      const Volume step = volume_of(*schedule, rank, {"sequence", {}, {}, {}}, 4);
      EXPECT_EQ(step.leaves_node, group <= 4 ? 0 : 3 * of.model.layers * b * (group - 4) / group);
      off_node += step.leaves_node;
      sent += step.leaves_gpu;
    }
    ObservedNetwork network(cluster);
    SimulationOptions options;
    options.unfolded = true;
    simulate(*schedule, KernelDurations(kernels), network, options);
    const MemberBytes seen = network.bytes["sequence"];
    EXPECT_EQ(seen.sent_inter_node, off_node);
    EXPECT_EQ(seen.sent_intra_node + seen.sent_inter_node, sent);
    EXPECT_EQ(seen.received, sent);
    EXPECT_GT(network.bytes["zero"].sent_inter_node, 0);  // 2.6: ZeRO still spans all nodes
  }
}

// 2.11 f and 2.8: memory per rank equals Ulysses' unless N > h_kv. There BASP repeats K and V r(K) instead of r(N)
// times: without recompute, where every layer keeps them, L n d e 2 h_kv (r(N) - r(K)) bytes less. Under full recompute
// a layer's K and V are gone when the peak comes (at the logits), so there the peaks are equal again.
TEST(BaspOracle, PeakMemoryIsUlyssesUnlessKvHeadsAreRepeated) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  for (const Printed& row : kTable) {
    SCOPED_TRACE(row.model);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      std::vector<std::int64_t> peaks[2];
      for (int i = 0; i < 2; ++i) {
        StepCase of = step_of(i == 0 ? "ulysses" : "basp", row.model, 2, 16384);
        of.recompute = recompute;
        for (const RankTotals& rank : simulate(*schedule_of(of), cluster, kernels).ranks) {
          peaks[i].push_back(rank.peak_bytes);
          EXPECT_GT(rank.peak_categories[static_cast<std::size_t>(MemoryCategory::kLogits)], 0);
        }
      }
      const ModelShape model = shipped_model(row.model);
      std::int64_t saved = 0;
      if (recompute == Recompute::kNone) {
        saved = model.layers * (forward_buffer(model, 8, 4096) - forward_buffer(model, 4, 4096));
      }
      EXPECT_EQ(saved > 0, recompute == Recompute::kNone && model.kv_heads < 8);
      for (std::int64_t& peak : peaks[1]) peak += saved;
      EXPECT_EQ(peaks[0], peaks[1]);
    }
  }
}

// 2.4: attention costs both the same: B sequences of h/N heads are as many thread blocks as one of h/K. Equal whole
// sequences run as a batch; packed documents of several lengths do not.
TEST(BaspOracle, AttentionTakesUlyssesTime) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  const auto times = [&](const StepCase& of) {
    const auto schedule = schedule_of(of);
    std::vector<std::pair<Time, KernelKind>> list;
    for_each_op(*schedule, 5, [&](const OpInstance& at) {
      if (at.op->kind != OpKind::kAttention) return;
      const OpDuration duration = KernelDurations(kernels).duration(*schedule, at);
      list.push_back({duration.time, duration.kernel});
    });
    return list;
  };
  for (const std::int64_t batch : {2, 4, 8}) {
    const auto ulysses = times(step_of("ulysses", "llama3.2-1b", batch, 8192));
    EXPECT_EQ(ulysses.size(), 3u * 16u);
    EXPECT_EQ(ulysses, times(step_of("basp", "llama3.2-1b", batch, 8192)));
    EXPECT_EQ(ulysses.front().second, KernelKind::kAttentionForwardDense);
  }
  StepCase packed = step_of("ulysses", "llama3.2-1b", 2, 16384);
  packed.sequences = {{4096, 12288}, {4096, 12288}};
  EXPECT_EQ(times(packed).front().second, KernelKind::kAttentionForwardRagged);
}

// Two sequences of 8,192 tokens, 4 of 32 heads on each of 8 ranks: 64 tiles x 8 of 128 rows or keys on 108
// multiprocessors are 4.7 waves. Only GEMMs take the device with their first kernel.
TEST(BaspOracle, OpsKnowTheirLastWave) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  const auto schedule = schedule_of(step_of("ulysses", "llama3.2-1b", 2, 8192));
  int attentions = 0, gemms = 0;
  for_each_op(*schedule, 5, [&](const OpInstance& at) {
    if (at.op->kind != OpKind::kAttention && at.op->kind != OpKind::kGemm) return;
    const OpDuration duration = KernelDurations(kernels).duration(*schedule, at);
    const bool gemm = duration.kernel == KernelKind::kGemm;
    ++(gemm ? gemms : attentions);
    EXPECT_EQ(duration.takes_device_at_once, gemm) << at.op->label;
    const double waves = static_cast<double>(gemm ? duration.tiles : 512) / 108;
    const double last = waves == std::floor(waves) ? 0 : 1 / std::ceil(waves);
    EXPECT_DOUBLE_EQ(duration.last_wave, last) << at.op->label;
  });
  EXPECT_GT(attentions, 0);
  EXPECT_GT(gemms, 0);
}

// --- 2.11 d and e: trends on the testbed, with no constant fitted to them (docs/papers.md has the figures) ----------

struct Pair {
  Totals ulysses, basp;
  double gain() const { return ulysses.step.seconds() / basp.step.seconds(); }
};

Pair run_both(const std::string& model, std::int64_t batch, std::int64_t tokens, Recompute recompute) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  StepCase ulysses = step_of("ulysses", model, batch, tokens), basp = step_of("basp", model, batch, tokens);
  ulysses.recompute = basp.recompute = recompute;
  return {simulate(*schedule_of(ulysses), cluster, kernels), simulate(*schedule_of(basp), cluster, kernels)};
}

// 2.11 d: B = 1 gains nothing, every larger B does, the largest the most; of the six models Qwen1.5-1.8B gains the most
// (the only MHA model: largest b for its compute). Llama-3.1-8B, printed as the least, gains within 5 % of the least.
TEST(BaspTrend, GainNeedsABatchAndIsLargestForQwen15) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    std::map<std::int64_t, double> gain;
    for (const std::int64_t batch : {1, 2, 4, 8}) {
      gain[batch] = run_both("llama3.2-1b", batch, 8192, recompute).gain();
    }
    EXPECT_EQ(gain[1], 1);
    EXPECT_GT(gain[2], 1.1);
    EXPECT_GT(gain[4], 1.1);
    EXPECT_GT(gain[8], std::max(gain[2], gain[4]));
    std::map<double, std::string> by_gain;
    double of_8b = 0;
    for (const Printed& row : kTable) {
      const double model_gain = run_both(row.model, 2, 16384, recompute).gain();
      by_gain[model_gain] = row.model;
      if (std::string(row.model) == "llama3-8b") of_8b = model_gain;
    }
    EXPECT_EQ(by_gain.rbegin()->second, "qwen1.5-1.8b");
    EXPECT_LT(of_8b, 1.05 * by_gain.begin()->first);
    EXPECT_GT(by_gain.begin()->first, 1.1);
  }
}

// 2.11 e: at K = 1 all exposed communication is ZeRO's (with its transfers free none is left), while most of Ulysses'
// is all-to-all: ZeRO's share of what is exposed rises to 1.
TEST(BaspTrend, AtKOneOnlyZeroIsExposed) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  const KernelModel kernels = kernels_of(cluster);
  double without_zero[2];
  for (int i = 0; i < 2; ++i) {
    const auto schedule = schedule_of(step_of(i == 0 ? "ulysses" : "basp", "llama3.2-1b", 8, 8192));
    const Totals totals = simulate(*schedule, cluster, kernels);
    ObservedNetwork network(cluster, {"zero"});
    const Totals free = simulate(*schedule, KernelDurations(kernels), network);
    const auto exposed = [](const Totals& of) {
      return of.ranks[static_cast<std::size_t>(of.critical_rank)].exposed_communication.seconds();
    };
    EXPECT_GT(exposed(totals), 0);
    EXPECT_LT(free.step, totals.step);
    without_zero[i] = exposed(free) / exposed(totals);
  }
  EXPECT_GT(without_zero[0], 0.5);
  EXPECT_EQ(without_zero[1], 0);
}

}  // namespace
}  // namespace longhaul::oracle
