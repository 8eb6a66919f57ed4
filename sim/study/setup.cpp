#include "sim/study/setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/data_files.h"
#include "sim/core/invariant.h"
#include "sim/cost/attention_library.h"
#include "sim/cost/eager_kernels.h"
#include "sim/scenario/layout_check.h"
#include "sim/strategies/registry.h"

namespace longhaul {
namespace {

const Strategy& strategy_of(const StrategyEntry& entry) {
  const Strategy* strategy = find_strategy(entry.name);
  LH_ASSERT(strategy != nullptr, "a study was read with the unknown strategy {}", entry.name);
  return *strategy;
}

Expected<KernelModel> with_library(const KernelModel& model, const std::string& name) {
  if (name == attention_library_names().front()) return model;
  const auto library = read_attention_library(name, data_directory());
  if (!library) return tl::unexpected(library.error());
  return model.with_attention_library(*library);
}

// A tp or ep of 1, the only ones there are, says nothing.
bool writes_degrees(const Layout& layout) { return layout.pp || layout.cp || layout.sp || layout.dp; }

}  // namespace

StudyOptions study_options(std::optional<std::int64_t> seed) {
  StudyOptions options;
  options.known_strategies = strategy_names();
  options.seed = seed;
  options.check_strategy = [](const StrategyEntry& entry, Errors& errors) {
    const Strategy* strategy = find_strategy(entry.name);
    if (strategy == nullptr) return;
    for (const auto& [key, value] : entry.options.items()) {
      if (std::find(strategy->option_keys.begin(), strategy->option_keys.end(), key) != strategy->option_keys.end()) {
        continue;
      }
      std::vector<std::string> keys = strategy_keys();
      keys.insert(keys.end(), strategy->option_keys.begin(), strategy->option_keys.end());
      errors.push_back({entry.file, entry.path + "/" + key, "unknown key",
                        fmt::format("one of {}", fmt::join(keys, ", ")), nearest_name(key, keys)});
    }
    if (strategy->check_options) strategy->check_options(entry.options, entry.file, entry.path, errors);
  };
  return options;
}

Expected<CaseSetup> set_up_case(const StudyCase& study_case, const std::string& file) {
  Expected<Cluster> cluster = make_cluster(study_case.topology, static_cast<int>(study_case.gpus), file, "/gpus");
  Expected<KernelModel> kernels = load_kernel_model(study_case.topology.device, data_directory());
  Errors errors;
  if (!cluster) errors = cluster.error();
  if (!kernels) append(errors, kernels.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  const auto eager = read_eager_kernels(data_directory());
  if (!eager) return tl::unexpected(eager.error());
  const KernelModel model = kernels->with_overlap_scale(study_case.overlap.added()).with_eager_kernels(*eager);
  Expected<KernelModel> own = with_library(model, study_case.attention_library);
  if (!own) return tl::unexpected(own.error());
  CaseSetup setup{&study_case, std::move(*cluster), std::move(*own), {}, {}};
  for (const StrategyEntry& entry : study_case.strategies) {
    const std::string& name = entry.attention_library;
    if (name.empty() || setup.other_kernels.count(name) > 0) continue;
    Expected<KernelModel> other = with_library(model, name);
    if (!other) return tl::unexpected(other.error());
    setup.other_kernels.emplace(name, std::move(*other));
  }
  for (std::int64_t step = 0; step < study_case.documents.steps; ++step) {
    setup.batches.push_back(
        std::make_shared<const Batch>(make_batch(study_case.documents, study_case.objective, step)));
  }
  return setup;
}

const KernelModel& CaseSetup::kernels_of(const StrategyEntry& entry) const {
  if (entry.attention_library.empty()) return kernels;
  const auto found = other_kernels.find(entry.attention_library);
  LH_ASSERT(found != other_kernels.end(), "{} is no entry of the case", entry.label);
  return found->second;
}

StrategyRequest make_request(const CaseSetup& setup, const StrategyEntry& entry, const Degrees& degrees,
                             std::size_t step) {
  StrategyRequest request;
  request.batch = setup.batches.at(step);
  request.model = setup.study_case->model;
  request.ranks = setup.ranks();
  request.gpus_per_node = setup.gpus_per_node();
  request.memory_limit_bytes = setup.memory_limit();
  request.training = setup.study_case->training;
  request.training.micro_batch_sequences = entry.micro_batch_sequences;
  request.degrees = degrees;
  request.options = entry.options;
  request.cluster = &setup.cluster;
  request.kernels = &setup.kernels_of(entry);
  return request;
}

tl::expected<Degrees, std::string> entry_degrees(const CaseSetup& setup, const StrategyEntry& entry) {
  return resolve_degrees(strategy_of(entry).family, entry.layout.degrees, setup.ranks(), setup.gpus_per_node(),
                         setup.study_case->model);
}

bool runs_workload(const Strategy& strategy, const CaseSetup& setup) {
  return strategy.objective == setup.study_case->objective.kind &&
         (setup.ranks() > 1 || strategy.family == StrategyFamily::kData);
}

std::vector<Degrees> candidate_degrees(StrategyFamily family, const CaseSetup& setup) {
  const int ranks = setup.ranks();
  const ModelShape& model = setup.study_case->model;
  std::vector<Degrees> all;
  if (family == StrategyFamily::kData) return {{1, 1, 1, ranks}};
  for (int first = ranks; first >= 2; --first) {
    if (ranks % first != 0) continue;
    const int rest = ranks / first;
    if (family == StrategyFamily::kContext) all.push_back({1, first, 1, rest});
    if (family == StrategyFamily::kSequence && first <= model.q_heads) all.push_back({1, 1, first, rest});
    if (family != StrategyFamily::kPipeline || first > model.layers) continue;
    for (int sp = rest; sp >= 1; --sp) {
      if (rest % sp == 0 && sp <= model.q_heads) all.push_back({first, 1, sp, rest / sp});
    }
  }
  return all;
}

Errors entry_errors(const CaseSetup& setup, const StrategyEntry& entry) {
  if (entry.layout.best || !writes_degrees(entry.layout.degrees) || !runs_workload(strategy_of(entry), setup))
    return {};
  const tl::expected<Degrees, std::string> degrees = entry_degrees(setup, entry);
  if (!degrees) {
    return {{entry.file, entry.path + "/layout", degrees.error(),
             fmt::format("degrees that multiply to {} GPUs", setup.ranks()), ""}};
  }
  if (strategy_of(entry).family == StrategyFamily::kPipeline) return {};
  for (const std::shared_ptr<const Batch>& batch : setup.batches) {
    const auto fault =
        fill_error(static_cast<std::int64_t>(batch->sequences.size()), degrees->dp, entry.micro_batch_sequences, entry);
    if (fault) return {*fault};
  }
  return {};
}

std::string degrees_text(const Degrees& degrees) {
  std::vector<std::string> parts;
  if (degrees.pp > 1) parts.push_back(fmt::format("pp {}", degrees.pp));
  if (degrees.cp > 1) parts.push_back(fmt::format("cp {}", degrees.cp));
  if (degrees.sp > 1) parts.push_back(fmt::format("sp {}", degrees.sp));
  if (degrees.dp > 1) parts.push_back(fmt::format("dp {}", degrees.dp));
  return parts.empty() ? "one GPU" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace longhaul
