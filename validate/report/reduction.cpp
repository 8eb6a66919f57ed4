#include "validate/report/reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/executor/simulate.h"
#include "sim/strategies/registry.h"
#include "sim/study/entry_run.h"
#include "sim/study/setup.h"
#include "validate/report/reduced_study.h"
#include "validate/report/units.h"

namespace longhaul {
namespace {

constexpr int kFewRanks = 4;               // below it a strategy says little: only where nothing else fits
constexpr std::int64_t kLeastTokens = 64;  // a rank; less is no long context of any kind
constexpr int kFirstHalvings = 4;          // of tokens, before the model's width gives way

// How much narrower the model is: divisors of FFN and hidden size, the most of the vocabulary.
struct Width {
  std::int64_t vocab = 0;  // 0: as it is
  std::int64_t ffn = 1, hidden = 1;
};
constexpr Width kWidths[] = {{0, 1, 1},     {32768, 1, 1}, {8192, 1, 1},  {8192, 4, 1},
                             {1024, 16, 1}, {1024, 16, 4}, {1024, 16, 16}};

// What every version is made from.
struct Original {
  const Study* study;
  const StudyCase* study_case;
  const StrategyEntry* entry;
  const MachineAtHand* machine;
  StrategyFamily family;
  Batch batch;
  Degrees degrees;
  std::int64_t micro_batch;
  Json topology;  // null: the study's own
};

std::int64_t sharing(const Degrees& degrees) { return std::int64_t{degrees.cp} * degrees.sp; }

// All degrees of at most `ranks` ranks and one replica, none above the original's.
std::vector<Degrees> smaller_degrees(const Original& from) {
  const int ranks = from.machine->ranks;
  std::vector<Degrees> all;
  for (int pp = from.degrees.pp; pp >= 1; --pp) {
    for (int cp = from.degrees.cp; cp >= 1; --cp) {
      for (int sp = from.degrees.sp; sp >= 1; --sp) {
        if (std::int64_t{pp} * cp * sp <= ranks) all.push_back({pp, cp, sp, 1});
      }
    }
  }
  if (from.family == StrategyFamily::kData) {
    for (int dp = std::min(ranks, from.degrees.dp); dp > 1; --dp) all.push_back({1, 1, 1, dp});
  }
  // Divisors of the original degrees first: they cut documents and heads where it did.
  const auto is_odd = [&](const Degrees& degrees) {
    return from.degrees.pp % degrees.pp != 0 || from.degrees.cp % degrees.cp != 0 || from.degrees.sp % degrees.sp != 0;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Degrees& a, const Degrees& b) {
    return std::pair{is_odd(a), -a.ranks()} < std::pair{is_odd(b), -b.ranks()};
  });
  // A pipeline is one only with two stages, and so on: what the strategy needs at least one of stays above 1.
  const auto is_degenerate = [&](const Degrees& degrees) {
    return (from.degrees.pp > 1 && degrees.pp == 1) || (from.degrees.cp > 1 && degrees.cp == 1) ||
           (from.family == StrategyFamily::kSequence && from.degrees.sp > 1 && degrees.sp == 1);
  };
  all.erase(std::remove_if(all.begin(), all.end(), is_degenerate), all.end());
  return all;
}

std::int64_t stages_of(const Degrees& degrees) { return degrees.pp; }

// Sequences of a step: one micro-batch of each replica; a pipeline is full with two a stage.
std::int64_t sequences_of(const Original& from, const Degrees& degrees, std::int64_t micro_batch) {
  const std::int64_t unit = micro_batch * degrees.dp;
  const auto all = static_cast<std::int64_t>(from.batch.sequences.size());
  const std::int64_t wanted = from.family == StrategyFamily::kPipeline ? 2 * stages_of(degrees) : 1;
  return std::max<std::int64_t>(1, std::min(wanted, all / unit)) * unit;
}

Version make_version(const Original& from, const Degrees& degrees, std::int64_t layers_a_stage,
                     std::int64_t micro_batch, int halvings, const Width& width) {
  const ModelShape& model = from.study_case->model;
  Version version;
  version.topology = from.topology;
  version.degrees = degrees;
  version.layers = std::min(model.layers, layers_a_stage * stages_of(degrees));
  version.vocab = width.vocab > 0 ? std::min(model.vocab, width.vocab) : model.vocab;
  version.ffn = std::max<std::int64_t>(1, model.ffn / width.ffn);
  version.hidden = std::max<std::int64_t>(model.head_dim, model.hidden / width.hidden);
  version.micro_batch = micro_batch;
  version.sequences = sequences_of(from, degrees, micro_batch);
  version.numerator = sharing(degrees);
  version.denominator = sharing(from.degrees) << halvings;
  return version;
}

// Bytes that the fullest GPU holds at its peak.
std::int64_t fullest(const Totals& totals, bool virtual_ranks) {
  std::int64_t bytes = 0;
  for (const RankTotals& rank : totals.ranks) {
    bytes = virtual_ranks ? bytes + rank.peak_bytes : std::max(bytes, rank.peak_bytes);
  }
  return bytes;
}

struct Tried {
  std::int64_t peak_bytes = 0;
  Degrees degrees;
};

// Plans and simulates one step of a study of one case and one entry. The error is why it cannot run.
tl::expected<Tried, std::string> try_study(const Json& json, bool virtual_ranks) {
  const Expected<Study> study = parse_study(json, "reduced study", study_options());
  if (!study) return tl::unexpected(study.error().front().to_string());
  const StudyCase& one = study->cases.front();
  const Expected<CaseSetup> setup = set_up_case(one, study->file);
  if (!setup) return tl::unexpected(setup.error().front().to_string());
  const StrategyEntry& entry = one.strategies.front();
  const tl::expected<Degrees, std::string> degrees = entry_degrees(*setup, entry);
  if (!degrees) return tl::unexpected(degrees.error());
  const Planned planned = plan_entry(*setup, entry, *degrees, 0);
  if (!planned) return tl::unexpected(planned.error());
  return Tried{fullest(simulate(*planned->schedule, setup->cluster, setup->kernels_of(entry)), virtual_ranks),
               *degrees};
}

std::string change_of(std::int64_t value) { return fmt::format("{}", value); }

std::vector<Change> changes_of(const Original& from, const Version& to) {
  const ModelShape& model = from.study_case->model;
  const MachineAtHand& machine = *from.machine;
  std::vector<Change> changes;
  const auto note = [&](const char* what, std::int64_t was, std::int64_t is, std::string why) {
    if (was != is) changes.push_back({what, change_of(was), change_of(is), std::move(why)});
  };
  const std::string memory = fmt::format("{} of memory", bytes_text(static_cast<double>(machine.memory_bytes)));
  if (!to.topology.is_null()) {
    changes.push_back({"device", from.study_case->topology.device.name, machine.device, "the device of this machine"});
  }
  if (to.topology.is_string()) {
    changes.push_back({"topology", from.study_case->topology.name, to.topology.get<std::string>(),
                       "the first shipped one with that device"});
  }
  const std::string ranks = fmt::format("{} {} here", machine.ranks, machine.virtual_ranks ? "virtual ranks" : "GPUs");
  if (from.family == StrategyFamily::kData) {
    note("dp", from.degrees.dp, to.degrees.dp, ranks);
  } else {
    note("dp", from.degrees.dp, to.degrees.dp, "replicas do the same work");
  }
  note("pp", from.degrees.pp, to.degrees.pp, ranks);
  note("cp", from.degrees.cp, to.degrees.cp, ranks);
  note("sp", from.degrees.sp, to.degrees.sp, ranks);
  const int nodes = static_cast<int>(from.study_case->gpus) / std::max(1, from.study_case->topology.gpus_per_node);
  if (nodes > 1 && to.degrees.ranks() <= from.study_case->topology.gpus_per_node) {
    note("nodes", nodes, 1, "the ranks left fit into one: transfers between nodes are not part of this run");
  }
  note("steps", from.study_case->documents.steps, 1, "one step is measured");
  note("micro_batch_sequences", from.micro_batch, to.micro_batch, memory);
  note("sequences", static_cast<std::int64_t>(from.batch.sequences.size()), to.sequences,
       from.family == StrategyFamily::kPipeline ? "two a stage fill the pipeline"
                                                : "one micro-batch shows every kernel");
  const std::int64_t stages = stages_of(to.degrees);
  note(
      "layers", model.layers, to.layers,
      to.layers == stages ? "one a stage: " + memory : fmt::format("{} a stage show every kernel", to.layers / stages));
  if (to.numerator != to.denominator) {
    const bool kept = to.denominator == sharing(from.degrees);
    const auto tokens = [&](std::int64_t all) { return all * to.numerator / to.denominator; };
    note("context_tokens", from.batch.context_tokens, tokens(from.batch.context_tokens),
         kept ? fmt::format("{} tokens a rank are kept", from.batch.context_tokens / sharing(from.degrees))
              : fmt::format("{} tokens a rank of {}: {}", tokens(from.batch.context_tokens) / sharing(to.degrees),
                            from.batch.context_tokens / sharing(from.degrees), memory));
  }
  note("vocab_size", model.vocab, to.vocab, memory);
  note("intermediate_size", model.ffn, to.ffn, memory);
  note("hidden_size", model.hidden, to.hidden, memory);
  return changes;
}

class Search {
 public:
  explicit Search(const Original& from) : from_(from) {}

