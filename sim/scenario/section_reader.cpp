#include "sim/scenario/section_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "sim/core/data_files.h"
#include "sim/core/printable.h"
#include "sim/cost/attention_library.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxDegree = 1 << 20;

constexpr std::array kScopeNames = {std::pair{"step", Scope::kStep},
                                    std::pair{"forward-backward", Scope::kForwardBackward},
                                    std::pair{"layers", Scope::kLayers}, std::pair{"attention", Scope::kAttention}};

std::vector<std::string> scope_names() {
  std::vector<std::string> names;
  for (const auto& [name, scope] : kScopeNames) names.emplace_back(name);
  return names;
}

// ["forward"], or both in either order.
void read_passes(JsonReader& reader, Training& training) {
  const Json* passes = reader.find("passes");
  if (passes == nullptr) return;
  const bool forward_only = *passes == Json::array({"forward"});
  if (!forward_only && *passes != Json::array({"forward", "backward"}) &&
      *passes != Json::array({"backward", "forward"})) {
    reader.add_error("passes", fmt::format("is {}", passes->is_array() ? passes->dump() : describe(*passes)),
                     "[\"forward\"] or [\"forward\", \"backward\"]");
    return;
  }
  training.backward = !forward_only;
}

void read_zero_stage(JsonReader& reader, Training& training) {
  const Json* stage = reader.find("zero_stage");
  if (stage == nullptr) return;
  if (stage->is_number_integer() && (*stage == 0 || *stage == 3)) {
    training.zero_stage = stage->get<int>();
  } else {
    reader.add_error("zero_stage", fmt::format("is {}", describe(*stage)), "0 or 3");
  }
}

void read_degree(JsonReader& reader, const char* key, std::int64_t gpus, std::optional<int>& degree) {
  const auto value = reader.integer(key, 1, gpus > 0 ? gpus : kMaxDegree);
  if (value) degree = static_cast<int>(*value);
}

// Tensor and expert parallelism are not built: a degree of 1 says so and is allowed.
void read_later_degree(JsonReader& reader, const char* key, const char* what, std::optional<int>& degree) {
  const auto value = reader.integer(key, 1, kMaxDegree);
  if (value && *value != 1) {
    reader.add_error(key, fmt::format("is {}", *value), fmt::format("1; {} comes with later work", what));
  } else if (value) {
    degree = 1;
  }
}

void check_product(JsonReader& reader, const Layout& layout, std::int64_t gpus) {
  std::int64_t product = 1;
  std::vector<std::string> factors;
  const std::array<std::pair<const char*, const std::optional<int>*>, 4> degrees = {
      {{"pp", &layout.pp}, {"cp", &layout.cp}, {"sp", &layout.sp}, {"dp", &layout.dp}}};
  for (const auto& [name, degree] : degrees) {
    if (!*degree) continue;
    product *= **degree;
    factors.push_back(fmt::format("{} {}", name, **degree));
  }
  if (gpus % product == 0) return;
  reader.errors().push_back({reader.file(), reader.path(),
                             fmt::format("{} make {} ranks", fmt::join(factors, " x "), product),
                             fmt::format("degrees whose product divides the {} GPUs", gpus), ""});
}

// Labels stand in tables and file names.
void check_label(JsonReader& reader) {
  constexpr std::size_t kMaxCharacters = 64;
  const Json* value = reader.find("label");
  if (value == nullptr || !value->is_string()) return;
  const auto& label = value->get_ref<const std::string&>();
  if (label.empty()) {
    reader.add_error("label", "is empty", "a name for the row");
  } else if (printable(label) != label || count_characters(label) > kMaxCharacters) {
    reader.add_error("label", fmt::format("is {}", describe(*value)),
                     fmt::format("at most {} characters, none of them control characters", kMaxCharacters));
  }
}

