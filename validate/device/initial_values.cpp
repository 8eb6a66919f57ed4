#include "validate/device/initial_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"
#include "validate/cpu/ops.h"
#include "validate/cpu/storage.h"
#include "validate/cpu/wide_product.h"

namespace longhaul {
namespace {

struct Resident {
  std::int32_t rank = 0;
  TensorId id;
  std::optional<UnitRange> range;
};
using UnitKey = std::pair<UnitKind, std::int64_t>;  // unit, layer

bool has_kind(const Schedule& schedule, const std::string& name) {
  return std::any_of(schedule.tensors.begin(), schedule.tensors.end(),
                     [&](const TensorKind& kind) { return kind.name == name; });
}

// Parameters of the model that was asked last: several steps of one model start from the same ones.
class RoundedUnits {
 public:
  const std::vector<Bf16>& get(const ModelShape& model, const UnitKey& key, std::uint64_t seed);

 private:
  using Owner = std::tuple<std::uint64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, bool, bool, bool>;
  Owner owner_;
  std::map<UnitKey, std::vector<Bf16>> units_;
};

// Runs body(begin, end) over blocks of [0, count) on all cores.
template <class Body>
void by_blocks(std::size_t count, const Body& body) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  share_out(static_cast<std::int64_t>((count + kBlock - 1) / kBlock), hardware_threads(), [&](std::int64_t block) {
    const std::size_t begin = static_cast<std::size_t>(block) * kBlock;
    body(begin, std::min(count, begin + kBlock));
  });
}

std::vector<Bf16> rounded(const std::vector<double>& values) {
  std::vector<Bf16> result(values.size());
  by_blocks(values.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) result[i] = to_bf16(static_cast<float>(values[i]));
  });
  return result;
}

const std::vector<Bf16>& RoundedUnits::get(const ModelShape& model, const UnitKey& key, std::uint64_t seed) {
  const Owner owner{seed,        model.hidden,          model.ffn,      model.q_heads, model.kv_heads, model.head_dim,
                    model.vocab, model.tied_embeddings, model.qkv_bias, model.qk_norm};
  if (owner != owner_) units_.clear();
  owner_ = owner;
  const auto [at, fresh] = units_.try_emplace(key);
  if (fresh) at->second = rounded(unit_values(model, key.first, key.second, seed));
  return at->second;
}

void append(std::vector<std::byte>& bytes, const void* data, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + size);
}

std::vector<std::byte> parameter_bytes(const std::vector<Bf16>& unit, const UnitRange& range) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.count) * 2);
  const std::int64_t real =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(unit.size()) - range.begin, 0, range.count);
  if (real > 0) std::memcpy(bytes.data(), unit.data() + range.begin, static_cast<std::size_t>(real) * 2);
  return bytes;
}

// Master weights alone: the moments behind them are zero, as fresh state is, and whoever stores fills the rest with
// zeros.
std::vector<std::byte> master_bytes(const std::vector<Bf16>& unit, const UnitRange& range) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.count) * 4, std::byte{0});
  const std::int64_t real =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(unit.size()) - range.begin, 0, range.count);
  by_blocks(static_cast<std::size_t>(real), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const float value = to_float(unit[static_cast<std::size_t>(range.begin) + i]);
      std::memcpy(bytes.data() + 4 * i, &value, sizeof(value));
    }
  });
  return bytes;
}

}  // namespace

std::optional<UnitRange> resident_range(const Schedule& schedule, std::int32_t rank, const TensorId& tensor) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(tensor.kind)];
  if (auto range = unit_range(schedule, rank, tensor, "params", "param_shard")) return range;
  const std::size_t suffix = kind.name.find("_optimizer_state");
  if (suffix == std::string::npos) return std::nullopt;
  const bool sharded = has_kind(schedule, kind.name.substr(0, suffix) + "_param_shard");
  const char* const name = "optimizer_state";
  auto range = unit_range(schedule, rank, tensor, sharded ? "" : name, sharded ? name : "");
  if (!range) return range;
  const std::int64_t member = range->count == 0 ? 0 : range->begin / range->count;
  range->count = kind.flat_rows;
  range->begin = member * kind.flat_rows;
  return range;
}

void load_residents(const Schedule& schedule, const std::vector<std::int32_t>& ranks, std::uint64_t parameter_seed,
                    const StoreBytes& store) {
  std::map<UnitKey, std::vector<Resident>> by_unit;
  for (const std::int32_t rank : ranks) {
    OpInstance outside;
    outside.rank = rank;
    outside.chunk = kNoChunk;
    const ProgramId program = schedule.ranks[static_cast<std::size_t>(rank)].program;
    for (const TensorRef& ref : schedule.programs[static_cast<std::size_t>(program)].resident) {
      const TensorId id = resolve(outside, ref);
      const MemoryCategory category = schedule.tensors[static_cast<std::size_t>(id.kind)].category;
      const auto range = resident_range(schedule, rank, id);
      if (range) {
        by_unit[{range->unit, range->layer}].push_back({rank, id, range});
      } else if (category == MemoryCategory::kGradients || category == MemoryCategory::kOptimizer) {
        store(rank, id, std::vector<std::byte>(static_cast<std::size_t>(tensor_bytes(schedule, rank, id))));
      } else {
        throw ScheduleError(fmt::format("rank {}: no values for resident {}", rank, tensor_name(schedule, id)));
      }
    }
  }
  static thread_local RoundedUnits units;
  for (const auto& [key, residents] : by_unit) {
    const std::vector<Bf16>& unit = units.get(schedule.model, key, parameter_seed);
    for (const Resident& resident : residents) {
      const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(resident.id.kind)];
      const bool state = kind.category == MemoryCategory::kOptimizer;
      std::vector<std::byte> bytes =
          state ? master_bytes(unit, *resident.range) : parameter_bytes(unit, *resident.range);
      store(resident.rank, resident.id, bytes);
    }
  }
}

ParameterValues bf16_parameters(const ModelShape& model, std::uint64_t seed) {
  ParameterValues values = make_parameters(model, seed);
  const auto round = [](std::vector<double>& unit) {
    by_blocks(unit.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) unit[i] = to_float(to_bf16(static_cast<float>(unit[i])));
    });
  };
  round(values.embedding);
  for (std::vector<double>& layer : values.layers) round(layer);
  round(values.head);
  return values;
}

std::vector<std::byte> given_bytes(const Schedule& schedule, const OpInstance& at, const View& view) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(view.tensor.kind)];
  const TensorId id = resolve(at, view.tensor);
  const std::vector<RowToken> tokens = row_tokens(*at.shape->row_maps[static_cast<std::size_t>(kind.rows)]);
  std::vector<std::byte> bytes;
  for (const RowToken& token : tokens) {
    for (std::int64_t j = 0; j < kind.columns; ++j) {
      const double value = token.document < 0 ? 0.0 : given_value(id.kind, at.layer, token, j);
      const Bf16 element = to_bf16(static_cast<float>(value));
      append(bytes, &element, sizeof(element));
    }
  }
  return bytes;
}

}  // namespace longhaul
