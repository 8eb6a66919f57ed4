#include "sim/cost/attention_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/core/invariant.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

// FLOPs of one pair at that dimension: two products forward, five backward (flashcp.md 0).
constexpr double kForwardFlops = 4 * kMeasuredHeadDim;
constexpr double kBackwardFlops = 10 * kMeasuredHeadDim;
constexpr double kLargestSeconds = 1.0;  // seconds
constexpr double kMostTailTiles = 100;

struct GenerationName {
  GpuGeneration generation;
  const char* name;
  double matrix_flops_per_clock;  // dense bf16, of one multiprocessor (white papers of the architectures)
  // Clock of kernels that the power limit does not hold over the clock of the data sheet's peak: our H200 runs them at
  // 1,980 MHz (validate/data/h200/torch_clocks.csv), its peak is of 1,830; an A100's is of its highest clock;
  // Blackwell: not known.
  double highest_over_peak_clock;
};
constexpr GenerationName kGenerations[] = {
    {GpuGeneration::kAmpere, "ampere", 2048, 1},
    {GpuGeneration::kHopper, "hopper", 4096, 1980.0 / 1830},
    {GpuGeneration::kBlackwell, "blackwell", 8192, 1},
};

std::vector<std::string> generation_names() {
  std::vector<std::string> names;
  for (const GenerationName& one : kGenerations) names.emplace_back(one.name);
  return names;
}

const GenerationName& facts_of(GpuGeneration generation) {
  const auto* at = std::find_if(std::begin(kGenerations), std::end(kGenerations),
                                [&](const GenerationName& one) { return one.generation == generation; });
  LH_ASSERT(at != std::end(kGenerations), "a generation without matrix units of its kind");
  return *at;
}

AttentionLibraryPass read_pass(JsonReader& parent, const char* key, bool forward) {
  AttentionLibraryPass pass;
  const Json* json = parent.required(key, "an object of constants");
  if (json == nullptr) return pass;
  JsonReader reader(*json, parent.file(), parent.child_path(key), parent.errors());
  pass.seconds_per_call = reader.required_number("seconds_per_call", 0, kLargestSeconds).value_or(0);
  pass.seconds_per_pair = reader.required_number("seconds_per_pair", 1e-15, kLargestSeconds).value_or(1);
  pass.seconds_per_tile = reader.required_number("seconds_per_tile", 0, kLargestSeconds).value_or(0);
  pass.seconds_per_row = reader.number("seconds_per_row", 0, kLargestSeconds).value_or(0);
  const std::int64_t rows = reader.required_integer("block_rows", kAttentionBlock, kAttentionTile).value_or(0);
  if (rows != 0 && rows != kAttentionBlock && rows != kAttentionTile) {
    reader.add_error("block_rows", "is no block of rows", fmt::format("{} or {}", kAttentionBlock, kAttentionTile));
  }
  pass.block_rows = rows;
  pass.masked_tail_tiles = reader.required_number("masked_tail_tiles", 0, kMostTailTiles).value_or(0);
  pass.seconds_per_idle_block = reader.number("seconds_per_idle_block", 0, kLargestSeconds).value_or(0);
  pass.seconds_per_masked_pair = reader.number("seconds_per_masked_pair", 1e-15, kLargestSeconds).value_or(0);
  if (forward) pass.packs_heads = reader.boolean("packs_heads").value_or(false);
  pass.clock = reader.number("clock_hz", 1e8, 1e10).value_or(0);
  pass.starts_with_main_kernel = reader.boolean("starts_with_main_kernel").value_or(false);
  if (pass.packs_heads && (pass.block_rows == kAttentionBlock || pass.seconds_per_idle_block > 0)) {
    reader.add_error("packs_heads", "is true beside smaller blocks or idle ones, which packed tiles do not count",
                     fmt::format("\"block_rows\": {} and no \"seconds_per_idle_block\"", kAttentionTile));
  }
  if (const Json* residuals = reader.required("residuals", "an object of residuals")) {
    JsonReader band(*residuals, reader.file(), reader.child_path("residuals"), reader.errors());
    band.required_integer("rows", 1, 1'000'000);
    pass.residual_low = band.required_number("low", -0.95, 0).value_or(0);
    pass.residual_high = band.required_number("high", 0, 100).value_or(0);
    band.finish();
  }
  reader.finish();
  return pass;
}