  std::optional<FittedStudy> run() {
    const std::vector<Degrees> all = smaller_degrees(from_);
    int most = 0;
    for (const Degrees& one : all) most = std::max(most, one.ranks());
    for (const bool few : {false, true}) {
      std::vector<Degrees> degrees;
      std::copy_if(all.begin(), all.end(), std::back_inserter(degrees),
                   [&](const Degrees& one) { return (one.ranks() < std::min(kFewRanks, most)) == few; });
      if (auto found = search(degrees)) return found;
    }
    return std::nullopt;
  }

  const std::string& reason() const { return reason_; }
  std::int64_t least_bytes() const { return least_bytes_; }
  int tried() const { return tried_; }

 private:
  std::optional<FittedStudy> search(const std::vector<Degrees>& degrees) {
    for (const Width& width : kWidths) {
      const bool last = &width == std::end(kWidths) - 1;
      for (int halvings = 0; last || halvings < kFirstHalvings; ++halvings) {
        if (tokens_a_rank() >> halvings < kLeastTokens && halvings > 0) break;
        for (const Degrees& one : degrees) {
          if (auto found = try_layers(one, halvings, width)) return found;
        }
      }
    }
    return std::nullopt;
  }

  std::int64_t tokens_a_rank() const { return from_.batch.context_tokens / sharing(from_.degrees); }

