// longhaul validate: one strategy's schedule run for real, beside what was predicted, with gates for CI.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>

#include "reports/double_trace.h"
#include "sim/cli/output_folder.h"
#include "sim/cli/validate_gpu.h"
#include "sim/cli/validate_run.h"
#include "sim/core/data_files.h"
#include "sim/study/results_json.h"
#include "validate/report/composed_step.h"
#include "validate/report/double_timeline.h"
#include "validate/report/validation_report.h"

namespace longhaul {
namespace {

struct ValidateArguments {
  ValidateOptions run;
  std::string baseline;
  std::string max_error, max_slowdown;  // as given; empty: not given
  std::string out, junit, markdown;
  std::string plant;  // as given
  std::string reference = "auto";
  bool keep = false;
  bool plan = false;  // say what the runs would cost, run nothing
};

// What the options and the files that they name say, read together so that every fault is told at once.
struct Input {
  std::unique_ptr<StudyEntry> asked;
  std::optional<KeptRun> record, baseline;
  std::optional<double> max_error;
  double max_slowdown = kDefaultMaxSlowdown;
  Plant plant;
};

// A fraction between 0 and 1; percents are the usual mistake.
std::optional<double> fraction(const char* option, const std::string& text, Errors& errors) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && value > 0 && value < 1) return value;
  errors.push_back({"<command line>", option, fmt::format("is \"{}\"", text),
                    "a fraction above 0 and below 1, like 0.05 for 5 %", ""});
  return std::nullopt;
}

// "gate_up=8%", "attention (forward)=0.08".
Plant plant_of(const std::string& text, Errors& errors) {
  const std::size_t equals = text.rfind('=');
  std::string share = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool percent = !share.empty() && share.back() == '%';
  if (percent) share.pop_back();
  double value = 0;
  const auto [end, error] = std::from_chars(share.data(), share.data() + share.size(), value);
  if (percent) value /= 100;
  if (equals > 0 && error == std::errc() && end == share.data() + share.size() && value > 0 && value <= 10) {
    return {text.substr(0, equals), value};
  }
  errors.push_back({"<command line>", "--plant", fmt::format("is \"{}\"", text),
                    "KERNEL=SHARE, like gate_up=8% or \"attention (forward)=0.08\"", ""});
  return {};
}

void check_combinations(const ValidateArguments& options, Errors& errors) {
  const auto fault = [&](const char* option, const char* message, const char* expected) {
    errors.push_back({"<command line>", option, message, expected, ""});
  };
  if (!options.max_slowdown.empty() && options.baseline.empty()) {
    fault("--max-slowdown", "limits nothing without a baseline", "--baseline FILE, an earlier run");
  }
  if (options.keep && options.run.device == "host") {
    fault("--keep", "an emulation measures no device", "--device cuda, or no --keep");
  }
  if (options.keep && !options.plant.empty()) {
    fault("--keep", "a run that was slowed down on purpose is no accuracy data", "no --keep beside --plant");
  }
  if (options.run.job != nullptr && options.run.virtual_ranks > 0) {
    fault("--virtual-ranks", "several processes run one rank a GPU", "one process, or no --virtual-ranks");
  }
  if (options.run.record.empty()) return;
  if (!options.plant.empty()) fault("--plant", "a stored run cannot be slowed down", "no --plant beside --record");
  if (options.run.reduced) fault("--reduced", "a stored run is reduced already", "no --reduced beside --record");
  if (options.keep) fault("--keep", "a stored run is kept already", "no --keep beside --record");
  if (options.run.virtual_ranks > 0) {
    fault("--virtual-ranks", "a stored run has the ranks that it has", "no --virtual-ranks beside --record");
  }
}

