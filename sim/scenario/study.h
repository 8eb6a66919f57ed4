// A study as read from a file: what to compare, on which cluster, with which documents, all defaults filled in.
//
// A study holds one or more cases; each names its topology, GPUs, model, objective, documents, training options and
// strategies. Keys at the top level hold for every case; `training` and `layout` of a case are laid over those of the
// top level key by key, every other key of a case replaces the one of the top level.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/core/json.h"
#include "sim/workload/documents.h"
#include "sim/workload/model.h"
#include "sim/workload/training.h"

namespace longhaul {

// Degrees that the user fixed; the rest follows from the GPU count and the strategy, or is searched when `best`.
struct LayoutRequest {
  bool best = false;
  Layout degrees;
};

struct StrategyEntry {
  std::string name;   // a known strategy
  std::string label;  // unique in its case; the name unless given
  LayoutRequest layout;
  std::int64_t micro_batch_sequences = 1;
  bool overrides_micro_batch = false;  // the entry's own value: its baseline runs at the same one
  Json options = Json::object();       // policy keys as given, for the strategy to read and check
  std::string file;                    // where the entry stands, for errors found later
  std::string path;
};

struct StudyCase {
  std::string name;  // the study's own name when it has no cases
  Json topology;     // as given: a shipped name, a path, or an inline object
  std::string topology_file;  // the file that the reference stands in, and where
  std::string topology_path;
  std::int64_t gpus = 0;
  ModelShape model;
  Objective objective;
  DocumentSource documents;
  Training training;  // a study's defaults: ZeRO 3, full recompute, micro-batch 1, the whole step
  std::vector<StrategyEntry> strategies;
  std::string baseline;  // a label of this case
};

struct Study {
  std::string name;
  std::string file;
  std::vector<StudyCase> cases;
  Json resolved;  // the study with every default filled in; reading it again gives the same study
};

struct StudyOptions {
  std::vector<std::string> known_strategies;
  std::optional<std::int64_t> seed;  // replaces documents.seed of every case (--seed)
};

// Top-level, case, training, layout, objective and strategy-entry keys, each sorted; the JSON Schema has exactly these.
const std::vector<std::string>& study_keys();
const std::vector<std::string>& case_keys();
const std::vector<std::string>& training_keys();
const std::vector<std::string>& layout_keys();
const std::vector<std::string>& objective_keys();

// `reference` is a shipped study's name or a path. Every fault of the study and of the files that it names is in the
// errors, each once.
Expected<Study> read_study(const std::string& reference, const StudyOptions& options);
Expected<Study> parse_study(const Json& value, const std::string& file, const StudyOptions& options);

// The errors of reading any input file (study, topology, model or lengths, told apart by content); empty if it is
// valid. For `longhaul check`.
Errors check_input_file(const std::string& file, const StudyOptions& options);

}  // namespace longhaul
