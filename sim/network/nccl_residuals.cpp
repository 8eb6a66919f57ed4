#include "sim/network/nccl_residuals.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "sim/core/data_files.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr std::array<std::int64_t, kResidualBands> kBandBegins = {0, 64 << 10, 1 << 20, 64 << 20};
const std::vector<std::string> kNodesNames = {"one", "several, known network", "several, other network"};

// The band that [from, to] is; a null `to` is no end.
std::optional<std::size_t> band_of(const Json& json) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_number_integer()) return std::nullopt;
  for (std::size_t band = 0; band < kResidualBands; ++band) {
    const bool last = band + 1 == kResidualBands;
    if (json[0] != kBandBegins[band]) continue;
    if (last ? json[1].is_null() : json[1] == kBandBegins[band + 1]) return band;
  }
  return std::nullopt;
}

void read_class(const Json& json, const std::string& file, const std::string& path, Errors& errors,
                NcclResiduals& residuals) {
  JsonReader reader(json, file, path, errors);
  const auto nodes = reader.required_choice("nodes", kNodesNames);
  const auto width = reader.required_number("half_width", 0, 10);
  const Json* bytes = reader.required("band_bytes", "[from, to]");
  reader.finish();
  if (bytes == nullptr) return;
  const std::optional<std::size_t> band = band_of(*bytes);
  if (!band) return reader.add_error("band_bytes", "is no band", "0, 65536, 1048576, 67108864 and null, two in a row");
  if (!nodes || !width) return;
  const auto row =
      static_cast<std::size_t>(std::find(kNodesNames.begin(), kNodesNames.end(), *nodes) - kNodesNames.begin());
  double& place = residuals.half_width[row][*band];
  if (place >= 0) reader.add_error("band_bytes", "comes twice for these nodes", "each band once");
  place = *width;
}

}  // namespace

double NcclResiduals::of(ResidualNodes nodes, double bytes) const {
  std::size_t band = kResidualBands - 1;
  while (band > 0 && bytes < static_cast<double>(kBandBegins[band])) --band;
  return half_width[static_cast<std::size_t>(nodes)][band];
}

ResidualNodes residual_nodes(const Topology& topology, bool several) {
  if (!several) return ResidualNodes::kOne;
  switch (topology.technology) {
    case NetworkTechnology::kInfiniBand:
    case NetworkTechnology::kRoce:
    case NetworkTechnology::kTcpxo:
      return ResidualNodes::kSeveralKnown;
    case NetworkTechnology::kEfa:
    case NetworkTechnology::kTcpx:
    case NetworkTechnology::kEthernet:
      break;
  }
  return ResidualNodes::kSeveralOther;
}

Expected<NcclResiduals> read_nccl_residuals(const std::string& data_directory) {
  const std::string file = data_directory + "/topologies/nccl-residuals.json";
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  Errors errors;
  NcclResiduals residuals;
  for (auto& row : residuals.half_width) row.fill(-1);
  JsonReader reader(*json, file, "", errors);
  reader.required_choice("schema", {"nccl-residuals/1"});
  reader.required_string("source");
  const Json* classes = reader.required("classes", "a list");
  if (classes != nullptr && classes->is_array()) {
    for (std::size_t i = 0; i < classes->size(); ++i) {
      read_class((*classes)[i], file, fmt::format("/classes/{}", i), errors, residuals);
    }
  }
  reader.finish();
  for (const auto& row : residuals.half_width) {
    const bool whole = std::all_of(row.begin(), row.end(), [](double width) { return width >= 0; });
    if (!whole && errors.empty()) errors.push_back({file, "/classes", "lacks a class", "all nodes in all bands", ""});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return residuals;
}

const NcclResiduals& shipped_nccl_residuals() {
  static const NcclResiduals residuals = [] {
    const Expected<NcclResiduals> read = read_nccl_residuals(data_directory());
    if (!read) throw LimitError(read.error().front().to_string());
    return *read;
  }();
  return residuals;
}

}  // namespace longhaul
