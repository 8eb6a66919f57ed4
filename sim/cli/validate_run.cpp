#include "sim/cli/validate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "sim/cli/commit.h"
#include "sim/cli/validate_gpu.h"
#include "sim/cli/validate_numerics.h"
#include "sim/core/data_files.h"
#include "sim/core/invariant.h"
#include "sim/strategies/registry.h"
#include "sim/study/entry_run.h"
#include "sim/study/reduce.h"
#include "sim/study/results_json.h"
#include "validate/cpu/verify.h"
#include "validate/cpu/wide_product.h"
#include "validate/device/device_executor.h"
#include "validate/device/gpu_devices.h"
#include "validate/device/host_device.h"
#include "validate/report/prediction.h"
#include "validate/report/reduced_study.h"
#include "validate/report/reduction.h"
#include "validate/report/units.h"

namespace longhaul {
namespace {

constexpr int kVirtualRanks = 8;  // where the study has more and one GPU must do
constexpr int kHostRanks = 4;
constexpr std::int64_t kHostTokens = 512;  // of a step emulated in double precision
constexpr double kHostFlops = 1e12;
constexpr std::int64_t kNoMemoryLimit = std::int64_t{1} << 62;

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

// What the study becomes for this machine.
struct Chosen {
  Json study;
  std::vector<std::string> reductions;
};

Chosen choose_study(const StudyEntry& asked, const MachineAtHand& machine, bool reduced) {
  const StudyCase& study_case = *asked.found.study_case;
  const StrategyEntry& entry = *asked.found.entry;
  if (!reduced) return {asked.study.resolved, {}};
  const auto reduction = reduce_for_machine(asked.study, study_case, entry, machine);
  if (!reduction) {
    throw LimitError(fmt::format("{} cannot be made to fit this machine: {}", entry.label, reduction.error()));
  }
  Chosen chosen{reduction->study, {}};
  for (const Change& change : reduction->changes) chosen.reductions.push_back(change.text());
  return chosen;
}

// The host computes in double precision: the sizes of `longhaul verify`, fewer tokens still.
Expected<Chosen> shrink_for_host(Chosen chosen, const std::string& file) {
  const Expected<Study> study = parse_study(chosen.study, file, study_options());
  if (!study) return tl::unexpected(study.error());
  const StudyCase& from = study->cases.front();
  const auto stages = static_cast<int>(from.model.layers);
  const ModelShape model = reduce_model(from.model, stages);
  const Batch batch = make_batch(from.documents, from.objective, 0);
  Json& one = chosen.study.contains("cases") ? chosen.study["cases"][0] : chosen.study;
  one["model"] = model_config(model);
  one["documents"] = {{"explicit", reduce_documents(batch, kHostTokens)}};
  chosen.reductions.push_back(
      fmt::format("head_dim {} -> {}, hidden {} -> {}, vocabulary {} -> {}, tokens {} -> at most "
                  "{}: the host emulates in double precision",
                  from.model.head_dim, model.head_dim, from.model.hidden, model.hidden, from.model.vocab, model.vocab,
                  batch.tokens(), kHostTokens));
  return chosen;
}

RunIdentity identity_of(const StudyEntry& asked, const PreparedRun& prepared, const RunIdentity& measured) {
  RunIdentity identity = measured;
  identity.study = prepared.study.name;
  identity.study_case = prepared.study_case->name;
  identity.strategy = prepared.entry->label;
  // A run travels: where its study lay on this machine is nobody's business.
  const std::string file = std::filesystem::path(asked.study.file).filename().string();
  const bool shipped = find_data_file(DataKind::kStudy, asked.study.name).has_value() &&
                       *find_data_file(DataKind::kStudy, asked.study.name) == asked.study.file;
  identity.study_file = shipped ? "workloads/studies/" + file : file;
  identity.reductions = prepared.reductions;
  identity.date = today();
  identity.version = longhaul_version();
  identity.git = LONGHAUL_COMMIT;
  return identity;
}

// Who runs the planned steps: devices of this process, or of all processes of a job.
using OnStep = std::function<void(StepOutcome, RunRecord&)>;
using RunSteps = std::function<RunRecord(const DevicePlan& plan, const StepWish& wish, const OnStep& on_step)>;

RunSteps here(const std::vector<Device*>& devices, Transport& transport, const ExecutorOptions& options) {
  return [&devices, &transport, &options](const DevicePlan& plan, const StepWish& wish, const OnStep& on_step) {
    return run_on_devices(plan, devices, transport, options, wish, on_step);
  };
}

RunSteps in_all_processes(JobLead& job, JobTeam& team, const ExecutorOptions& options) {
  return [&job, &team, &options](const DevicePlan& plan, const StepWish& wish, const OnStep& on_step) {
    return job.run(plan, team, options, wish, on_step);
  };
}

FreshRun execute(const StudyEntry& asked, Prepared prepared, const RunSteps& run_steps, const ReferenceTools& tools,
                 const ExecutorOptions& options, const char* origin, ReferenceCache& cache) {
  const DevicePlan plan(*prepared->planned.schedule);
  const NumericsCheck numerics(*prepared, tools, options, cache);
  const auto started = std::chrono::steady_clock::now();
  const auto note = [&](const char* what) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started;
    if (cache.note) cache.note(fmt::format("{} after {:.1f} s", what, passed.count()));
  };
  KeptRun run;
  run.origin = origin;
  run.record = run_steps(plan, numerics.wish(), [&](const StepOutcome& outcome, RunRecord& record) {
    note("one step for its numbers");
    numerics.judge(outcome, record, note);
  });
  note("timed steps");
  run.record.identity = identity_of(asked, *prepared, run.record.identity);
  if (!options.plant.kernel.empty()) {
    run.record.exclusions.push_back(
        {-1, -1, "planted slow-down",
         fmt::format("{} takes {:g} % longer, on purpose", options.plant.kernel, 100 * options.plant.share)});
  }
  run.study = prepared->study_json;
  run.study_case = prepared->study_case->name;
  run.strategy = prepared->entry->label;
  return {std::move(prepared), std::move(run)};
}

ExecutorOptions executor_options(const ValidateOptions& options, int repeats) {
  ExecutorOptions executor;
  executor.warmups = options.warmups;
  executor.repeats = options.repeats > 0 ? options.repeats : repeats;
  executor.plant = options.plant;
  return executor;
}

// A plant that no op of the schedule answers to.
Errors plant_faults(const Plant& plant, const Schedule& schedule) {
  if (plant.kernel.empty()) return {};
  std::vector<std::string> labels;
  for (const Segment& segment : schedule.segments) {
    for (const Op& op : segment.ops) {
      if (op.kind == OpKind::kCollective) continue;
      if (plant.hits(op)) return {};
      if (std::find(labels.begin(), labels.end(), op.label) == labels.end()) labels.push_back(op.label);
    }
  }
  return {
      {"<command line>", "--plant", fmt::format("no kernel of the schedule is called \"{}\"", plant.kernel),
       fmt::format("one of {}, with \" (forward)\" or \" (backward)\" behind it for one pass", fmt::join(labels, ", ")),
       nearest_name(plant.kernel, labels)}};
}

Expected<FreshRun> run_on_host(const StudyEntry& asked, const ValidateOptions& options, ReferenceCache& cache) {
  constexpr int kRepeats = 3;
  MachineAtHand machine;
  machine.device = asked.found.study_case->topology.device.name;
  machine.ranks = options.virtual_ranks > 0 ? options.virtual_ranks : kHostRanks;
  if (options.job != nullptr) {  // at least one a process
    const int processes = options.job->job().processes();
    machine.ranks = std::max(1, kHostRanks / processes) * processes;
  }
  machine.virtual_ranks = true;
  machine.memory_bytes = kNoMemoryLimit;
  Chosen chosen = choose_study(asked, machine, options.reduced);
  if (options.reduced) {
    Expected<Chosen> small = shrink_for_host(std::move(chosen), asked.study.file);
    if (!small) return tl::unexpected(small.error());
    chosen = std::move(*small);
  }
  Expected<Prepared> prepared =
      prepare_run(chosen.study, asked.study.file, asked.found.entry->label, asked.found.study_case->name);
  if (!prepared) return tl::unexpected(prepared.error());
  (*prepared)->reductions = chosen.reductions;
  const Errors planted = plant_faults(options.plant, *(*prepared)->planned.schedule);
  if (!planted.empty()) return tl::unexpected(planted);
  const double flops = schedule_flops(*(*prepared)->planned.schedule);
  if (flops > kHostFlops) {
    throw LimitError(
        fmt::format("the host emulates up to {:.0e} FLOP, this step takes {:.1e}; use --reduced", kHostFlops, flops));
  }
  const ExecutorOptions executor = executor_options(options, kRepeats);
  HostMath math(hardware_threads());
  const ReferenceTools tools{[](AttentionChoice) { return std::make_unique<HostDevice>(); }, math};
  if (options.job != nullptr) {
    JobTeam team = options.job->make_team(**prepared, asked.study.file, true);
    return execute(asked, std::move(*prepared), in_all_processes(*options.job, team, executor), tools, executor,
                   "emulated", cache);
  }
  HostDevice device;
  VirtualTransport transport;
  const std::vector<Device*> devices(static_cast<std::size_t>((*prepared)->degrees.ranks()), &device);
  return execute(asked, std::move(*prepared), here(devices, transport, executor), tools, executor, "emulated", cache);
}

// Ranks and devices: as many GPUs as ranks where they are there, else virtual ranks on the first one.
MachineAtHand gpus_at_hand(const StudyEntry& asked, const ValidateOptions& options, const HardwareInfo& hardware,
                           std::int64_t free_bytes, int gpus) {
  MachineAtHand machine;
  machine.device = shipped_device_of(hardware.device);
  if (machine.device.empty()) {
    throw LimitError(fmt::format("no device of topologies/devices is \"{}\": describe it there, or take another GPU",
                                 hardware.device));
  }
  const auto wanted = static_cast<int>(std::min<std::int64_t>(asked.found.study_case->gpus, 1 << 20));
  machine.virtual_ranks = options.virtual_ranks > 0 || gpus == 1 || !gpu_devices().can_join();
  machine.ranks = !machine.virtual_ranks ? gpus : options.virtual_ranks > 0 ? options.virtual_ranks : kVirtualRanks;
  if (!options.reduced) machine.ranks = wanted;
  machine.memory_bytes = free_bytes;
  return machine;
}

// All GPUs of all processes, one rank each.
MachineAtHand gpus_of_job(const StudyEntry& asked, const ValidateOptions& options) {
  if (!gpu_devices().can_join()) throw LimitError("this build has no NCCL: it runs one process on one GPU");
  std::string hardware;
  MachineAtHand machine = options.job->gpus_at_hand(hardware);
  if (machine.device.empty()) {
    throw LimitError(fmt::format("no device of topologies/devices is \"{}\": describe it there", hardware));
  }
  const auto wanted = static_cast<int>(std::min<std::int64_t>(asked.found.study_case->gpus, 1 << 20));
  if (!options.reduced && wanted > machine.ranks) {
    throw LimitError(
        fmt::format("{} ranks, {} GPUs in all processes; use --reduced, or start more", wanted, machine.ranks));
  }
  if (!options.reduced) machine.ranks = wanted;
  return machine;
}

void require_same_device(const StudyEntry& asked, const MachineAtHand& machine, bool reduced) {
  const std::string& wanted = asked.found.study_case->topology.device.name;
  if (reduced || wanted == machine.device) return;
  throw LimitError(fmt::format("the study's GPUs are {}, this machine's {}; --reduced predicts for this machine's",
                               wanted, machine.device));
}

// Bytes that the fullest device must give before anything runs.
std::int64_t planned_bytes(const DevicePlan& plan, const Device& device, bool virtual_ranks) {
  std::int64_t bytes = 0;
  for (std::int32_t rank = 0; rank < plan.ranks(); ++rank) {
    const std::int64_t one = plan.arena(rank).bytes + bytes_beside_arena(plan, rank, device);
    bytes = virtual_ranks ? bytes + one : std::max(bytes, one);
  }
  return bytes;
}

Expected<FreshRun> run_on_gpus(const StudyEntry& asked, const ValidateOptions& options, ReferenceCache& cache) {
  constexpr int kRepeats = 20;
  constexpr int kAttempts = 4;
  std::string why;
  const int gpus = gpu_devices().count(why);
  MachineAtHand machine;
  if (options.job != nullptr) machine = gpus_of_job(asked, options);
  const int first_gpu = options.job == nullptr ? 0 : options.job->first_gpu();
  const std::unique_ptr<DoubleMath> math = gpu_devices().make_math(first_gpu, hardware_threads());
  const ReferenceTools tools{
      [first_gpu](AttentionChoice attention) { return gpu_devices().make(first_gpu, attention); }, *math};
  std::unique_ptr<Device> first = tools.make_device(AttentionChoice::kBest);
  const std::int64_t free_bytes = options.job == nullptr ? first->free_bytes() : machine.memory_bytes;
  if (options.job == nullptr) machine = gpus_at_hand(asked, options, first->hardware(), free_bytes, gpus);
  require_same_device(asked, machine, options.reduced);
  // The arena has gaps that the simulator does not know: where they do not fit, a smaller version is taken.
  for (int attempt = 1;; ++attempt) {
    const Chosen chosen = choose_study(asked, machine, options.reduced);
    Expected<Prepared> prepared =
        prepare_run(chosen.study, asked.study.file, asked.found.entry->label, asked.found.study_case->name);
    if (!prepared) return tl::unexpected(prepared.error());
    (*prepared)->reductions = chosen.reductions;
    const Errors planted = plant_faults(options.plant, *(*prepared)->planned.schedule);
    if (!planted.empty()) return tl::unexpected(planted);
    const int ranks = (*prepared)->degrees.ranks();
    if (options.job == nullptr && !machine.virtual_ranks && ranks > gpus) {
      throw LimitError(fmt::format("{} ranks, {} GPUs here; use --reduced or --virtual-ranks {}", ranks, gpus, ranks));
    }
    const std::int64_t bytes = planned_bytes(DevicePlan(*(*prepared)->planned.schedule), *first, machine.virtual_ranks);
    if (bytes > free_bytes) {
      if (options.reduced && attempt < kAttempts) {
        machine.memory_bytes = machine.memory_bytes / 10 * 8;
        continue;
      }
      throw LimitError(fmt::format("the step needs {} of the {} that are free on the GPU{}",
                                   bytes_text(static_cast<double>(bytes)), bytes_text(static_cast<double>(free_bytes)),
                                   options.reduced ? "" : "; use --reduced"));
    }
    first.reset();  // its destructor would wait for a step that hangs
    const ExecutorOptions executor = executor_options(options, kRepeats);
    if (options.job != nullptr) {
      JobTeam team = options.job->make_team(**prepared, asked.study.file, false);
      return execute(asked, std::move(*prepared), in_all_processes(*options.job, team, executor), tools, executor,
                     "measured", cache);
    }
    if (machine.virtual_ranks) {
      const std::unique_ptr<Device> gpu = gpu_devices().make(0, AttentionChoice::kBest);
      VirtualTransport transport;
      const std::vector<Device*> devices(static_cast<std::size_t>(ranks), gpu.get());
      return execute(asked, std::move(*prepared), here(devices, transport, executor), tools, executor, "measured",
                     cache);
    }
    TeamPlaces places;
    for (int rank = 0; rank < ranks; ++rank) places.gpus.push_back(rank);
    const GpuTeam team = gpu_devices().make_team(*(*prepared)->planned.schedule, places);
    std::vector<Device*> devices;
    for (const auto& device : team.devices) devices.push_back(device.get());
    return execute(asked, std::move(*prepared), here(devices, *team.transport, executor), tools, executor, "measured",
                   cache);
  }
}

}  // namespace