Expected<Input> read_input(const ValidateArguments& options) {
  Input input;
  Errors errors;
  check_combinations(options, errors);
  if (!options.max_error.empty()) input.max_error = fraction("--max-error", options.max_error, errors);
  if (!options.max_slowdown.empty()) {
    input.max_slowdown = fraction("--max-slowdown", options.max_slowdown, errors).value_or(kDefaultMaxSlowdown);
  }
  if (!options.plant.empty()) input.plant = plant_of(options.plant, errors);
  Expected<std::unique_ptr<StudyEntry>> asked = read_entry(options.run.entry);
  if (asked) {
    input.asked = std::move(*asked);
  } else {
    append(errors, asked.error());
  }
  if (input.asked && options.run.virtual_ranks > 0 && !options.run.reduced && options.run.record.empty() &&
      options.run.virtual_ranks != input.asked->found.study_case->gpus) {
    errors.push_back({"<command line>", "--virtual-ranks", fmt::format("is {}", options.run.virtual_ranks),
                      fmt::format("{}, the study's GPUs, or --reduced", input.asked->found.study_case->gpus), ""});
  }
  const auto read = [&](const std::string& file, std::optional<KeptRun>& into) {
    if (file.empty()) return;
    Expected<KeptRun> run = read_kept_run(file);
    if (run) {
      into = std::move(*run);
    } else {
      append(errors, run.error());
    }
  };
  read(options.run.record, input.record);
  read(options.baseline, input.baseline);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return input;
}

// A run, what was predicted for it, and what follows.
struct Outcome {
  ValidationReport report;
  DoubleTimeline timeline;
};

Expected<Outcome> compare(const ValidateArguments& options, const Input& input, const PreparedRun& prepared,
                          const KeptRun& run) {
  const CaseSetup& setup = *prepared.setup;
  const Prediction prediction = predict_run(setup, prepared.planned);
  // A kept run holds its record below the key of that name.
  const bool bare = !options.run.record.empty() && run.study.is_null();
  const std::string file = options.run.record.empty() ? "this run" : options.run.record;
  Errors errors = record_faults(prediction, run.record, {file, bare ? "" : "/record"});
  if (input.baseline) {
    for (InputError error : baseline_faults(run.record, input.baseline->record, options.baseline)) {
      if (!input.baseline->study.is_null()) error.path = "/record" + error.path;
      errors.push_back(std::move(error));
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));

  Outcome outcome;
  ValidationReport& report = outcome.report;
  std::optional<ComposedStep> composed;
  if (run.record.placement == RankPlacement::kVirtual) {
    composed.emplace(compose_step(setup, prediction, run.record, kMeasuredConfidence));
  }
  const ComposedStep* step = composed ? &*composed : nullptr;
  report.comparison = compare_run(prediction, run.record, step);
  if (run.origin != "measured") {
    report.comparison.remarks.insert(
        report.comparison.remarks.begin(),
        run.origin.empty()
            ? "a bare record: its file does not say whether a device was measured"
            : fmt::format("this run is {}, not measured on a device: its times say nothing about one", run.origin));
  }
  report.layout = degrees_text(prepared.degrees);
  report.calibration = setup.kernels.description();
  report.max_error = input.max_error;
  report.max_slowdown = input.max_slowdown;
  gate_numerics(report.comparison, report.gates);
  if (input.max_error) gate_prediction(report.comparison, *input.max_error, report.gates);
  if (input.baseline) {
    report.baseline = options.baseline;
    report.baseline_date = input.baseline->record.identity.date;
    gate_slowdown(run.record, input.baseline->record, input.max_slowdown, report.gates);
  }
  outcome.timeline = double_timeline(prediction, run.record, step);
  return outcome;
}

std::string trace_text(const Outcome& outcome) {
  std::ostringstream out;
  const Comparison& of = outcome.report.comparison;
  write_double_trace(out, {of.identity.study_case, of.strategy, of.placement == RankPlacement::kVirtual},
                     outcome.timeline);
  return out.str();
}

