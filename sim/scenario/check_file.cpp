#include "sim/scenario/check_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "sim/cluster/cluster.h"
#include "sim/cluster/topology.h"
#include "sim/core/data_files.h"
#include "sim/workload/lengths.h"
#include "sim/workload/model_reader.h"

namespace longhaul {
namespace {

// The first line that is neither empty nor a comment.
std::string first_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && line.front() != '#') return line;
  }
  return "";
}

template <class T>
Errors errors_of(const Expected<T>& result) {
  return result ? Errors{} : result.error();
}

// A topology that says how large it is, or is a graph, is built whole: the ports of its switches and its what-ifs are
// checked too. One of any number of nodes is built by who gives that number: a study, `longhaul topology --gpus`.
Errors topology_errors(const Json& value, const std::string& file) {
  constexpr std::int64_t kMaxBuilt = 1 << 20;
  const Expected<Topology> topology = parse_topology(value, file, "", data_directory());
  if (!topology) return topology.error();
  const std::int64_t gpus = topology->nodes ? std::int64_t{*topology->nodes} * topology->gpus_per_node : 0;
  if (gpus == 0 || gpus > kMaxBuilt) return {};
  return errors_of(make_cluster(*topology, static_cast<int>(gpus), file, "/nodes"));
}

CheckedFile check_object(const Json& value, const std::string& file, const StudyOptions& options) {
  static const std::vector<std::string> schemas = {"study/1", "topology/1", "device/1"};
  const auto schema = value.find("schema");
  const std::string named = schema != value.end() && schema->is_string() ? schema->get<std::string>() : "";
  const bool is_topology = schema == value.end() && (value.contains("base") || value.contains("nvlink"));
  if (named == "topology/1" || is_topology) return {InputKind::kTopology, topology_errors(value, file)};
  if (named == "device/1") return {InputKind::kDevice, errors_of(parse_device(value, file, ""))};
  if (named == "study/1") return {InputKind::kStudy, errors_of(parse_study(value, file, options))};
  if (schema != value.end()) {
    const std::string nearest = nearest_name(named, schemas);
    return {std::nullopt,
            {{file, "/schema", fmt::format("is {}", describe(*schema)), "\"study/1\", \"topology/1\" or \"device/1\"",
              nearest}}};
  }
  if (value.contains("strategies") || value.contains("cases")) {
    return {InputKind::kStudy, errors_of(parse_study(value, file, options))};
  }
  const auto says_shape = [&value](const std::string& key) { return value.contains(key); };
  if (std::any_of(model_keys().begin(), model_keys().end(), says_shape)) {
    CheckedFile checked{InputKind::kModel, {}};
    read_model(value, file, file, "", checked.errors);
    return checked;
  }
  return {std::nullopt,
          {{file, "", "says neither by \"schema\" nor by the keys of a config.json what it is",
            "a study, topology, device or model", ""}}};
}

CheckedFile check_list(const std::string& file) {
  CheckedFile checked{InputKind::kDocumentList, {}};
  read_document_lengths(file, checked.errors);
  return checked;
}

}  // namespace

std::string_view input_kind_name(InputKind kind) {
  switch (kind) {
    case InputKind::kStudy:
      return "study";
    case InputKind::kTopology:
      return "topology";
    case InputKind::kDevice:
      return "device";
    case InputKind::kModel:
      return "model";
    case InputKind::kLengthTable:
      return "length table";
    case InputKind::kDocumentList:
      return "document list";
  }
  return "";
}

CheckedFile check_input_file(const std::string& file, const StudyOptions& options) {
  const std::optional<std::string> contents = read_text_file(file);
  if (!contents) {
    return {std::nullopt, {{file, "", "cannot be read", "a study, topology, device, model or length file", ""}}};
  }
  const std::string& text = *contents;
  const std::string line = first_line(text);
  if (line.starts_with("quantile") || file.ends_with(".csv")) {
    CheckedFile checked{InputKind::kLengthTable, {}};
    parse_length_table(text, file, file, checked.errors);
    return checked;
  }
  const std::size_t first = line.find_first_not_of(" \t");
  const char begin = first == std::string::npos ? '\0' : line[first];
  if (begin != '{' && !file.ends_with(".json")) return check_list(file);
  const Expected<Json> value = parse_json(text, file);
  if (!value) return {std::nullopt, value.error()};
  if (value->is_array()) return check_list(file);
  if (value->is_object()) return check_object(*value, file, options);
  return {std::nullopt, {{file, "", fmt::format("is {}", describe(*value)), "an object", ""}}};
}

}  // namespace longhaul
