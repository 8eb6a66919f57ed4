#include "validate/report/reduced_study.h"

#include <algorithm>

#include "sim/core/data_files.h"
#include "sim/core/invariant.h"

namespace longhaul {

std::vector<std::vector<std::int64_t>> scaled_documents(const Batch& batch, std::int64_t sequences,
                                                        std::int64_t numerator, std::int64_t denominator,
                                                        std::int64_t multiple) {
  LH_ASSERT(numerator > 0 && denominator >= numerator && multiple > 0, "documents scaled by {} / {}, multiples of {}",
            numerator, denominator, multiple);
  const auto scaled = [&](std::int64_t tokens) {
    return std::max(multiple, tokens * numerator / denominator / multiple * multiple);
  };
  std::vector<std::vector<std::int64_t>> result;
  for (const Sequence& sequence : batch.sequences) {
    if (static_cast<std::int64_t>(result.size()) == sequences) break;
    std::vector<std::int64_t>& lengths = result.emplace_back();
    std::int64_t left = scaled(sequence.tokens);
    for (const DocumentId document : sequence.documents) {
      const std::int64_t length = scaled(batch.documents[static_cast<std::size_t>(document)]);
      if (length > left) break;
      lengths.push_back(length);
      left -= length;
    }
    lengths.back() += left;
  }
  return result;
}

Json model_config(const ModelShape& model) {
  const char* type = model.qk_norm ? "qwen3" : model.qkv_bias ? "qwen2" : "llama";
  return {{"_name_or_path", model.name.empty() ? "inline" : model.name},
          {"model_type", type},
          {"hidden_act", "silu"},
          {"hidden_size", model.hidden},
          {"intermediate_size", model.ffn},
          {"num_attention_heads", model.q_heads},
          {"num_key_value_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"num_hidden_layers", model.layers},
          {"vocab_size", model.vocab},
          {"tie_word_embeddings", model.tied_embeddings}};
}

const Json& resolved_case_of(const Study& study, const std::string& name) {
  if (!study.resolved.contains("cases")) return study.resolved;
  for (const Json& one : study.resolved["cases"]) {
    if (one["name"] == name) return one;
  }
  LH_ASSERT(false, "study {} has no case {}", study.name, name);
}

namespace {

// The case's strategies hold the entry under its label, every default filled in.
Json entry_json_of(const Json& strategies, const std::string& label) {
  for (const Json& one : strategies) {
    if (one["label"] == label) return one;
  }
  LH_ASSERT(false, "no strategy {} in the case", label);
}

Json layout_of(const Degrees& degrees) {
  Json layout = Json::object();
  if (degrees.pp > 1) layout["pp"] = degrees.pp;
  if (degrees.cp > 1) layout["cp"] = degrees.cp;
  if (degrees.sp > 1) layout["sp"] = degrees.sp;
  layout["dp"] = degrees.dp;
  return layout;
}

// Whole blocks of block diffusion stay whole where they are.
std::int64_t document_multiple(const Batch& batch) {
  const std::int64_t block = batch.objective.block_tokens;
  if (batch.objective.kind != ObjectiveKind::kBlockDiffusion || block < 1) return 1;
  const bool whole = std::all_of(batch.documents.begin(), batch.documents.end(),
                                 [&](std::int64_t tokens) { return tokens % block == 0; });
  return whole ? block : 1;
}

}  // namespace

Json topology_with(const Json& own, const std::string& file, const std::string& device) {
  Json patched = own.is_string() ? Json{{"base", own}} : own;
  patched["device"] = device;
  if (parse_topology(patched, file, "/topology", data_directory())) return patched;
  for (const std::string& name : shipped_topologies(data_directory())) {
    const Expected<Topology> topology = read_topology(name, data_directory());
    if (topology && topology->device.name == device) return name;
  }
  return nullptr;
}

namespace {

// Calls body(entry) for the entries of that label, a short one written as an object first.
template <class Body>
void for_entry(Json& study, const std::string& study_case, const std::string& label, const Body& body) {
  const auto write = [&](Json& of_case) {
    for (Json& one : of_case["strategies"]) {
      if (one.is_string() && one == label) one = {{"name", label}};
      if (one.is_object() && one.value("label", one.value("name", "")) == label) body(one);
    }
  };
  if (!study.contains("cases")) return write(study);
  for (Json& one : study["cases"]) {
    if (one["name"] == study_case) write(one);
  }
}

}  // namespace

void write_layout(Json& study, const std::string& study_case, const std::string& label, const Degrees& degrees) {
  for_entry(study, study_case, label, [&](Json& entry) { entry["layout"] = layout_of(degrees); });
}

void write_options(Json& study, const std::string& study_case, const std::string& label,
                   const std::vector<std::string>& keys, const Json& options) {
  for_entry(study, study_case, label, [&](Json& entry) {
    for (const std::string& key : keys) entry.erase(key);
    entry.update(options);
  });
}

Json version_study(const Study& study, const StudyCase& study_case, const StrategyEntry& entry, const Batch& batch,
                   const Version& version) {
  const Json& from = resolved_case_of(study, study_case.name);
  ModelShape model = study_case.model;
  model.layers = version.layers;
  model.vocab = version.vocab;
  model.ffn = version.ffn;
  model.hidden = version.hidden;
  Json json = {{"schema", "study/1"}, {"name", study.name}};
  json.update(from);
  json["name"] = study.name;
  if (!version.topology.is_null()) json["topology"] = version.topology;
  json["gpus"] = version.degrees.ranks();
  json["model"] = model_config(model);
  json["documents"] = {{"explicit", scaled_documents(batch, version.sequences, version.numerator, version.denominator,
                                                     document_multiple(batch))}};
  json["training"]["micro_batch_sequences"] = version.micro_batch;
  json["layout"] = Json::object();
  Json one = entry_json_of(from["strategies"], entry.label);
  one["layout"] = layout_of(version.degrees);
  one["micro_batch_sequences"] = version.micro_batch;
  json["strategies"] = Json::array({std::move(one)});
  json["baseline"] = entry.label;
  // A case of a study with several is known by its name.
  if (study.resolved.contains("cases")) {
    Json as_case = json;
    as_case.erase("schema");
    as_case["name"] = study_case.name;
    json = {{"schema", "study/1"}, {"name", study.name}, {"cases", Json::array({std::move(as_case)})}};
  }
  return json;
}

}  // namespace longhaul
