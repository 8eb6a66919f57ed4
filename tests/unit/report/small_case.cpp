#include "tests/unit/report/small_case.h"

#include <stdexcept>

namespace longhaul {

Json small_study(const std::string& strategies) {
  Json study = Json::parse(R"({
    "schema": "study/1", "name": "small", "topology": "dgx-h200-ndr", "gpus": 4,
    "documents": {"explicit": [[4096, 2048, 1024, 1024], [8192], [2048, 6144], [512, 7680]]},
    "training": {"zero_stage": 3, "recompute": "full"}
  })");
  study["model"] = Json::parse(R"({
    "_name_or_path": "small", "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "num_hidden_layers": 2, "vocab_size": 32000, "tie_word_embeddings": false
  })");
  study["strategies"] = Json::parse(strategies);
  return study;
}

Prepared small_case(const std::string& label) {
  Expected<Prepared> prepared = prepare_run(small_study("[\"" + label + "\"]"), "small.json", label, "small");
  if (!prepared) throw std::runtime_error(prepared.error().front().to_string());
  return std::move(*prepared);
}

KeptRun kept_synthetic(const PreparedRun& prepared, RunRecord record) {
  record.identity.study = prepared.study.name;
  record.identity.study_case = prepared.study_case->name;
  record.identity.strategy = prepared.entry->label;
  KeptRun run;
  run.origin = "synthetic";
  run.study = prepared.study_json;
  run.study_case = prepared.study_case->name;
  run.strategy = prepared.entry->label;
  run.record = std::move(record);
  return run;
}

}  // namespace longhaul
