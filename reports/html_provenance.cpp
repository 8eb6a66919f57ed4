#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "reports/html_tables.h"
#include "reports/result_rows.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

// Text as it is, other scalars as JSON.
std::string scalar_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool all_scalars(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& value) { return value.is_primitive(); });
}

std::string list_html(const Json& list) {
  std::string out = "<ul>";
  for (const Json& value : list) out += "<li>" + escape_html(scalar_text(value)) + "</li>";
  return out + "</ul>";
}

// One term; objects give one a key ("calibration device"). What is no scalar or list of scalars is left out.
void add_terms(const std::string& name, const Json& value, int depth, std::string& out) {
  std::string text;
  if (value.is_null()) return;
  if (value.is_primitive()) {
    text = escape_html(scalar_text(value));
  } else if (value.is_array() && !value.empty() && all_scalars(value)) {
    text = list_html(value);
  } else if (value.is_object() && depth < 2) {
    for (const auto& [key, inner] : value.items()) add_terms(name + " " + words(key), inner, depth + 1, out);
  }
  if (!text.empty()) out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(name), text);
}

}  // namespace

std::string provenance_html(const Json& results) {
  std::string terms;
  if (results.is_object()) {
    for (const auto& [key, value] : results.items()) {
      if (key != "strategies" && key != "study" && key != "cases") add_terms(words(key), value, 0, terms);
    }
  }
  return terms.empty() ? "" : "<dl class=\"provenance\">\n" + terms + "</dl>\n";
}

}  // namespace longhaul
