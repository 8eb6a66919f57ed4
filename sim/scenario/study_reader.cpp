#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "sim/cluster/cluster.h"
#include "sim/core/data_files.h"
#include "sim/core/printable.h"
#include "sim/scenario/layout_check.h"
#include "sim/scenario/resolved.h"
#include "sim/scenario/section_reader.h"
#include "sim/scenario/study.h"
#include "sim/workload/model_reader.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxGpus = 1 << 20;

// The keys of a case as they stand in the file: those of the case itself before those of the top level.
class CaseKeys {
 public:
  CaseKeys(Placed top, Placed own, std::string file, Errors& errors)
      : top_(std::move(top)), own_(std::move(own)), file_(std::move(file)), errors_(&errors) {}

  const std::string& file() const { return file_; }
  Errors& errors() { return *errors_; }

  Placed top(const char* key) const { return child(top_, key); }
  Placed own(const char* key) const { return child(own_, key); }
  Placed find(const char* key) const {
    const Placed found = own(key);
    return found.value != nullptr ? found : top(key);
  }
  // Absence is an error, placed in the case if there is one.
  Placed required(const char* key, const char* expected) {
    const Placed found = find(key);
    const Placed& place = own_.value != nullptr ? own_ : top_;
    if (found.value == nullptr) {
      errors_->push_back({file_, fmt::format("{}/{}", place.path, key), "is missing", expected, ""});
    }
    return found;
  }

 private:
  static Placed child(const Placed& parent, const char* key) {
    if (parent.value == nullptr || !parent.value->is_object()) return {};
    const auto found = parent.value->find(key);
    if (found == parent.value->end()) return {};
    return {&*found, fmt::format("{}/{}", parent.path, key)};
  }

  Placed top_;
  Placed own_;
  std::string file_;
  Errors* errors_;
};

struct ReadCase {
  StudyCase study_case;
  Json resolved;
};

void read_topology_of(CaseKeys& keys, StudyCase& study_case, CaseReferences& references) {
  const Placed placed = keys.required("topology", "a shipped topology's name, a path, or an object");
  if (placed.value == nullptr) return;
  Expected<Topology> topology = parse_topology(*placed.value, keys.file(), placed.path, data_directory());
  if (!topology) {
    set_named_at(topology.error(), 0, keys.file(), placed.path);
    append(keys.errors(), topology.error());
    return;
  }
  study_case.topology = std::move(*topology);
  references.topology = resolved_reference(DataKind::kTopology, *placed.value, keys.file());
}

// The count itself; with a topology, whether it has that many. 0 if it is faulty.
void read_gpus(CaseKeys& keys, StudyCase& study_case) {
  const Placed placed = keys.required("gpus", "the number of GPUs");
  if (placed.value == nullptr) return;
  const Json holder = {{"gpus", *placed.value}};
  JsonReader reader(holder, keys.file(), placed.path.substr(0, placed.path.rfind('/')), keys.errors());
  const auto gpus = reader.integer("gpus", 1, kMaxGpus);
  if (!gpus) return;
  study_case.gpus = *gpus;
  if (study_case.topology.gpus_per_node == 0) return;
  const auto cluster = make_cluster(study_case.topology, static_cast<int>(*gpus), keys.file(), placed.path);
  if (cluster) return;
  append(keys.errors(), cluster.error());
}

void read_model_of(CaseKeys& keys, StudyCase& study_case, CaseReferences& references) {
  const Placed placed = keys.required("model", "a shipped model's name, the path of a config.json, or an object");
  if (placed.value == nullptr) return;
  const auto model = find_model(*placed.value, keys.file(), placed.path, keys.errors());
  if (!model) return;
  study_case.model = *model;
  references.model = resolved_reference(DataKind::kModel, *placed.value, keys.file());
}

void read_documents_of(CaseKeys& keys, const StudyOptions& options, StudyCase& study_case) {
  const Placed placed = keys.required("documents", "an object with \"lengths\", \"explicit\" or \"file\"");
  if (placed.value == nullptr) return;
  auto documents = read_documents(*placed.value, keys.file(), placed.path, keys.errors());
  if (!documents) return;
  study_case.documents = std::move(*documents);
  if (options.seed) study_case.documents.seed = *options.seed;
}

