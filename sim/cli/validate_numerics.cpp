#include "sim/cli/validate_numerics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <variant>

#include "sim/core/error.h"
#include "sim/strategies/registry.h"
#include "validate/cpu/reference.h"
#include "validate/cpu/wide_product.h"
#include "validate/device/initial_values.h"
#include "validate/device/step_alone.h"

namespace longhaul {
namespace {

// Of one core in a minute, with room to spare (46e9 a second measured on an EPYC with AVX2). A double-precision step
// beyond this on each core takes too long; the undistributed step on the device is the reference.
constexpr double kReferenceFlopsPerThread = 2.5e12;
constexpr std::int64_t kSampledRows = 256;
constexpr std::uint64_t kSampleSeed = 1;

// The same batch and model on one rank. Block diffusion: offset context parallelism over one rank, which shares
// nothing; the strategy as such refuses to run on a single GPU.
std::shared_ptr<const Schedule> undistributed_schedule(const PreparedRun& prepared) {
  const Schedule& whole = *prepared.planned.schedule;
  const bool diffusion = whole.batch->objective.kind == ObjectiveKind::kBlockDiffusion;
  StrategyRequest request;
  request.model = whole.model;
  request.batch = whole.batch;
  request.training = prepared.study_case->training;
  request.training.micro_batch_sequences = 1;
  Planned planned = find_strategy(diffusion ? "bd-offset-cp" : "data-parallel")->plan(request);
  if (!planned) throw LimitError("no undistributed step: " + planned.error());
  return planned->schedule;
}

// What runs the schedule's attention on such a device.
std::set<std::string> attention_kernels(const DevicePlan& plan, const Device& device) {
  std::set<std::string> labels;
  const std::vector<ProgramOp>& program = plan.programs().ranks.front();
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].at.op->kind != OpKind::kAttention) continue;
    for (const DeviceCall& call : plan.op(0, static_cast<std::int32_t>(i)).calls) {
      const bool attention =
          std::holds_alternative<AttentionForwardCall>(call) || std::holds_alternative<AttentionBackwardCall>(call);
      if (attention) labels.insert(device.kernel_label(call));
    }
  }
  return labels;
}

// What a second undistributed step differs by from the one that is the reference; nothing where its attention would run
// in the same kernels.
std::vector<QuantityNorm> other_kernels_errors(const DevicePlan& plan, const ReferenceTools& tools,
                                               const ExecutorOptions& options, const StepReference& reference) {
  const std::set<std::string> best = attention_kernels(plan, *tools.make_device(AttentionChoice::kBest));
  const std::unique_ptr<Device> device = tools.make_device(AttentionChoice::kPieces);
  if (attention_kernels(plan, *device) == best) return {};
  const StepOutcome outcome = step_alone(plan, *device, options, numerics_wish(plan.schedule()));
  return relative_errors(plan.schedule(), outcome, reference);
}

// Errors of the undistributed step, or that step itself as the reference, as the reference is.
void add_undistributed(const Schedule& schedule, const ReferenceTools& tools, const ExecutorOptions& options,
                       const std::function<void(const char*)>& note, NumericsReference& reference) {
  const auto outcome = std::make_shared<StepOutcome>();
  const bool whole = reference.reference.has_value();
  const DevicePlan plan(schedule);
  try {
    *outcome = step_alone(plan, *tools.make_device(AttentionChoice::kBest), options,
                          whole ? numerics_wish(schedule) : row_wish(schedule));
    note("undistributed step");
    if (!whole) {
      reference.reference = reference_of(schedule, outcome);
      reference.undistributed = other_kernels_errors(plan, tools, options, *reference.reference);
      note("another in other attention kernels");
    }
  } catch (const DeviceFault& fault) {
    if (fault.kind() != FaultKind::kMemory) throw;
    if (!whole) reference.reference.reset();
    reference.left_out =
        fmt::format("{}the undistributed step did not run: {}",
                    whole ? "" : "the step is too large for double precision on the CPU, and ", fault.why());
    return;
  }
  if (whole) {
    reference.undistributed = relative_errors(schedule, *outcome, *reference.reference);
    return;
  }
  reference.rows = sample_rows(*schedule.batch, kSampledRows, kSampleSeed);
  reference.undistributed_rows = sampled_errors(schedule, *outcome, reference.rows, tools.math);
  note("its sampled rows in double precision");
}

}  // namespace

