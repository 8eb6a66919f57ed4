#include "sim/scenario/resolved.h"

#include <filesystem>

namespace longhaul {
namespace {

Json explicit_lists(const std::vector<std::vector<std::int64_t>>& sequences) {
  Json lists = Json::array();
  for (const auto& documents : sequences) lists.push_back(documents);
  return lists;
}

// The documents of a file as the sequences that they make, so that the file is not needed again.
Json packed_lists(const DocumentSource& documents) {
  const Batch batch = make_batch(documents, Objective{}, 0);
  Json lists = Json::array();
  for (const Sequence& sequence : batch.sequences) {
    Json list = Json::array();
    for (const DocumentId id : sequence.documents) list.push_back(batch.documents[static_cast<std::size_t>(id)]);
    lists.push_back(std::move(list));
  }
  return lists;
}

Json resolved_lengths(const LengthTable& lengths, bool shipped) {
  if (shipped) return lengths.name();
  Json rows = Json::array();
  for (const LengthRow& row : lengths.rows()) rows.push_back({row.quantile, row.tokens});
  return {{"quantiles", std::move(rows)}};
}

// A topology on a base that is a file: the file, itself resolved, with the other keys merged into it. One on a shipped
// base stays as it is.
Json resolved_base(const Json& topology, const std::string& file) {
  const Json& base = topology["base"];
  if (!base.is_string() || !is_data_path(DataKind::kTopology, base.get<std::string>())) return topology;
  const std::string base_file = relative_to_file(base.get<std::string>(), file);
  Json value = resolved_reference(DataKind::kTopology, base, file);
  if (value.is_object() && value.contains("base")) value = resolved_base(value, base_file);
  Json patch = topology;
  patch.erase("base");
  value.merge_patch(patch);
  return value;
}

Json resolved_entry(const StrategyEntry& entry) {
  Json value = {{"name", entry.name}, {"label", entry.label}, {"layout", resolved_layout(entry.layout)}};
  if (entry.overrides_micro_batch) value["micro_batch_sequences"] = entry.micro_batch_sequences;
  if (!entry.attention_library.empty()) value["attention_library"] = entry.attention_library;
  for (const auto& [key, option] : entry.options.items()) value[key] = option;
  return value;
}

}  // namespace

Json resolved_reference(DataKind kind, const Json& reference, const std::string& file) {
  if (kind == DataKind::kTopology && reference.is_object() && reference.contains("base")) {
    return resolved_base(reference, file);
  }
  if (!reference.is_string() || !is_data_path(kind, reference.get<std::string>())) return reference;
  const Expected<Json> contents = read_json_file(relative_to_file(reference.get<std::string>(), file));
  if (!contents) return nullptr;
  Json value = *contents;
  if (kind == DataKind::kModel && value.is_object()) {
    value["_name_or_path"] = std::filesystem::path(reference.get<std::string>()).stem().string();
  }
  return value;
}

Json resolved_objective(const Objective& objective) {
  if (objective.kind == ObjectiveKind::kCausalLm) return {{"kind", "causal-lm"}};
  return {{"kind", "block-diffusion"}, {"block_tokens", objective.block_tokens}};
}

Json resolved_overlap(const Overlap& overlap) {
  if (!overlap.slowdown) return {{"slowdown", "none"}};
  return {{"slowdown", "calibrated"}, {"scale", overlap.scale}};
}

Json resolved_training(const Training& training) {
  const char* scope = "step";
  if (training.scope == Scope::kForwardBackward) scope = "forward-backward";
  if (training.scope == Scope::kLayers) scope = "layers";
  if (training.scope == Scope::kAttention) scope = "attention";
  return {{"optimizer", "adamw"},
          {"zero_stage", training.zero_stage},
          {"recompute", training.recompute == Recompute::kFull ? "full" : "none"},
          {"dtype", "bf16"},
          {"micro_batch_sequences", training.micro_batch_sequences},
          {"scope", scope},
          {"passes", training.backward ? Json::array({"forward", "backward"}) : Json::array({"forward"})}};
}

Json resolved_layout(const LayoutRequest& layout) {
  if (layout.best) return "best";
  Json value = Json::object();
  const Layout& degrees = layout.degrees;
  if (degrees.tp) value["tp"] = *degrees.tp;
  if (degrees.pp) value["pp"] = *degrees.pp;
  if (degrees.cp) value["cp"] = *degrees.cp;
  if (degrees.sp) value["sp"] = *degrees.sp;
  if (degrees.dp) value["dp"] = *degrees.dp;
  if (degrees.ep) value["ep"] = *degrees.ep;
  return value;
}

Json resolved_documents(const DocumentSource& documents) {
  Json value = Json::object();
  if (documents.lengths) {
    value["lengths"] = resolved_lengths(*documents.lengths, documents.shipped_lengths);
  } else if (!documents.explicit_sequences.empty()) {
    value["explicit"] = explicit_lists(documents.explicit_sequences);
  } else {
    value["explicit"] = packed_lists(documents);
  }
  value["context_tokens"] = documents.context_tokens;
  value["sequences"] = documents.sequences;
  value["seed"] = documents.seed;
  value["steps"] = documents.steps;
  return value;
}

Json resolved_case(const StudyCase& study_case, const LayoutRequest& layout, const CaseReferences& references) {
  Json strategies = Json::array();
  for (const StrategyEntry& entry : study_case.strategies) strategies.push_back(resolved_entry(entry));
  return {{"topology", references.topology},
          {"gpus", study_case.gpus},
          {"model", references.model},
          {"objective", resolved_objective(study_case.objective)},
          {"documents", resolved_documents(study_case.documents)},
          {"overlap", resolved_overlap(study_case.overlap)},
          {"attention_library", study_case.attention_library},
          {"training", resolved_training(study_case.training)},
          {"layout", resolved_layout(layout)},
          {"strategies", std::move(strategies)},
          {"baseline", study_case.baseline}};
}

}  // namespace longhaul