// Sequences must fill whole micro-batches whatever the layout, and those of all replicas where dp is given.
void check_fill(CaseKeys& keys, const StudyCase& study_case) {
  if (study_case.documents.sequences == 0) return;  // faulty documents
  for (const StrategyEntry& entry : study_case.strategies) {
    const auto fault = fill_error(study_case.documents.sequences, entry.layout.degrees.dp.value_or(1),
                                  entry.micro_batch_sequences, entry);
    if (fault) keys.errors().push_back(*fault);
  }
}

void read_baseline(CaseKeys& keys, StudyCase& study_case) {
  std::vector<std::string> labels;
  bool all_valid = true;
  for (const StrategyEntry& entry : study_case.strategies) {
    all_valid = all_valid && entry.valid;
    if (entry.valid && std::find(labels.begin(), labels.end(), entry.label) == labels.end()) {
      labels.push_back(entry.label);
    }
  }
  const Placed placed = keys.find("baseline");
  if (placed.value == nullptr) {
    if (!labels.empty()) study_case.baseline = labels.front();
  } else if (!placed.value->is_string()) {
    keys.errors().push_back({keys.file(), placed.path, fmt::format("is {}", describe(*placed.value)), "a string", ""});
  } else {
    study_case.baseline = placed.value->get<std::string>();
    if (labels.empty() || std::find(labels.begin(), labels.end(), study_case.baseline) != labels.end()) return;
    // A label that stands in a faulty entry is no second fault.
    const auto same = [&](const StrategyEntry& entry) { return entry.label == study_case.baseline; };
    const auto& entries = study_case.strategies;
    if (!all_valid && std::any_of(entries.begin(), entries.end(), same)) return;
    keys.errors().push_back(
        {keys.file(), placed.path, fmt::format("\"{}\" names no strategy of the study", echoed(study_case.baseline)),
         fmt::format("one of {}", fmt::join(labels, ", ")), nearest_name(study_case.baseline, labels)});
  }
}

// Nothing while the topology is faulty.
std::optional<GpuGeneration> generation_of(const StudyCase& study_case) {
  if (study_case.topology.gpus_per_node == 0) return std::nullopt;
  return study_case.topology.device.generation;
}

ReadCase read_case(CaseKeys keys, const std::string& name, const StudyOptions& options) {
  ReadCase result;
  StudyCase& study_case = result.study_case;
  study_case.name = name;
  CaseReferences references;
  read_topology_of(keys, study_case, references);
  read_gpus(keys, study_case);
  read_model_of(keys, study_case, references);
  read_objective(keys.find("objective"), keys.file(), study_case.objective, keys.errors());
  read_documents_of(keys, options, study_case);
  read_overlap(keys.find("overlap"), keys.file(), study_case.overlap, keys.errors());
  read_attention_library_name(keys.find("attention_library"), keys.file(), generation_of(study_case),
                              study_case.attention_library, keys.errors());
  study_case.training.zero_stage = 3;
  study_case.training.recompute = Recompute::kFull;
  read_training(keys.top("training"), keys.file(), study_case.training, keys.errors());
  read_training(keys.own("training"), keys.file(), study_case.training, keys.errors());
  StrategyEntry defaults;
  read_layout(keys.find("layout"), keys.file(), study_case.gpus, defaults.layout, keys.errors());
  defaults.micro_batch_sequences = study_case.training.micro_batch_sequences;
  study_case.strategies =
      read_strategies(keys.required("strategies", "a list of strategies"), keys.file(),
                      {study_case.gpus, generation_of(study_case)}, defaults, options, keys.errors());
  // A row that names the case's own library is as one that names none: equal steps stay equal.
  for (StrategyEntry& entry : study_case.strategies) {
    if (entry.attention_library == study_case.attention_library) entry.attention_library.clear();
  }
  read_baseline(keys, study_case);
  check_fill(keys, study_case);
  if (keys.errors().empty()) result.resolved = resolved_case(study_case, defaults.layout, references);
  return result;
}

// A name becomes part of file names: letters, digits and . _ - only, not starting with a dot.
std::string checked_name(JsonReader& reader) {
  const std::string name = reader.required_string("name").value_or("");
  const bool given = reader.has("name") && !name.empty();
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (given && (name.front() == '.' || !std::all_of(name.begin(), name.end(), allowed) || name.size() > 100)) {
    reader.add_error("name", fmt::format("is \"{}\"", echoed(name)),
                     "up to 100 letters, digits and . _ -, no leading dot");
  } else if (const Json* value = reader.find("name"); value != nullptr && *value == "") {
    reader.add_error("name", "is empty", "up to 100 letters, digits and . _ -, no leading dot");
  }
  return name;
}

