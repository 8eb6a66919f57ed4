#include "sim/cost/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/core/invariant.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr double kLargestConstant = 1.0;  // seconds per term; far above any kernel's
constexpr std::int64_t kLargestSize = std::int64_t{1} << 60;

const std::vector<std::string>& source_names() {
  static const std::vector<std::string> names = {"measured", "published", "datasheet"};
  return names;
}

ClassSource source_of(const std::string& name) {
  return static_cast<ClassSource>(std::find(source_names().begin(), source_names().end(), name) -
                                  source_names().begin());
}

ResidualBand read_band(JsonReader& parent, const char* key) {
  ResidualBand band;
  const Json* json = parent.required(key, "an object of residuals");
  if (json == nullptr) return band;
  JsonReader reader(*json, parent.file(), parent.child_path(key), parent.errors());
  band.rows = reader.required_integer("rows", 1, 1'000'000).value_or(1);
  band.low = reader.required_number("low", -0.95, 0).value_or(0);
  band.high = reader.required_number("high", 0, 100).value_or(0);
  band.median = reader.required_number("median", 0, 100).value_or(0);
  band.p90 = reader.required_number("p90", 0, 100).value_or(0);
  reader.finish();
  return band;
}

void read_sizes(JsonReader& parent, std::string_view kernel_class, KernelCalibration& out) {
  const std::size_t components = size_names(kernel_class).size();
  const std::string expected = fmt::format("a non-empty list of lists of {} integers", components);
  const Json* json = parent.required("measured_sizes", expected);
  if (json == nullptr) return;
  if (!json->is_array() || json->empty()) {
    parent.add_error("measured_sizes", fmt::format("is {}", describe(*json)), expected);
    return;
  }
  for (const Json& row : *json) {
    const bool right =
        row.is_array() && row.size() == components && std::all_of(row.begin(), row.end(), [](const Json& v) {
          return v.is_number_integer() && v.get<std::int64_t>() >= 0 && v.get<std::int64_t>() <= kLargestSize;
        });
    if (!right) {
      parent.add_error("measured_sizes", fmt::format("holds {}", row.dump()), expected);
      return;
    }
    SizeKey key{};
    for (std::size_t i = 0; i < components; ++i) key[i] = row[i].get<std::int64_t>();
    out.measured.push_back(key);
  }
  set_range(out);
}

KernelCalibration read_kernel(const Json& json, std::string_view kernel_class, const JsonReader& parent, Errors& errors,
                              const std::string& path) {
  KernelCalibration out;
  JsonReader reader(json, parent.file(), path, errors);
  if (const auto source = reader.required_choice("source", source_names())) {
    out.source = source_of(*source);
  }
  if (const Json* constants = reader.required("constants", "an object of seconds per term")) {
    JsonReader terms(*constants, reader.file(), reader.child_path("constants"), errors);
    std::size_t i = 0;
    for (const TermSpec& term : *terms_of_class(kernel_class)) {
      out.constants[i++] = terms.required_number(term.name, 0, kLargestConstant).value_or(0);
    }
    terms.finish();
  }
  out.timed_alone_seconds = reader.required_number("timed_alone_seconds", 0, kLargestConstant).value_or(0);
  out.small_call_seconds = reader.required_number("small_call_seconds", 0, kLargestConstant).value_or(0);
  out.small = read_band(reader, "residuals_small");
  out.large = read_band(reader, "residuals_large");
  read_sizes(reader, kernel_class, out);
  reader.finish();
  return out;
}

void read_classes(const Json& json, JsonReader& parent, Calibration& out) {
  JsonReader reader(json, parent.file(), parent.child_path("kernels"), parent.errors());
  for (const std::string& name : required_classes()) reader.required(name, "the constants of this class of kernels");
  if (!json.is_object()) return;
  for (const auto& [name, entry] : json.items()) {
    if (terms_of_class(name) == nullptr) {
      parent.errors().push_back({parent.file(), reader.child_path(name),
                                 fmt::format("\"{}\" is no class of kernels", name),
                                 "gemm, elementwise, elementwise/FUNCTION, copy-d2d, copy-h2d, copy-d2h or "
                                 "attention/LIBRARY/PASS/FORM",
                                 nearest_name(name, required_classes())});
      continue;
    }
    out.classes[name] = read_kernel(entry, name, reader, parent.errors(), reader.child_path(name));
  }
}

constexpr double kLargestFactor = 100;
constexpr double kMostMultiprocessors = 10;  // of one channel
constexpr double kMostPasses = 20;           // over memory, of one transferred byte

struct OverlapEntry {
  const char* group;  // the object below `overlap`
  const char* key;
  double lowest;
  double highest;
  double* value;
};