// Into the folder of kept runs, beside those of the same day.
void keep(const ValidateArguments& options, const KeptRun& run) {
  const RunIdentity& identity = run.record.identity;
  const std::string name = plain_file_name(
      fmt::format("{}-{}-{}-{}x{}-{}-{:016x}", identity.study, identity.study_case, identity.strategy, run.record.ranks,
                  to_string(run.record.placement), identity.date, identity.fingerprint));
  const std::string folder = data_directory() + "/validate/data/runs";
  std::filesystem::create_directories(folder);
  const std::string file = unused_json_file(folder, name);
  write_file(file, "LONGHAUL_DATA", kept_run_text(run));
  say(options.run.entry.global, "kept: " + file);
}

void write_outputs(const ValidateArguments& options, const Outcome& outcome, const KeptRun& run) {
  const ValidationReport& report = outcome.report;
  if (options.keep) keep(options, run);  // first: what was measured is lost by no report that cannot be written
  if (!options.out.empty()) {
    OutputFolder output(options.out);
    output.add("validation.json", results_text(validation_json(report)));
    output.add("validation.md", validation_markdown(report));
    output.add("junit.xml", validation_junit(report));
    output.add("timelines.trace.json", trace_text(outcome));
    if (options.run.record.empty()) output.add("run-record.json", kept_run_text(run));
    output.commit();
  }
  if (!options.junit.empty()) write_file(options.junit, "--junit", validation_junit(report));
  if (!options.markdown.empty()) write_file(options.markdown, "--markdown", validation_markdown(report));
}

// A run that a fault ended: what was measured before is kept, the fault is the one line.
int ended_early(const ValidateArguments& options, const KeptRun& run) {
  const RunFailure& failure = run.record.failure;
  std::string kept;
  if (!options.out.empty() && options.run.record.empty()) {
    OutputFolder output(options.out);
    output.add("run-record.json", kept_run_text(run));
    output.commit();
    kept = fmt::format("; what was measured before stands in {}/run-record.json", options.out);
  }
  const int code = cannot(fmt::format("the run ended early ({}): {}{}{}", failure.kind, failure.message,
                                      failure.op.empty() ? "" : ", at " + failure.op, kept));
  // What still runs on the GPU would be waited for by destructors, and nothing more can be trusted there.
  const bool gone = failure.kind != "memory" && failure.kind != "unsupported" && options.run.device == "cuda" &&
                    options.run.record.empty();
  if (gone) {
    if (options.run.job != nullptr) options.run.job->leave(code);
    end_now(code);
  }
  return code;
}

int finish(const ValidateArguments& options, const Input& input, const PreparedRun& prepared, const KeptRun& run) {
  if (!run.record.failure.kind.empty()) return ended_early(options, run);
  const Expected<Outcome> outcome = compare(options, input, prepared, run);
  if (!outcome) {
    // A fresh run is not lost because its baseline does not match.
    if (options.keep) keep(options, run);
    if (options.run.record.empty() && !options.out.empty()) {
      OutputFolder output(options.out);
      output.add("run-record.json", kept_run_text(run));
      output.commit();
    }
    return wrong_input(outcome.error());
  }
  write_outputs(options, *outcome, run);
  const ValidationReport& report = outcome->report;
  const Format format = options.run.entry.global.format();
  if (format == Format::kJson) print(results_text(validation_json(report)));
  if (format == Format::kCsv) print(validation_csv(report));
  if (format == Format::kTable) print(validation_text(report));
  return passes(report) ? kExitDone : kExitFailed;
}

// A hang before the run itself, of the undistributed step: the process ends without the destructors that would wait.
Expected<FreshRun> run_fresh(const StudyEntry& asked, const ValidateOptions& options, ReferenceCache& cache) {
  try {
    return run_on_this_machine(asked, options, cache);
  } catch (const DeviceFault& fault) {
    const bool others_wait = options.job != nullptr && options.job->busy();
    if (fault.abandoned() && !others_wait) end_now(cannot(fault.what()));
    throw;
  }
}