// Keys of the top level are read once for every case: their faults are kept once.
Errors without_repeats(const Errors& errors) {
  std::set<std::string> seen;
  Errors kept;
  for (const InputError& error : errors) {
    if (seen.insert(error.to_string()).second) kept.push_back(error);
  }
  return kept;
}

void check_case_names(const std::vector<ReadCase>& cases, const std::string& file, Errors& errors) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (cases[j].study_case.name.empty() || cases[j].study_case.name != cases[i].study_case.name) continue;
      errors.push_back({file, fmt::format("/cases/{}/name", i),
                        fmt::format("\"{}\" is the name of case {} too", cases[i].study_case.name, j),
                        "a name of its own", ""});
      break;
    }
  }
}

std::vector<ReadCase> read_cases(const Json& value, const std::string& file, const std::string& study_name,
                                 const StudyOptions& options, Errors& errors) {
  const Placed top{&value, ""};
  std::vector<ReadCase> cases;
  const auto list = value.find("cases");
  if (list == value.end()) {
    cases.push_back(read_case(CaseKeys(top, {}, file, errors), study_name, options));
    return cases;
  }
  if (!list->is_array() || list->empty()) {
    errors.push_back({file, "/cases", fmt::format("is {}", describe(*list)), "a list of cases", ""});
    return cases;
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Placed own{&(*list)[i], fmt::format("/cases/{}", i)};
    JsonReader reader(*own.value, file, own.path, errors);
    for (const std::string& key : case_keys()) reader.find(key);
    if (!own.value->is_object()) continue;
    const std::string name = checked_name(reader);
    reader.finish();
    cases.push_back(read_case(CaseKeys(top, own, file, errors), name, options));
  }
  check_case_names(cases, file, errors);
  return cases;
}

Json resolved_study(const std::string& name, const std::vector<ReadCase>& cases, bool has_cases) {
  Json resolved = {{"schema", "study/1"}, {"name", name}};
  if (!has_cases) {
    resolved.update(cases.front().resolved);
    return resolved;
  }
  Json list = Json::array();
  for (const ReadCase& read : cases) {
    Json one = {{"name", read.study_case.name}};
    one.update(read.resolved);
    list.push_back(std::move(one));
  }
  resolved["cases"] = std::move(list);
  return resolved;
}

}  // namespace

const std::vector<std::string>& case_keys() {
  static const std::vector<std::string> keys = {
      "attention_library", "baseline", "documents",  "gpus",     "layout",  "model", "name",
      "objective",         "overlap",  "strategies", "topology", "training"};
  return keys;
}

const std::vector<std::string>& study_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all = case_keys();
    all.insert(all.end(), {"cases", "schema"});
    std::sort(all.begin(), all.end());
    return all;
  }();
  return keys;
}

Expected<Study> parse_study(const Json& value, const std::string& file, const StudyOptions& options) {
  Errors errors;
  JsonReader reader(value, file, "", errors);
  if (!value.is_object()) return tl::unexpected(errors);
  for (const std::string& key : study_keys()) reader.find(key);
  reader.required_choice("schema", {"study/1"});
  Study study;
  study.file = file;
  study.name = checked_name(reader);
  reader.finish();
  std::vector<ReadCase> cases = read_cases(value, file, study.name, options, errors);
  if (!errors.empty()) return tl::unexpected(without_repeats(errors));
  study.resolved = resolved_study(study.name, cases, value.contains("cases"));
  for (ReadCase& read : cases) study.cases.push_back(std::move(read.study_case));
  return study;
}

Expected<Study> read_study(const std::string& reference, const StudyOptions& options) {
  Errors errors;
  const auto file = resolve_data_file(DataKind::kStudy, reference, "", "", errors);
  if (!file) {
    errors.front().file = reference;
    return tl::unexpected(errors);
  }
  const Expected<Json> value = read_json_file(*file);
  if (!value) return tl::unexpected(value.error());
  return parse_study(*value, *file, options);
}

}  // namespace longhaul