void read_measured(JsonReader& parent, AttentionLibrary& library) {
  const Json* json = parent.required("measured", "an object: the device that was measured");
  if (json == nullptr) return;
  JsonReader reader(*json, parent.file(), parent.child_path("measured"), parent.errors());
  const auto generation = reader.required_choice("generation", generation_names());
  for (const GenerationName& one : kGenerations) {
    if (generation == one.name) library.measured_generation = one.generation;
  }
  library.measured_peak_flops_per_second =
      reader.required_number("bf16_dense_flops_per_second", 1e9, 1e18).value_or(1e9);
  library.measured_multiprocessors =
      static_cast<int>(reader.required_integer("multiprocessors", 1, 100'000).value_or(1));
  library.measured_memory_bytes_per_second = reader.required_number("memory_bytes_per_second", 1e9, 1e15).value_or(1e9);
  reader.finish();
}

// Generations whose pairs take as many clocks as the measured one's.
void read_same_clocks(JsonReader& reader, AttentionLibrary& library) {
  const Json* list = reader.find("same_clocks");
  if (list == nullptr) return;
  for (const GenerationName& one : kGenerations) {
    const bool named = list->is_array() && std::find(list->begin(), list->end(), one.name) != list->end();
    if (named) library.same_clocks.insert(one.generation);
  }
  if (!list->is_array() || library.same_clocks.size() != list->size()) {
    reader.add_error("same_clocks", "is no list of generations",
                     fmt::format("some of {}", fmt::join(generation_names(), ", ")));
    return;
  }
  if (library.forward.clock <= 0 || library.backward.clock <= 0) {
    reader.add_error("same_clocks", "needs the clock of each pass", "\"clock_hz\" in both");
  }
  for (const GenerationName& one : kGenerations) {
    if (library.same_clocks.count(one.generation) == 0) continue;
    if (one.generation == library.measured_generation) {
      reader.add_error("same_clocks", fmt::format("names \"{}\", which was measured", one.name), "other generations");
    } else if (library.matrix_share.count(one.generation) == 0) {
      reader.add_error("same_clocks", fmt::format("names \"{}\", which has no matrix share", one.name),
                       "generations of \"matrix_share\"");
    }
  }
}

void read_shares(JsonReader& parent, AttentionLibrary& library) {
  const Json* json = parent.required("matrix_share", "an object: shares by generation");
  if (json == nullptr) return;
  JsonReader reader(*json, parent.file(), parent.child_path("matrix_share"), parent.errors());
  for (const GenerationName& one : kGenerations) {
    if (const auto share = reader.number(one.name, 0.01, 1)) library.matrix_share[one.generation] = *share;
  }
  reader.finish();
  if (library.matrix_share.count(library.measured_generation) == 0) {
    parent.add_error("matrix_share", "lacks the generation that was measured", "its share among the others");
  }
}

// Clock of the multiprocessors that the peak stands for, in 1 / s.
double clock_of(GpuGeneration generation, double peak, int multiprocessors) {
  return peak / multiprocessors / facts_of(generation).matrix_flops_per_clock;
}

// Seconds of a pair's matrix products on one multiprocessor.
double matrix_seconds(const AttentionLibrary& library, GpuGeneration generation, double peak, int multiprocessors,
                      bool forward) {
  return (forward ? kForwardFlops : kBackwardFlops) * multiprocessors / (library.matrix_share.at(generation) * peak);
}

// The items of a launch, a query head's share of them.
struct Items {
  double tiles = 0;
  double visited = 0;  // pairs of the blocks that its tiles visit
};

// `group`: query heads of a key head.
Items items_of(const AttentionLibraryPass& pass, bool forward, const AttentionWork& work, std::int64_t group) {
  if (forward && pass.packs_heads && group > 1) {
    const std::size_t packing =
        std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(group)) - 2, kHeadPackings - 1);
    const PackedTiles& packed = work.packed[packing];
    const auto heads = static_cast<double>(std::int64_t{2} << packing);
    return {static_cast<double>(packed.tiles) / heads, packed.pairs};
  }
  Items items{static_cast<double>(forward ? work.q_tiles : work.k_tiles),
              forward ? work.forward_pairs : work.backward_pairs};
  if (pass.block_rows != kAttentionTile) {
    const double blocks = forward ? work.forward_blocks : work.backward_blocks;
    items.visited = static_cast<double>(kAttentionTile * kAttentionBlock) * blocks;
  }
  return items;
}

Expected<std::shared_ptr<const AttentionLibrary>> read_library(const Json& json, const std::string& file) {
  Errors errors;
  JsonReader reader(json, file, "", errors);
  if (!json.is_object()) return tl::unexpected(std::move(errors));
  reader.required_choice("schema", {"attention-library/1"});
  auto library = std::make_shared<AttentionLibrary>();
  library->name = reader.required_string("name").value_or("");
  library->date = reader.required_string("date").value_or("");
  reader.required_string("description");
  reader.required("sources", "a list of texts");
  read_measured(reader, *library);
  read_shares(reader, *library);
  library->forward = read_pass(reader, "forward", true);
  library->backward = read_pass(reader, "backward", false);
  read_same_clocks(reader, *library);
  reader.finish();
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return std::shared_ptr<const AttentionLibrary>(std::move(library));
}

}  // namespace

