// What-ifs of a topology: its links changed one by one, `"what_if": [{...}, ...]` in a topology file or in the topology
// value of a study. They apply in order, each to what the ones before it left.
//
//   {"links": "n3.nic0>", "scale_bandwidth": 0.5, "scale_latency": 2}
//   {"rail": 2, "scale_bandwidth": 0.25}                   the NICs of rail 2 and, with rails, its leaves' links
//   {"links": "n*.nic2", "down": true}                     routes go another way
//   {"links": "leaf0.*", "background_gbytes_per_s": 10}
//   {"from": 0, "to": 12, "background_gbytes_per_s": 10}   on every link of that route
//
// A name without its last mark (">" out or up, "<" in or down) means both directions; "*", "?" and "[0-3]" are
// patterns as a shell has them. Background traffic is a constant load that does not give way: the flows of the
// simulation share what it leaves of a link. A link that is down is on no route; its load is nobody's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/core/units.h"

namespace longhaul {

struct WhatIf {
  std::string file;  // where it is written, for error messages
  std::string path;
  std::string links;        // a pattern; empty with `rail` or `from`
  std::optional<int> rail;  // the NIC of that number of every node
  std::optional<int> from;  // ranks; both or none
  std::optional<int> to;
  double scale_bandwidth = 1;
  double scale_latency = 1;
  bool down = false;
  BytesPerSecond background;  // zero: none

  // "n3.nic0 down", "rail 2 at 0.25 x bandwidth", "10 GB/s from rank 0 to rank 12".
  std::string to_string() const;
};

// Parses the list at `path`; appends every fault to `errors`. What only a cluster can tell (names that no link has) is
// make_cluster's to check.
std::vector<WhatIf> parse_what_ifs(const nlohmann::ordered_json& json, const std::string& file, const std::string& path,
                                   Errors& errors);

// Whether `pattern` means the link `name`: by its full name or without the direction at its end.
bool names_link(const std::string& pattern, const std::string& name);

}  // namespace longhaul
