// What all entries of a case share while a study runs: the cluster, the kernel model, and the batch of every step.
//
// Immutable once made; read by all threads. Ignores the entries themselves.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/scenario/study.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

struct CaseSetup {
  const StudyCase* study_case = nullptr;
  Cluster cluster;
  KernelModel kernels;
  std::map<std::string, KernelModel> other_kernels;   // of entries with an attention library of their own, by its name
  std::vector<std::shared_ptr<const Batch>> batches;  // by step

  // What runs the entry's kernels. The entry must be one of the case's, or name no library.
  const KernelModel& kernels_of(const StrategyEntry& entry) const;
  int ranks() const { return cluster.gpus(); }
  int gpus_per_node() const { return cluster.gpus_per_node(); }
  std::int64_t memory_limit() const { return cluster.device().usable().value; }
};

// The known strategies and their option checks, for read_study.
StudyOptions study_options(std::optional<std::int64_t> seed = std::nullopt);

// `study_case` must outlive the set-up. Errors: a GPU count that the topology does not have, a missing calibration.
Expected<CaseSetup> set_up_case(const StudyCase& study_case, const std::string& file);

// What the strategy of `entry` is asked for one step; `degrees` multiply to the case's GPUs.
StrategyRequest make_request(const CaseSetup& setup, const StrategyEntry& entry, const Degrees& degrees,
                             std::size_t step);

// Degrees of the entry when its layout is not "best".
tl::expected<Degrees, std::string> entry_degrees(const CaseSetup& setup, const StrategyEntry& entry);

// The objective is the strategy's, and there are GPUs to share a sequence if it does.
bool runs_workload(const Strategy& strategy, const CaseSetup& setup);

// Every choice of degrees that "best" tries: all products of the family's degrees that give the GPU count, with a
// sequence shared by at least two GPUs; sp up to the query heads, pp up to the layers. What the strategy then refuses
// is not counted as legal.
std::vector<Degrees> candidate_degrees(StrategyFamily family, const CaseSetup& setup);

// Faults of an entry whose layout the user wrote, for the entry or the case: degrees that do not multiply to the GPU
// count, sequences that do not fill dp x micro-batches. A layout of defaults alone is not the user's fault: the row is
// not applicable, with the same reason, and the others run. None for "best" and for what cannot run the workload at
// all.
Errors entry_errors(const CaseSetup& setup, const StrategyEntry& entry);

// "cp 16", "sp 8, dp 2": degrees above 1.
std::string degrees_text(const Degrees& degrees);

}  // namespace longhaul
