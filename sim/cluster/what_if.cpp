#include "sim/cluster/what_if.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxRank = (1 << 20) - 1;

// Which links: one of "links", "rail", "from" with "to".
void check_place(JsonReader& reader, const WhatIf& what_if) {
  const bool pattern = reader.has("links");
  const bool rail = reader.has("rail");
  const bool from = reader.has("from");
  const bool to = reader.has("to");
  if (from != to) {
    reader.add_error(from ? "to" : "from", "is missing", "a rank: background traffic has two ends");
  }
  const int places = (pattern ? 1 : 0) + (rail ? 1 : 0) + (from || to ? 1 : 0);
  if (places == 0)
    reader.add_error("links", "is missing", "a link's name or a pattern; or \"rail\", or \"from\" and \"to\"");
  if (places > 1) {
    const char* second = from || to ? (from ? "from" : "to") : "rail";
    reader.add_error(second, "contradicts another key", "one of \"links\", \"rail\", \"from\" with \"to\"");
  }
  if (what_if.from && what_if.to && *what_if.from == *what_if.to) {
    reader.add_error("to", fmt::format("is {}", *what_if.to), "another rank than \"from\"");
  }
}

// What happens to them.
void check_change(JsonReader& reader, const WhatIf& what_if) {
  const bool scales = reader.has("scale_bandwidth") || reader.has("scale_latency");
  const bool background = reader.has("background_gbytes_per_s");
  if (!scales && !background && !reader.has("down")) {
    reader.errors().push_back({reader.file(), reader.path(), "changes nothing",
                               "\"scale_bandwidth\", \"scale_latency\", \"background_gbytes_per_s\" or \"down\": true",
                               ""});
  }
  if (what_if.down && (scales || background)) {
    reader.add_error("down", "contradicts another key", "a link that is down has no bandwidth, latency or traffic");
  }
  if ((reader.has("from") || reader.has("to")) && (scales || reader.has("down"))) {
    reader.add_error(scales ? (reader.has("scale_bandwidth") ? "scale_bandwidth" : "scale_latency") : "down",
                     "has no meaning here", "only \"background_gbytes_per_s\" with \"from\" and \"to\"");
  }
}

WhatIf parse_what_if(const Json& json, const std::string& file, const std::string& path, Errors& errors) {
  JsonReader reader(json, file, path, errors);
  WhatIf what_if;
  what_if.file = file;
  what_if.path = path;
  if (!json.is_object()) return what_if;
  const auto links = reader.string("links");
  what_if.links = links.value_or("");
  if (links && links->empty()) reader.add_error("links", "is empty", "a link's name or a pattern");
  if (const auto rail = reader.integer("rail", 0, 255)) what_if.rail = static_cast<int>(*rail);
  if (const auto from = reader.integer("from", 0, kMaxRank)) what_if.from = static_cast<int>(*from);
  if (const auto to = reader.integer("to", 0, kMaxRank)) what_if.to = static_cast<int>(*to);
  what_if.scale_bandwidth = reader.number("scale_bandwidth", 0.001, 1000).value_or(1);
  what_if.scale_latency = reader.number("scale_latency", 0, 1000).value_or(1);
  what_if.background = BytesPerSecond::from_GBps(reader.number("background_gbytes_per_s", 0.001, 1e5).value_or(0));
  if (const auto down = reader.boolean("down")) {
    what_if.down = *down;
    if (!*down) reader.add_error("down", "is false", "true, or no entry at all");
  }
  check_place(reader, what_if);
  check_change(reader, what_if);
  reader.finish();
  return what_if;
}

}  // namespace

std::string WhatIf::to_string() const {
  std::string text = links;
  if (rail) text = fmt::format("rail {}", *rail);
  if (from) text = fmt::format("rank {} to rank {}", *from, *to);
  if (down) return text + " down";
  if (scale_bandwidth != 1) text += fmt::format(", bandwidth x {}", scale_bandwidth);
  if (scale_latency != 1) text += fmt::format(", latency x {}", scale_latency);
  if (background.value != 0) text += fmt::format(", background {} GB/s", background.value / 1e9);
  return text;
}

std::vector<WhatIf> parse_what_ifs(const Json& json, const std::string& file, const std::string& path, Errors& errors) {
  std::vector<WhatIf> what_ifs;
  if (!json.is_array()) {
    errors.push_back({file, path, fmt::format("is {}", describe(json)), "a list of what-ifs", ""});
    return what_ifs;
  }
  for (std::size_t i = 0; i < json.size(); ++i) {
    what_ifs.push_back(parse_what_if(json[i], file, fmt::format("{}/{}", path, i), errors));
  }
  return what_ifs;
}

bool names_link(const std::string& pattern, const std::string& name) {
  if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  if (name.empty() || (name.back() != '>' && name.back() != '<')) return false;
  return fnmatch(pattern.c_str(), name.substr(0, name.size() - 1).c_str(), 0) == 0;
}

}  // namespace longhaul