  std::optional<FittedStudy> try_layers(const Degrees& degrees, int halvings, const Width& width) {
    std::vector<std::int64_t> micro_batches = {from_.micro_batch};
    if (from_.micro_batch > 1) micro_batches.push_back(1);
    for (const std::int64_t micro_batch : micro_batches) {
      if (micro_batch * degrees.dp > static_cast<std::int64_t>(from_.batch.sequences.size())) continue;
      // Four layers a stage where two are too few for the strategy's chunks; one where memory is short.
      bool applies = false;
      for (const std::int64_t layers : {2, 1}) {
        const auto outcome = try_one(make_version(from_, degrees, layers, micro_batch, halvings, width), applies);
        if (outcome) return outcome;
      }
      if (applies) continue;
      if (auto outcome = try_one(make_version(from_, degrees, 4, micro_batch, halvings, width), applies))
        return outcome;
    }
    return std::nullopt;
  }

  std::optional<FittedStudy> try_one(const Version& version, bool& applies) {
    ++tried_;
    Json json = version_study(*from_.study, *from_.study_case, *from_.entry, from_.batch, version);
    const auto outcome = try_study(json, from_.machine->virtual_ranks);
    if (!outcome) {
      if (reason_.empty()) reason_ = outcome.error();
      return std::nullopt;
    }
    applies = true;
    least_bytes_ = least_bytes_ == 0 ? outcome->peak_bytes : std::min(least_bytes_, outcome->peak_bytes);
    if (static_cast<double>(outcome->peak_bytes) > kUsablePart * static_cast<double>(from_.machine->memory_bytes)) {
      return std::nullopt;
    }
    return FittedStudy{std::move(json), outcome->degrees, changes_of(from_, version), outcome->peak_bytes, tried_};
  }