const std::vector<std::string>& attention_library_names() {
  static const std::vector<std::string> names = {"cudnn", "flash-attention-2", "flash-attention-3",
                                                 "flex-flash-attention"};
  return names;
}

Expected<std::shared_ptr<const AttentionLibrary>> parse_attention_library(const std::string& text,
                                                                          const std::string& file) {
  const Expected<Json> json = parse_json(text, file);
  if (!json) return tl::unexpected(json.error());
  return read_library(*json, file);
}

Expected<std::shared_ptr<const AttentionLibrary>> read_attention_library(const std::string& name,
                                                                         const std::string& data_directory) {
  const auto folder = std::filesystem::path(data_directory) / "topologies" / "devices" / "attention";
  const std::string file = (folder / (name + ".json")).string();
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  return read_library(*json, file);
}

double multiprocessor_clocks(const DeviceSpec& device) {
  const auto* at = std::find_if(std::begin(kGenerations), std::end(kGenerations),
                                [&](const GenerationName& one) { return one.generation == device.generation; });
  if (at == std::end(kGenerations)) return 0;
  return device.bf16_dense.value / at->matrix_flops_per_clock * at->highest_over_peak_clock;
}

std::vector<std::string> library_generations(const AttentionLibrary& library) {
  std::vector<std::string> names;
  for (const GenerationName& one : kGenerations) {
    if (library.matrix_share.count(one.generation) > 0) names.emplace_back(one.name);
  }
  return names;
}

double library_attention_seconds(const AttentionLibrary& library, const DeviceSpec& device, bool forward,
                                 const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                                 std::int64_t head_dim) {
  LH_ASSERT(work.pieces >= 1, "an attention launch has a piece");
  LH_ASSERT(kv_heads >= 1 && q_heads % kv_heads == 0 && head_dim >= 1, "attention with {} heads over {}, head_dim {}",
            q_heads, kv_heads, head_dim);
  LH_ASSERT(library.runs_on(device), "{} does not run on {}", library.name, device.name);
  const AttentionLibraryPass& pass = library.pass(forward);
  const double measured_peak = library.measured_peak_flops_per_second;
  const int measured_sms = library.measured_multiprocessors;
  const double peak = device.bf16_dense.value;
  const bool same_clocks = library.same_clocks.count(device.generation) > 0;
  const double measured_clock =
      same_clocks ? pass.clock : clock_of(library.measured_generation, measured_peak, measured_sms);
  const double slower_clock = measured_clock / clock_of(device.generation, peak, device.multiprocessors);
  const double slower_memory = library.measured_memory_bytes_per_second / device.memory_bandwidth.value;
  const double matrix = matrix_seconds(library, library.measured_generation, measured_peak, measured_sms, forward);
  const bool has_mask = work.pairs < work.all_pairs;
  const double measured_pair =
      has_mask && pass.seconds_per_masked_pair > 0 ? pass.seconds_per_masked_pair : pass.seconds_per_pair;
  const double share = same_clocks ? 0 : std::min(1.0, measured_pair / matrix);
  const double pair = share * matrix_seconds(library, device.generation, peak, device.multiprocessors, forward) +
                      (measured_pair - share * matrix) * slower_clock;

  const double width = static_cast<double>(head_dim) / kMeasuredHeadDim;
  const auto heads = static_cast<double>(q_heads);
  const auto [tiles, visited] = items_of(pass, forward, work, q_heads / kv_heads);
  const double tail = has_mask ? pass.masked_tail_tiles * visited / tiles : 0;
  const double even = heads / device.multiprocessors;
  const double idle = static_cast<double>(work.pieces * (forward ? work.most_q_tiles : work.most_k_tiles)) - tiles;
  const double seconds = pass.seconds_per_call +
                         width * (pair * (visited * even + tail) + pass.seconds_per_tile * slower_clock * tiles * even +
                                  pass.seconds_per_row * slower_memory * static_cast<double>(work.q_rows) * even) +
                         pass.seconds_per_idle_block * slower_clock * idle * even;
  const double longest = static_cast<double>(kAttentionTile * kAttentionTile) *
                         (forward ? work.longest_forward_tile : work.longest_backward_tile);
  const double one_item = pass.seconds_per_call + width * (pair * longest + pass.seconds_per_tile * slower_clock);
  // bf16: Q and O, K and V; the backward pass also reads dO and writes dQ, dK, dV.
  const double passes = forward ? 2 : 4;
  const double bytes = 2 * static_cast<double>(head_dim) * passes *
                       (heads * static_cast<double>(work.q_rows) + static_cast<double>(kv_heads * work.k_rows));
  return std::max({seconds, one_item, pass.seconds_per_call + bytes / device.memory_bandwidth.value});
}

}  // namespace longhaul
