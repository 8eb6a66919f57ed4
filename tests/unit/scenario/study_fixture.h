// Helpers of the scenario tests: a valid study to change, and reading it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/core/json.h"
#include "sim/scenario/study.h"

namespace longhaul {

inline StudyOptions known() {
  StudyOptions options;
  options.known_strategies = {"data-parallel", "allgather-cp", "zigzag-cp", "per-doc-cp", "flashcp",      "ulysses",
                              "basp",          "1f1b",         "seq1f1b",   "dpp",        "bd-offset-cp", "csbp"};
  return options;
}

// With every strategy that a shipped study has.
inline StudyOptions known_to_shipped() {
  StudyOptions options = known();
  for (const char* name : {"ring-cp", "te-p2p", "te-allgather", "wlb-cp", "magi", "dcp", "skrull", "hybrid-cp"}) {
    options.known_strategies.emplace_back(name);
  }
  return options;
}

// The study of the contract's example.
inline Json example() {
  return parse_json(R"({
    "schema": "study/1", "name": "llama3-8b-128k-on-8-h200", "topology": "dgx-h200-ndr", "gpus": 8,
    "model": "llama3-8b", "objective": {"kind": "causal-lm"},
    "documents": {"lengths": "wlb", "context_tokens": 131072, "sequences": 16, "seed": 1},
    "training": {"optimizer": "adamw", "zero_stage": 3, "recompute": "full", "dtype": "bf16",
                 "micro_batch_sequences": 2},
    "layout": {"tp": 1},
    "strategies": ["allgather-cp", "per-doc-cp", {"name": "flashcp", "imbalance_limit": 1.05}, "ulysses", "basp",
                   "dpp"],
    "baseline": "allgather-cp"})",
                    "example.json")
      .value();
}

inline Json with(Json study, const std::string& pointer, const Json& value) {
  study[Json::json_pointer(pointer)] = value;
  return study;
}

inline Json without(Json study, const std::string& key) {
  study.erase(key);
  return study;
}

inline std::vector<std::string> texts(const Errors& errors) {
  std::vector<std::string> result;
  for (const InputError& error : errors) result.push_back(error.to_string());
  return result;
}

inline std::vector<std::string> faults(const Json& study, const StudyOptions& options = known()) {
  const Expected<Study> result = parse_study(study, "study.json", options);
  return result ? std::vector<std::string>{} : texts(result.error());
}

inline Study read(const Json& study, const StudyOptions& options = known()) {
  Expected<Study> result = parse_study(study, "study.json", options);
  if (result) return *result;
  for (const InputError& error : result.error()) ADD_FAILURE() << error.to_string();
  return {};
}

}  // namespace longhaul
