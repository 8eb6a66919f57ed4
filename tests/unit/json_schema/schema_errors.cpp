#include "tests/unit/json_schema/schema_errors.h"

#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace longhaul {

std::string schema_errors(const nlohmann::json& schema, const nlohmann::json& value) {
  valijson::Schema parsed;
  valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
  parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(schema), parsed);
  valijson::Validator validator(valijson::Validator::kStrongTypes);
  valijson::ValidationResults results;
  validator.validate(parsed, valijson::adapters::NlohmannJsonAdapter(value), &results);
  std::string text;
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    for (const std::string& part : error.context) text += part;
    text += ": " + error.description + "\n";
  }
  return text;
}

bool obeys(const nlohmann::json& schema, const nlohmann::json& value) { return schema_errors(schema, value).empty(); }

}  // namespace longhaul
