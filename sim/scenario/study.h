// A study as read from a file: what to compare, on which cluster, with which documents, all defaults filled in.
//
// A study holds one or more cases; each names its topology, GPUs, model, objective, documents, training options and
// strategies. Keys at the top level hold for every case; `training` of a case is laid over that of the top level key by
// key, every other key of a case replaces the one of the top level. Paths are relative to the study's folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"
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
  std::string attention_library;       // whose kernels attend in this row; empty: the case's
  Json options = Json::object();       // policy keys as given, for the strategy to read and check
  std::string file;                    // where the entry stands, for errors found later
  std::string path;
  bool valid = true;  // false only while a faulty study is read: its label is not offered to the user
};

// How much what runs side by side slows each other down, of what the device's calibration says.
struct Overlap {
  bool slowdown = true;  // false: everything takes its time alone
  double scale = 1;      // what if the added times were this many times as long
  double added() const { return slowdown ? scale : 0; }
};

struct StudyCase {
  std::string name;  // the study's own name when it has no cases
  Topology topology;
  std::int64_t gpus = 0;  // checked against the topology: make_cluster takes it
  ModelShape model;
  Objective objective;
  DocumentSource documents;
  Overlap overlap;
  std::string attention_library = "cudnn";  // whose kernels attend (sim/cost/attention_library.h)
  Training training;                        // a study's defaults: ZeRO 3, full recompute, micro-batch 1, the whole step
  std::vector<StrategyEntry> strategies;
  std::string baseline;  // a label of this case; the first entry's unless given
};

struct Study {
  std::string name;
  std::string file;
  std::vector<StudyCase> cases;
  // The study with every default filled in and files that were given by path taken in, so that reading it again gives
  // the same study. Shipped names stay names.
  Json resolved;
};

struct StudyOptions {
  std::vector<std::string> known_strategies;
  std::optional<std::int64_t> seed;  // replaces documents.seed of every case (--seed)
  // Checks the policy options of one entry, so that their faults are listed with all others; may be empty.
  std::function<void(const StrategyEntry&, Errors&)> check_strategy;
};

// Keys of the top level, of a case, and of the objects below them, each sorted; workloads/study.schema.json has exactly
// these. A strategy entry may hold other keys besides: its policy options.
const std::vector<std::string>& study_keys();
const std::vector<std::string>& case_keys();
const std::vector<std::string>& training_keys();
const std::vector<std::string>& layout_keys();
const std::vector<std::string>& objective_keys();
const std::vector<std::string>& overlap_keys();
const std::vector<std::string>& strategy_keys();

// `reference` is a shipped study's name or a path. Every fault of the study and of the files that it names is in the
// errors, each once.
Expected<Study> read_study(const std::string& reference, const StudyOptions& options);
Expected<Study> parse_study(const Json& value, const std::string& file, const StudyOptions& options);

}  // namespace longhaul