// The constants as they stand in the file; groups together.
std::vector<OverlapEntry> overlap_entries(OverlapConstants& overlap) {
  return {
      {"gemm", "beside_memory_kernel", 1, kLargestFactor, &overlap.gemm.beside_memory_kernel},
      {"gemm", "multiprocessors_per_channel", 0, kMostMultiprocessors, &overlap.gemm.multiprocessors_per_channel},
      {"attention", "beside_memory_kernel", 1, kLargestFactor, &overlap.attention.beside_memory_kernel},
      {"attention", "multiprocessors_per_channel", 0, kMostMultiprocessors,
       &overlap.attention.multiprocessors_per_channel},
      {"compute", "beside_host_copy", 1, kLargestFactor, &overlap.compute_beside_host_copy},
      {"memory_kernel", "beside_compute", 1, kLargestFactor, &overlap.memory_kernel_beside_compute},
      {"host_copy", "beside_compute", 1, kLargestFactor, &overlap.host_copy_beside_compute},
      {"transfer", "memory_bytes_per_byte", 0, kMostPasses, &overlap.memory_bytes_per_transferred_byte},
      {"transfer", "beside_gemm", 1, kLargestFactor, &overlap.transfer_beside_gemm},
      {"transfer", "beside_attention", 1, kLargestFactor, &overlap.transfer_beside_attention},
      {"transfer", "beside_memory_kernel", 1, kLargestFactor, &overlap.transfer_beside_memory_kernel},
  };
}

// Of the groups that are compute kernels; none of the others.
bool* holds_of(OverlapConstants& overlap, std::string_view group) {
  if (group == "gemm") return &overlap.gemm.holds_transfers;
  return group == "attention" ? &overlap.attention.holds_transfers : nullptr;
}

void read_overlap(JsonReader& parent, Calibration& out) {
  const Json* json = parent.required("overlap", "an object of slow-down constants");
  if (json == nullptr) return;
  JsonReader reader(*json, parent.file(), parent.child_path("overlap"), parent.errors());
  const std::vector<OverlapEntry> entries = overlap_entries(out.overlap);
  for (std::size_t i = 0; i < entries.size();) {
    const char* group = entries[i].group;
    const Json* numbers = reader.required(group, "an object of slow-down constants");
    if (numbers == nullptr) {
      while (i < entries.size() && std::string_view(entries[i].group) == group) ++i;
      continue;
    }
    JsonReader of_group(*numbers, reader.file(), reader.child_path(group), reader.errors());
    for (; i < entries.size() && std::string_view(entries[i].group) == group; ++i) {
      const OverlapEntry& entry = entries[i];
      *entry.value = of_group.required_number(entry.key, entry.lowest, entry.highest).value_or(*entry.value);
    }
    if (bool* holds = holds_of(out.overlap, group)) {
      of_group.required("holds_transfers", "true or false");
      *holds = of_group.boolean("holds_transfers").value_or(false);
    }
    of_group.finish();
  }
  if (const auto source = reader.choice("source", source_names())) out.overlap_source = source_of(*source);
  out.overlap_residuals = read_band(reader, "residuals");
  reader.finish();
}

Expected<Calibration> from_json(const Json& json, const std::string& file) {
  Errors errors;
  Calibration out;
  JsonReader reader(json, file, "", errors);
  reader.required_choice("schema", {"calibration/3"});
  out.name = reader.required_string("name").value_or("");
  out.date = reader.required_string("measured_on").value_or("");
  out.machine = reader.required_string("machine").value_or("");
  reader.required("data_files", "a list of the tables that were fitted");
  if (const Json* device = reader.required("device", "an object with the datasheet of the measured device")) {
    JsonReader sheet(*device, file, reader.child_path("device"), errors);
    out.peak_flops_per_second = sheet.required_number("bf16_dense_flops_per_second", 1e9, 1e18).value_or(1);
    out.memory_bytes_per_second = sheet.required_number("memory_bytes_per_second", 1e9, 1e15).value_or(1);
    out.host_link_bytes_per_second = sheet.required_number("host_link_bytes_per_second", 1e8, 1e13).value_or(1);
    out.multiprocessors = sheet.required_integer("multiprocessors", 1, 10'000).value_or(1);
    sheet.finish();
  }
  out.launch_seconds = reader.required_number("launch_seconds", 0, 1).value_or(0);
  read_overlap(reader, out);
  if (const Json* kernels = reader.required("kernels", "an object with one entry a class of kernels")) {
    read_classes(*kernels, reader, out);
  }
  reader.finish();
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return out;
}

Json band_json(const ResidualBand& band) {
  return {{"rows", band.rows}, {"low", band.low}, {"high", band.high}, {"median", band.median}, {"p90", band.p90}};
}

Json kernel_json(const KernelCalibration& kernel, std::string_view kernel_class) {
  Json constants = Json::object();
  std::size_t i = 0;
  for (const TermSpec& term : *terms_of_class(kernel_class)) constants[std::string(term.name)] = kernel.constants[i++];
  const auto components = static_cast<std::ptrdiff_t>(size_names(kernel_class).size());
  Json sizes = Json::array();
  for (const SizeKey& key : kernel.measured) {
    sizes.push_back(std::vector<std::int64_t>(key.begin(), key.begin() + components));
  }
  return {{"source", to_string(kernel.source)},
          {"constants", constants},
          {"timed_alone_seconds", kernel.timed_alone_seconds},
          {"small_call_seconds", kernel.small_call_seconds},
          {"residuals_small", band_json(kernel.small)},
          {"residuals_large", band_json(kernel.large)},
          {"measured_sizes", sizes}};
}

}  // namespace