Expected<RunCost> cost_of_run(const StudyEntry& asked, const ValidateOptions& options) {
  constexpr int kRepeats = 20;
  constexpr double kSecondsPerElement = 2e-9, kReferenceRate = 3e11;  // of one core, of 16
  const Expected<Prepared> prepared =
      prepare_run(asked.study.resolved, asked.study.file, asked.found.entry->label, asked.found.study_case->name);
  if (!prepared) return tl::unexpected(prepared.error());
  const Schedule& schedule = *(*prepared)->planned.schedule;
  const Prediction prediction = predict_run(*(*prepared)->setup, (*prepared)->planned);
  const DevicePlan plan(schedule);
  RunCost cost;
  for (std::size_t rank = 0; rank < prediction.rank_alone.size(); ++rank) {
    const double alone = prediction.rank_alone[rank].seconds();
    const std::int64_t bytes = plan.need(static_cast<std::int32_t>(rank)).total();
    cost.step_seconds += options.virtual_ranks > 0 ? alone : 0;
    cost.device_bytes = options.virtual_ranks > 0 ? cost.device_bytes + bytes : std::max(cost.device_bytes, bytes);
  }
  if (options.virtual_ranks == 0) cost.step_seconds = prediction.totals.step.seconds();
  const ExecutorOptions executor = executor_options(options, kRepeats);
  const int steps = 2 * executor.repeats + executor.warmups + std::min(1, executor.warmups) + 1;
  cost.run_seconds = steps * cost.step_seconds;
  cost.double_precision = takes_double_precision(schedule, options.reference);
  const ModelShape& model = schedule.model;
  const double rows = static_cast<double>(batch_rows(*schedule.batch)) * static_cast<double>(model.layers);
  cost.numerics_seconds = rows * 2 * static_cast<double>(model.q_width() + model.qkv_width()) * kSecondsPerElement;
  if (cost.double_precision) cost.numerics_seconds += reference_flops(model, *schedule.batch) / kReferenceRate;
  return cost;
}