Expected<ReferenceChoice> reference_choice(const std::string& name) {
  const std::vector<std::string> names = {"auto", "fp64", "undistributed", "none"};
  const auto at = std::find(names.begin(), names.end(), name);
  if (at != names.end()) return static_cast<ReferenceChoice>(at - names.begin());
  return tl::unexpected(Errors{{"<command line>", "--reference", fmt::format("is \"{}\"", name),
                                fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(name, names)}});
}

bool takes_double_precision(const Schedule& schedule, ReferenceChoice choice) {
  if (choice != ReferenceChoice::kAuto) return choice == ReferenceChoice::kDoublePrecision;
  return reference_flops(schedule.model, *schedule.batch) <= kReferenceFlopsPerThread * hardware_threads();
}

NumericsCheck::NumericsCheck(const PreparedRun& prepared, const ReferenceTools& tools, const ExecutorOptions& options,
                             ReferenceCache& cache)
    : schedule_(*prepared.planned.schedule), math_(tools.math) {
  auto made = std::make_shared<NumericsReference>();
  const Training& training = prepared.study_case->training;
  if (cache.choice == ReferenceChoice::kNone) made->left_out = "--reference none: times alone";
  if (training.scope != Scope::kStep || !training.backward) {
    made->left_out = "references are whole training steps; set training.scope to \"step\" with both passes";
  }
  if (!made->left_out.empty()) {
    reference_ = made;
    return;
  }
  const bool whole = takes_double_precision(schedule_, cache.choice);
  wish_ = whole ? numerics_wish(schedule_) : row_wish(schedule_);
  const std::shared_ptr<const Schedule> undistributed = undistributed_schedule(prepared);
  const std::uint64_t fingerprint = schedule_fingerprint(*undistributed);
  if (cache.reference && cache.fingerprint == fingerprint && cache.seed == options.parameter_seed &&
      cache.whole == whole) {
    reference_ = cache.reference;
    return;
  }
  cache.reference = nullptr;  // what it held goes before the next takes memory
  const auto started = std::chrono::steady_clock::now();
  const auto note = [&](const char* what) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started;
    if (cache.note) cache.note(fmt::format("{} after {:.1f} s", what, passed.count()));
  };
  if (whole) {
    const ParameterValues parameters = bf16_parameters(schedule_.model, options.parameter_seed);
    const Reference exact =
        reference_step(schedule_.model, *schedule_.batch, parameters, hardware_threads(), tools.math.products());
    made->reference = reference_of(schedule_.model, exact);
    note("reference in double precision");
  }
  add_undistributed(*undistributed, tools, options, note, *made);
  reference_ = made;
  cache.fingerprint = fingerprint;
  cache.seed = options.parameter_seed;
  cache.whole = whole;
  cache.reference = reference_;
}

void NumericsCheck::judge(const StepOutcome& outcome, RunRecord& record,
                          const std::function<void(const char*)>& note) const {
  const NumericsReference& with = *reference_;
  if (!with.left_out.empty()) record.exclusions.push_back({-1, -1, "numerics", with.left_out});
  if (!with.reference) return;
  const std::vector<QuantityNorm> errors = relative_errors(schedule_, outcome, *with.reference);
  record.numerics = with.reference->step != nullptr ? judge_against_step(errors, with.undistributed)
                                                    : longhaul::judge(errors, with.undistributed, with.reference->name);
  note("numbers compared");
  if (with.rows.empty()) return;
  const std::vector<NumericsResult> rows =
      judge_rows(sampled_errors(schedule_, outcome, with.rows, math_), with.undistributed_rows);
  record.numerics.insert(record.numerics.end(), rows.begin(), rows.end());
  note("sampled rows in double precision");
}

}  // namespace longhaul