const char* to_string(ClassSource source) { return source_names()[static_cast<std::size_t>(source)].c_str(); }

const std::vector<std::string>& size_names(std::string_view kernel_class) {
  static const std::vector<std::string> gemm = {"m", "n", "k"};
  static const std::vector<std::string> attention = {"pieces", "q_rows", "k_rows", "pairs", "q_heads", "head_dim"};
  static const std::vector<std::string> bytes = {"bytes"};
  if (kernel_class == "gemm") return gemm;
  return kernel_class.starts_with("attention/") ? attention : bytes;
}

const std::vector<std::string>& required_classes() {
  static const std::vector<std::string> names = {"gemm",
                                                 "attention/cudnn/forward/dense",
                                                 "attention/cudnn/backward/dense",
                                                 "elementwise",
                                                 "copy-d2d",
                                                 "copy-h2d",
                                                 "copy-d2h"};
  return names;
}

void set_range(KernelCalibration& kernel) {
  LH_ASSERT(!kernel.measured.empty(), "a class without sizes");
  std::sort(kernel.measured.begin(), kernel.measured.end());
  kernel.lowest = kernel.highest = kernel.measured.front();
  for (const SizeKey& key : kernel.measured) {
    for (std::size_t i = 0; i < key.size(); ++i) {
      kernel.lowest[i] = std::min(kernel.lowest[i], key[i]);
      kernel.highest[i] = std::max(kernel.highest[i], key[i]);
    }
  }
}

const KernelCalibration* Calibration::find(std::string_view kernel_class) const {
  const auto found = classes.find(kernel_class);
  return found == classes.end() ? nullptr : &found->second;
}

const KernelCalibration& Calibration::kernel(KernelKind kind) const {
  if (const KernelCalibration* itself = find(kernel_kind_name(kind))) return *itself;
  const KernelCalibration* dense =
      find(kind == KernelKind::kAttentionBackwardRagged ? kernel_kind_name(KernelKind::kAttentionBackwardDense)
                                                        : kernel_kind_name(KernelKind::kAttentionForwardDense));
  LH_ASSERT(dense != nullptr, "a calibration without {}", kernel_kind_name(kind));
  return *dense;
}

Expected<Calibration> read_calibration(const std::string& file) {
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  return from_json(*json, file);
}

Expected<Calibration> parse_calibration(const std::string& text, const std::string& file) {
  const Expected<Json> json = parse_json(text, file);
  if (!json) return tl::unexpected(json.error());
  return from_json(*json, file);
}

std::string write_calibration(const Calibration& calibration, const std::vector<std::string>& data_files) {
  Json kernels = Json::object();
  for (const auto& [name, kernel] : calibration.classes) kernels[name] = kernel_json(kernel, name);
  OverlapConstants constants = calibration.overlap;
  Json overlap = Json::object();
  for (const OverlapEntry& entry : overlap_entries(constants)) overlap[entry.group][entry.key] = *entry.value;
  for (const char* group : {"gemm", "attention"}) overlap[group]["holds_transfers"] = *holds_of(constants, group);
  if (calibration.overlap_source != ClassSource::kMeasured) overlap["source"] = to_string(calibration.overlap_source);
  overlap["residuals"] = band_json(calibration.overlap_residuals);
  const Json json = {{"schema", "calibration/3"},
                     {"name", calibration.name},
                     {"measured_on", calibration.date},
                     {"machine", calibration.machine},
                     {"data_files", data_files},
                     {"device",
                      {{"bf16_dense_flops_per_second", calibration.peak_flops_per_second},
                       {"memory_bytes_per_second", calibration.memory_bytes_per_second},
                       {"host_link_bytes_per_second", calibration.host_link_bytes_per_second},
                       {"multiprocessors", calibration.multiprocessors}}},
                     {"launch_seconds", calibration.launch_seconds},
                     {"overlap", overlap},
                     {"kernels", kernels}};
  return json.dump(1) + "\n";
}

}  // namespace longhaul
