#include "validate/cpu/parameters.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "sim/core/invariant.h"
#include "sim/core/mix.h"
#include "validate/cpu/wide_product.h"

namespace longhaul {
namespace {

// Fills consecutive ranges of one unit.
class Filler {
 public:
  Filler(UnitKind unit, std::int64_t layer, std::uint64_t seed, std::int64_t elements)
      : key_(mix(mix(seed) ^ (static_cast<std::uint64_t>(unit) << 32) ^ static_cast<std::uint64_t>(layer))) {
    values_.reserve(static_cast<std::size_t>(elements));
  }

  // `count` values, uniform in centre +- width.
  void add(std::int64_t count, double centre, double width) {
    constexpr std::int64_t kBlock = std::int64_t{1} << 20;
    const std::size_t begin = values_.size();
    values_.resize(begin + static_cast<std::size_t>(count));
    share_out((count + kBlock - 1) / kBlock, static_cast<int>(std::thread::hardware_concurrency()),
              [&](std::int64_t block) {
                const std::size_t end = begin + static_cast<std::size_t>(std::min(count, (block + 1) * kBlock));
                for (std::size_t i = begin + static_cast<std::size_t>(block * kBlock); i < end; ++i) {
                  const std::uint64_t bits = mix(key_ + static_cast<std::uint64_t>(i));
                  const double unit = static_cast<double>(bits >> 11) * 0x1.0p-52 - 1.0;
                  values_[i] = centre + width * unit;
                }
              });
  }
  // A matrix with `inputs` rows and `count` elements: variance 1 / inputs, so that x W is about as large as x.
  void add_matrix(std::int64_t count, std::int64_t inputs) {
    add(count, 0.0, std::sqrt(3.0 / static_cast<double>(inputs)));
  }
  std::vector<double> take() { return std::move(values_); }

 private:
  std::uint64_t key_;
  std::vector<double> values_;
};

}  // namespace

const char* to_string(UnitKind unit) {
  switch (unit) {
    case UnitKind::kEmbedding:
      return "embedding";
    case UnitKind::kLayer:
      return "layer";
    case UnitKind::kHead:
      return "head";
  }
  return "";
}

std::int64_t unit_elements(const ModelShape& model, UnitKind unit) {
  switch (unit) {
    case UnitKind::kEmbedding:
      return embedding_parameters(model);
    case UnitKind::kLayer:
      return layer_parameters(model).total();
    case UnitKind::kHead:
      return head_parameters(model);
  }
  return 0;
}

std::vector<double> unit_values(const ModelShape& model, UnitKind unit, std::int64_t layer, std::uint64_t seed) {
  Filler filler(unit, layer, seed, unit_elements(model, unit));
  switch (unit) {
    case UnitKind::kEmbedding:
      filler.add(embedding_parameters(model), 0.0, 1.0);
      break;
    case UnitKind::kLayer: {
      const LayerParameters parameters = layer_parameters(model);
      filler.add(parameters.attention_norm, 1.0, 0.1);
      filler.add_matrix(parameters.qkv, model.hidden);
      filler.add_matrix(parameters.output, model.q_width());
      filler.add(parameters.ffn_norm, 1.0, 0.1);
      filler.add_matrix(parameters.gate_up, model.hidden);
      filler.add_matrix(parameters.down, model.ffn);
      filler.add(parameters.extra, 0.0, 0.1);
      break;
    }
    case UnitKind::kHead:
      filler.add(model.hidden, 1.0, 0.1);
      if (!model.tied_embeddings) filler.add_matrix(model.hidden * model.vocab, model.hidden);
      break;
  }
  std::vector<double> values = filler.take();
  LH_ASSERT(static_cast<std::int64_t>(values.size()) == unit_elements(model, unit), "unit {} has {} values",
            to_string(unit), values.size());
  return values;
}

std::vector<double> unit_slice(const std::vector<double>& unit, std::int64_t begin, std::int64_t count) {
  std::vector<double> slice(static_cast<std::size_t>(count), 0.0);
  const auto size = static_cast<std::int64_t>(unit.size());
  const std::int64_t real = std::clamp<std::int64_t>(size - begin, 0, count);
  if (real > 0) std::copy_n(unit.begin() + begin, real, slice.begin());
  return slice;
}

}  // namespace longhaul
