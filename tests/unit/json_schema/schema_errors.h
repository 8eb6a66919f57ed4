// Whether a value obeys a JSON Schema, compiled once for all tests: the validator's templates take half a minute.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace longhaul {

// Every error that the schema (draft 7) finds, one a line; empty if the value obeys it. 1.0 is no integer.
std::string schema_errors(const nlohmann::json& schema, const nlohmann::json& value);

// No error at all.
bool obeys(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace longhaul