void read_entry(const Json& value, const Placed& placed, const std::string& file, const EntryContext& context,
                const StudyOptions& options, StrategyEntry& entry, Errors& errors) {
  if (value.is_string()) {
    entry.name = value.get<std::string>();
    entry.label = entry.name;
    const auto& names = options.known_strategies;
    if (std::find(names.begin(), names.end(), entry.name) == names.end()) {
      errors.push_back({file, placed.path, fmt::format("unknown strategy \"{}\"", echoed(entry.name)),
                        fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(entry.name, names)});
    }
    return;
  }
  if (!value.is_object()) {
    errors.push_back({file, placed.path, fmt::format("is {}", describe(value)),
                      "a strategy's name, or an object with \"name\"", ""});
    return;
  }
  JsonReader reader(value, file, placed.path, errors);
  entry.name = reader.required_choice("name", options.known_strategies).value_or("");
  entry.label = reader.string("label").value_or(entry.name);
  check_label(reader);
  if (reader.has("layout")) {
    entry.layout = LayoutRequest{};
    read_layout({&value["layout"], reader.child_path("layout")}, file, context.gpus, entry.layout, errors);
  }
  const auto micro_batch = reader.integer("micro_batch_sequences", 1, kMaxSequences);
  entry.overrides_micro_batch = micro_batch.has_value();
  entry.micro_batch_sequences = micro_batch.value_or(entry.micro_batch_sequences);
  if (reader.has("attention_library")) {
    read_attention_library_name({&value["attention_library"], reader.child_path("attention_library")}, file,
                                context.generation, entry.attention_library, errors);
  }
  for (const auto& [key, option] : value.items()) {
    const auto& known = strategy_keys();
    if (std::find(known.begin(), known.end(), key) == known.end()) entry.options[key] = option;
  }
}

}  // namespace

const std::vector<std::string>& training_keys() {
  static const std::vector<std::string> keys = {
      "dtype", "micro_batch_sequences", "optimizer", "passes", "recompute", "scope", "zero_stage"};
  return keys;
}

const std::vector<std::string>& layout_keys() {
  static const std::vector<std::string> keys = {"cp", "dp", "ep", "pp", "sp", "tp"};
  return keys;
}

const std::vector<std::string>& objective_keys() {
  static const std::vector<std::string> keys = {"block_tokens", "kind"};
  return keys;
}

const std::vector<std::string>& overlap_keys() {
  static const std::vector<std::string> keys = {"scale", "slowdown"};
  return keys;
}

const std::vector<std::string>& strategy_keys() {
  static const std::vector<std::string> keys = {"attention_library", "label", "layout", "micro_batch_sequences",
                                                "name"};
  return keys;
}

void read_training(const Placed& placed, const std::string& file, Training& training, Errors& errors) {
  if (placed.value == nullptr) return;
  JsonReader reader(*placed.value, file, placed.path, errors);
  for (const std::string& key : training_keys()) reader.find(key);
  reader.choice("optimizer", {"adamw"});
  read_zero_stage(reader, training);
  const auto recompute = reader.choice("recompute", {"full", "none"});
  if (recompute) training.recompute = *recompute == "full" ? Recompute::kFull : Recompute::kNone;
  reader.choice("dtype", {"bf16"});
  training.micro_batch_sequences =
      reader.integer("micro_batch_sequences", 1, kMaxSequences).value_or(training.micro_batch_sequences);
  const auto scope = reader.choice("scope", scope_names());
  for (const auto& [name, value] : kScopeNames) {
    if (scope == name) training.scope = value;
  }
  read_passes(reader, training);
  if (!training.backward && (training.scope == Scope::kStep || training.scope == Scope::kForwardBackward)) {
    reader.add_error("passes", "leave out the backward pass", "scope \"layers\" or \"attention\" for that");
  }
  reader.finish();
}

void read_layout(const Placed& placed, const std::string& file, std::int64_t gpus, LayoutRequest& layout,
                 Errors& errors) {
  if (placed.value == nullptr) return;
  if (placed.value->is_string() && *placed.value == "best") {
    layout = LayoutRequest{};
    layout.best = true;
    return;
  }
  if (!placed.value->is_object()) {
    const std::string given = placed.value->is_string() ? placed.value->get<std::string>() : "";
    errors.push_back({file, placed.path, fmt::format("is {}", describe(*placed.value)),
                      "\"best\", or an object of degrees", nearest_name(given, {"best"})});
    return;
  }
  const std::size_t errors_before = errors.size();
  JsonReader reader(*placed.value, file, placed.path, errors);
  for (const std::string& key : layout_keys()) reader.find(key);
  layout.best = false;
  read_later_degree(reader, "tp", "tensor parallelism", layout.degrees.tp);
  read_degree(reader, "pp", gpus, layout.degrees.pp);
  read_degree(reader, "cp", gpus, layout.degrees.cp);
  read_degree(reader, "sp", gpus, layout.degrees.sp);
  read_degree(reader, "dp", gpus, layout.degrees.dp);
  read_later_degree(reader, "ep", "expert parallelism", layout.degrees.ep);
  reader.finish();
  if (gpus > 0 && errors.size() == errors_before) check_product(reader, layout.degrees, gpus);
}

