// Reading a model from a Hugging Face config.json, as shipped, downloaded or written inline in a study.
//
// Unknown keys are allowed, because such files hold many that say nothing about shape. What Longhaul cannot schedule
// (experts, sliding windows, output biases, other activations, other model types) is an error, never ignored.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/workload/model.h"

namespace longhaul {

// The keys that the reader looks at, sorted; workloads/model.schema.json has exactly these properties.
const std::vector<std::string>& model_keys();

// `config` is the object of a config.json. `file` and `path` say where it stands, for errors.
std::optional<ModelShape> read_model(const nlohmann::ordered_json& config, const std::string& name,
                                     const std::string& file, const std::string& path, Errors& errors);

// `reference` is a shipped name, a path (relative to `file`) or an inline object; it stands at `path` of `file`.
std::optional<ModelShape> find_model(const nlohmann::ordered_json& reference, const std::string& file,
                                     const std::string& path, Errors& errors);

}  // namespace longhaul