Expected<Prepared> prepare_recorded(const StudyEntry& asked, const KeptRun& run, const ValidateOptions& options) {
  Errors errors;
  const std::string& label = asked.found.entry->label;
  const std::string& study_case = asked.found.study_case->name;
  const auto expect = [&](const char* path, const std::string& is, const std::string& wanted) {
    if (is == wanted) return;
    errors.push_back({options.record, path, fmt::format("is \"{}\"", is),
                      fmt::format("\"{}\", as on the command line", wanted), nearest_name(is, {wanted})});
  };
  const bool bare = run.study.is_null();
  if (!bare && run.study.contains("name") && run.study["name"].is_string()) {
    expect("/study/name", run.study["name"].get<std::string>(), asked.study.name);
  }
  expect(bare ? "/identity/case" : "/case", run.study_case, study_case);
  expect(bare ? "/identity/strategy" : "/strategy", run.strategy, label);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  Expected<Prepared> prepared =
      prepare_run(bare ? asked.study.resolved : run.study, bare ? asked.study.file : options.record, label, study_case);
  if (prepared) (*prepared)->reductions = run.record.identity.reductions;
  return prepared;
}

Expected<FreshRun> run_on_this_machine(const StudyEntry& asked, const ValidateOptions& options, ReferenceCache& cache) {
  return options.device == "host" ? run_on_host(asked, options, cache) : run_on_gpus(asked, options, cache);
}

}  // namespace longhaul