void read_objective(const Placed& placed, const std::string& file, Objective& objective, Errors& errors) {
  if (placed.value == nullptr) return;
  JsonReader reader(*placed.value, file, placed.path, errors);
  const auto kind = reader.required_choice("kind", {"causal-lm", "block-diffusion"});
  const bool diffusion = kind == "block-diffusion";
  objective.kind = diffusion ? ObjectiveKind::kBlockDiffusion : ObjectiveKind::kCausalLm;
  if (diffusion) {
    objective.block_tokens = reader.required_integer("block_tokens", 1, kMaxContextTokens).value_or(1);
  } else if (reader.has("block_tokens") && kind) {
    reader.add_error("block_tokens", "is given for a causal-lm objective", "nothing; blocks belong to block-diffusion");
  }
  reader.finish();
}

void read_overlap(const Placed& placed, const std::string& file, Overlap& overlap, Errors& errors) {
  if (placed.value == nullptr) return;
  constexpr double kMaxScale = 100;
  JsonReader reader(*placed.value, file, placed.path, errors);
  const auto slowdown = reader.choice("slowdown", {"calibrated", "none"});
  overlap.slowdown = slowdown != "none";
  overlap.scale = reader.number("scale", 0, kMaxScale).value_or(overlap.scale);
  if (!overlap.slowdown && reader.has("scale")) {
    reader.add_error("scale", "is given without a slowdown", "nothing; it scales the calibrated slowdown");
  }
  reader.finish();
}

void read_attention_library_name(const Placed& placed, const std::string& file, std::optional<GpuGeneration> generation,
                                 std::string& name, Errors& errors) {
  if (placed.value == nullptr) return;
  const Json holder = {{"attention_library", *placed.value}};
  JsonReader reader(holder, file, placed.path.substr(0, placed.path.rfind('/')), errors);
  const auto given = reader.choice("attention_library", attention_library_names());
  if (!given) return;
  name = *given;
  if (!generation || name == attention_library_names().front()) return;
  const auto library = read_attention_library(name, data_directory());
  if (!library) {
    append(errors, library.error());
  } else if ((*library)->matrix_share.count(*generation) == 0) {
    reader.add_error("attention_library", fmt::format("\"{}\" has no constants for the GPUs of the topology", name),
                     fmt::format("GPUs of a generation among {}", fmt::join(library_generations(**library), ", ")));
  }
}

std::vector<StrategyEntry> read_strategies(const Placed& placed, const std::string& file, const EntryContext& context,
                                           const StrategyEntry& defaults, const StudyOptions& options, Errors& errors) {
  std::vector<StrategyEntry> entries;
  if (placed.value == nullptr) return entries;
  if (!placed.value->is_array() || placed.value->empty()) {
    errors.push_back({file, placed.path, fmt::format("is {}", describe(*placed.value)), "a list of strategies", ""});
    return entries;
  }
  for (std::size_t i = 0; i < placed.value->size(); ++i) {
    StrategyEntry entry = defaults;
    entry.file = file;
    entry.path = fmt::format("{}/{}", placed.path, i);
    const std::size_t errors_before = errors.size();
    read_entry((*placed.value)[i], {nullptr, entry.path}, file, context, options, entry, errors);
    entry.valid = errors.size() == errors_before && !entry.label.empty();
    if (entry.valid && options.check_strategy) options.check_strategy(entry, errors);
    const auto twin = std::find_if(entries.begin(), entries.end(), [&entry](const StrategyEntry& other) {
      return other.label == entry.label && !entry.label.empty();
    });
    if (twin != entries.end()) {
      errors.push_back({file, entry.path, fmt::format("has the label \"{}\" of {}", echoed(entry.label), twin->path),
                        "a \"label\" of its own", ""});
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace longhaul