  const Original& from_;
  std::string reason_;
  std::int64_t least_bytes_ = 0;
  int tried_ = 0;
};

// The study as it is, where the machine can run it whole.
std::optional<FittedStudy> try_whole(const Original& from) {
  const StudyCase& one = *from.study_case;
  if (one.gpus > from.machine->ranks || one.topology.device.name != from.machine->device || one.documents.steps > 1) {
    return std::nullopt;
  }
  Json json = version_study(*from.study, one, *from.entry, from.batch,
                            {nullptr, from.degrees, one.model.layers, one.model.vocab, one.model.ffn, one.model.hidden,
                             from.micro_batch, static_cast<std::int64_t>(from.batch.sequences.size()), 1, 1});
  const auto outcome = try_study(json, from.machine->virtual_ranks);
  if (!outcome) return std::nullopt;
  if (static_cast<double>(outcome->peak_bytes) > kUsablePart * static_cast<double>(from.machine->memory_bytes)) {
    return std::nullopt;
  }
  return FittedStudy{std::move(json), outcome->degrees, {}, outcome->peak_bytes, 1};
}

}  // namespace

std::string Change::text() const { return fmt::format("{} {} -> {}: {}", what, from, to, why); }

tl::expected<FittedStudy, std::string> reduce_for_machine(const Study& study, const StudyCase& study_case,
                                                          const StrategyEntry& entry, const MachineAtHand& machine) {
  const Strategy& strategy = *find_strategy(entry.name);
  // The layout of "best" would need the whole study simulated: its defaults stand for it.
  const Layout wanted = entry.layout.best ? Layout{} : entry.layout.degrees;
  const auto degrees = resolve_degrees(strategy.family, wanted, static_cast<int>(study_case.gpus),
                                       study_case.topology.gpus_per_node, study_case.model);
  if (!degrees) return tl::unexpected(degrees.error());
  Json topology;
  if (machine.device != study_case.topology.device.name) {
    topology = topology_with(resolved_case_of(study, study_case.name)["topology"], study.file, machine.device);
    if (topology.is_null()) return tl::unexpected("no topology has the device " + machine.device);
  }
  const Original from{&study,          &study_case,
                      &entry,          &machine,
                      strategy.family, make_batch(study_case.documents, study_case.objective, 0),
                      *degrees,        entry.micro_batch_sequences,
                      topology};
  if (auto whole = try_whole(from)) return std::move(*whole);
  Search search(from);
  if (auto found = search.run()) return std::move(*found);
  if (search.least_bytes() == 0) {
    return tl::unexpected(fmt::format("no smaller version of it can run: {}", search.reason()));
  }
  return tl::unexpected(fmt::format("the smallest of {} versions needs {}, of {} only {:.0f} % are planned for",
                                    search.tried(), bytes_text(static_cast<double>(search.least_bytes())),
                                    bytes_text(static_cast<double>(machine.memory_bytes)), 100 * kUsablePart));
}

}  // namespace longhaul
