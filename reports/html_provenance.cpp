#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

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

// "name h200, date 2026-08-01": an object of scalars in one line, without its case.
std::string object_text(const Json& object) {
  std::string out;
  for (const auto& [key, value] : object.items()) {
    if (key == "case" || !value.is_primitive() || value.is_null()) continue;
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", words(key), scalar_text(value));
  }
  return out;
}

// A list of objects, one a case; those that say the same stand once, with all their cases.
std::string cases_html(const Json& list) {
  std::vector<std::pair<std::string, std::string>> items;  // text, cases
  for (const Json& object : list) {
    const std::string text = object_text(object);
    const std::string name = object.contains("case") ? scalar_text(object["case"]) : "";
    auto same = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == text; });
    if (same == items.end()) same = items.insert(items.end(), {text, ""});
    if (!name.empty()) same->second += (same->second.empty() ? "" : ", ") + name;
  }
  if (items.size() == 1) return escape_html(items.front().first);
  std::string out = "<ul>";
  for (const auto& [text, names] : items) out += fmt::format("<li>{}: {}</li>", escape_html(names), escape_html(text));
  return out + "</ul>";
}

bool all_objects(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& value) { return value.is_object(); });
}

// One term; objects give one a key ("calibration device"). What is no scalar or list of scalars is left out.
void add_terms(const std::string& name, const Json& value, int depth, std::string& out) {
  std::string text;
  if (value.is_null()) return;
  if (value.is_primitive()) {
    text = escape_html(scalar_text(value));
  } else if (value.is_array() && !value.empty() && all_scalars(value)) {
    text = list_html(value);
  } else if (value.is_array() && !value.empty() && all_objects(value)) {
    text = cases_html(value);
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
      if (key != "strategies" && key != "study" && key != "winners") add_terms(words(key), value, 0, terms);
    }
  }
  return terms.empty() ? "" : "<dl class=\"provenance\">\n" + terms + "</dl>\n";
}

}  // namespace longhaul