int run_one(const ValidateArguments& options, ReferenceCache& cache) {
  const Expected<Input> input = read_input(options);
  if (!input) return wrong_input(input.error());
  if (!options.out.empty()) probe_output_folder(options.out);
  if (input->record) {
    const Expected<Prepared> prepared = prepare_recorded(*input->asked, *input->record, options.run);
    if (!prepared) return wrong_input(prepared.error());
    return finish(options, *input, **prepared, *input->record);
  }
  if (options.run.device == "cuda") {
    if (const auto missing = missing_for_gpu()) return cannot(*missing);
  }
  ValidateOptions run = options.run;
  run.plant = input->plant;
  const Expected<FreshRun> fresh = run_fresh(*input->asked, run, cache);
  if (!fresh) return wrong_input(fresh.error());
  return finish(options, *input, *fresh->prepared, fresh->run);
}

// Every entry of the study, or of the case that was asked for, each in a folder of its own.
Expected<std::vector<ValidateArguments>> all_entries(const ValidateArguments& options) {
  Errors errors;
  const auto one_alone = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    errors.push_back({"<command line>", option, "is of one strategy", "--strategy LABEL beside it", ""});
  };
  one_alone("--record", options.run.record);
  one_alone("--baseline", options.baseline);
  one_alone("--junit", options.junit);
  one_alone("--markdown", options.markdown);
  const Expected<Study> study = read_study(options.run.entry.study, study_options(options.run.entry.global.seed));
  if (!study) append(errors, study.error());
  std::vector<ValidateArguments> entries;
  if (study) {
    std::vector<std::string> cases;
    for (const StudyCase& one : study->cases) {
      cases.push_back(one.name);
      if (!options.run.entry.case_name.empty() && one.name != options.run.entry.case_name) continue;
      for (const StrategyEntry& entry : one.strategies) {
        ValidateArguments single = options;
        single.run.entry.strategy = entry.label;
        single.run.entry.case_name = one.name;
        if (!options.out.empty()) {
          single.out = (std::filesystem::path(options.out) / plain_file_name(one.name + "-" + entry.label)).string();
        }
        entries.push_back(std::move(single));
      }
    }
    if (entries.empty()) {
      const std::string& name = options.run.entry.case_name;
      errors.push_back({"<command line>", "--case", fmt::format("the study has no case \"{}\"", name),
                        fmt::format("one of {}", fmt::join(cases, ", ")), nearest_name(name, cases)});
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return entries;
}

std::string entry_name(const ValidateArguments& options) {
  return fmt::format("{} {}", options.run.entry.case_name, options.run.entry.strategy);
}

// What each run would take on the GPU that the study names.
int plan_runs(const std::vector<ValidateArguments>& entries) {
  double total = 0;
  std::string text;
  for (const ValidateArguments& options : entries) {
    const Expected<std::unique_ptr<StudyEntry>> asked = read_entry(options.run.entry);
    if (!asked) return wrong_input(asked.error());
    const Expected<RunCost> cost = cost_of_run(**asked, options.run);
    if (!cost) return wrong_input(cost.error());
    text += fmt::format(
        "{:<40} step {:7.3f} s, timed steps {:6.1f} s, numbers {:5.1f} s ({}), "
        "device memory {:6.1f} GB\n",
        entry_name(options), cost->step_seconds, cost->run_seconds, cost->numerics_seconds,
        cost->double_precision ? "double precision" : "undistributed and sampled rows",
        static_cast<double>(cost->device_bytes) * 1e-9);
    total += cost->run_seconds + cost->numerics_seconds;
  }
  print(text + fmt::format("{} runs, about {:.0f} s by prediction; numbers are a guess, start and plans of libraries "
                           "are not counted\n",
                           entries.size(), total));
  return kExitDone;
}

// One after another; a run that cannot be done does not keep the others from it.
int run_entries(const ValidateArguments& given) {
  const Expected<ReferenceChoice> reference = reference_choice(given.reference);
  if (!reference) return wrong_input(reference.error());
  ValidateArguments options = given;
  options.run.reference = *reference;
  ReferenceCache cache;
  cache.choice = *reference;
  if (!options.run.entry.strategy.empty() && !options.plan) return run_one(options, cache);
  Expected<std::vector<ValidateArguments>> entries = std::vector<ValidateArguments>{options};
  if (options.run.entry.strategy.empty()) entries = all_entries(options);
  if (!entries) return wrong_input(entries.error());
  if (options.plan) return plan_runs(*entries);
  if (!options.out.empty()) std::filesystem::create_directories(options.out);
  int failed = 0, impossible = 0, wrong = 0;
  std::string summary;
  for (const ValidateArguments& one : *entries) {
    cache.note = [&](const std::string& what) {
      say(options.run.entry.global, fmt::format("{}: {}", entry_name(one), what));
    };
    int code = kExitCannot;
    try {
      code = run_one(one, cache);
    } catch (const LimitError& error) {
      if (options.run.job != nullptr && options.run.job->busy()) throw;
      cannot(error.what());
    }
    failed += code == kExitFailed ? 1 : 0;
    impossible += code == kExitCannot ? 1 : 0;
    wrong += code == kExitWrongInput ? 1 : 0;
    const char* const words[] = {"passes", "FAILS", "is wrong input", "could not run"};
    summary += fmt::format("{} {}\n", entry_name(one), words[code]);
  }
  say(options.run.entry.global, summary);
  if (wrong > 0) return kExitWrongInput;
  return impossible > 0 ? kExitCannot : failed > 0 ? kExitFailed : kExitDone;
}

// In one process, or as the process of a job that mpirun or srun made of this one.
int run_validate(const ValidateArguments& options) {
  const std::unique_ptr<ProcessJob> job = open_process_job();
  if (!job) return run_entries(options);
  return run_in_job(*job, [&](JobLead& lead) {
    ValidateArguments all = options;
    all.run.job = &lead;
    return run_entries(all);
  });
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  auto options = std::make_shared<ValidateArguments>();
  CLI::App* command =
      app.add_subcommand("validate", "Run a schedule for real and compare with the prediction and an earlier run");
  command->add_flag("--reduced", options->run.reduced, "Fewer ranks, layers and tokens, so that it fits this machine");
  command->add_option("--device", options->run.device, "cuda, or host: a very small emulation on the CPU")
      ->check(CLI::IsMember({"cuda", "host"}))
      ->capture_default_str();
  command
      ->add_option("--virtual-ranks", options->run.virtual_ranks,
                   "So many ranks on one GPU: kernels are measured, communication is the model's")
      ->check(CLI::Range(1, 64));
  command->add_option("--record", options->run.record, "A stored run in place of a device: compare and gate only");
  command->add_option("--baseline", options->baseline, "An earlier run of the same schedule to gate against");
  command->add_option("--max-error", options->max_error, "Gate: largest prediction error, a fraction (0.1 is 10 %)");
  command->add_option("--max-slowdown", options->max_slowdown,
                      "Gate: largest slow-down against the baseline, a fraction (default 0.04)");
  command->add_option("--repeats", options->run.repeats, "Timed repeats (default 20; 3 on the host)")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--warmups", options->run.warmups, "Repeats before those")
      ->check(CLI::Range(0, 1'000))
      ->capture_default_str();
  command->add_option("--out", options->out,
                      "Folder for validation.json, validation.md, junit.xml, the trace and the run's record");
  command->add_option("--junit", options->junit, "File for the gates as JUnit XML");
  command->add_option("--markdown", options->markdown, "File for the summary as Markdown");
  command
      ->add_option("--reference", options->reference,
                   "What numbers are compared with: auto, fp64, undistributed, or none for times alone")
      ->capture_default_str();
  command->add_option("--plant", options->plant,
                      "Slow one kernel down on purpose, KERNEL=SHARE (gate_up=8%): does the gate find it?");
  command->add_flag("--plan", options->plan, "Say what the runs would take by prediction, and run nothing");
  command->add_flag("--keep", options->keep, "Keep the run in validate/data/runs, for longhaul accuracy --table runs");
  add_entry_options(*command, options->run.entry,
                    "longhaul validate four-way-h200 --strategy flashcp --reduced --baseline last.json --out out",
                    true);
  command->callback([&action, options] { action = [options] { return run_validate(*options); }; });
}

}  // namespace longhaul
