#include "validate/device/numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "validate/cpu/resident.h"
#include "validate/cpu/wide_product.h"

namespace longhaul {
namespace {

bool is_activation(const std::string& quantity) {
  return quantity == "O" || quantity == "dQ" || quantity == "dK" || quantity == "dV" || quantity == "loss";
}

// Sums of squares of one quantity in one layer.
struct Norm {
  double difference = 0, reference = 0;
  std::map<std::int32_t, double> by_rank;  // difference
  std::int64_t elements = 0;
  std::vector<bool> seen;                                   // rows, of activations
  std::int64_t columns = 0;                                 // of a row
  std::int64_t size = 0;                                    // elements, of parameters
  std::vector<std::pair<std::int64_t, std::int64_t>> held;  // ranges of them, of parameters

  // Elements that no rank holds.
  std::int64_t missing() const {
    std::int64_t count = std::count(seen.begin(), seen.end(), false) * columns + size, end = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges = held;
    std::sort(ranges.begin(), ranges.end());
    for (const auto& [from, to] : ranges) {
      count -= std::max<std::int64_t>(0, to - std::max(from, end));
      end = std::max(end, to);
    }
    return count;
  }

  void add(std::int32_t rank, double difference2) {
    if (!std::isfinite(difference2)) difference2 = std::numeric_limits<double>::infinity();
    difference += difference2;
    by_rank[rank] += difference2;
  }
  double error(double floor2) const {
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();  // not infinity / infinity
    const double scale = std::max(reference, floor2);
    if (scale > 0) return std::sqrt(difference / scale);
    return difference > 0 ? std::numeric_limits<double>::infinity() : 0;
  }
};

float bf16_at(const StepTensor& tensor, std::size_t index) {
  Bf16 value;
  std::memcpy(&value, tensor.bytes.data() + 2 * index, 2);
  return to_float(value);
}

class Comparison {
 public:
  Comparison(const Schedule& schedule, const StepReference& reference)
      : schedule_(schedule), reference_(reference), order_(*schedule.batch), groups_(parameter_groups(schedule.model)) {
    const auto layers = static_cast<std::size_t>(schedule.model.layers);
    activations_.resize(layers, std::vector<Norm>(4));
    for (std::size_t layer = 0; layer < layers; ++layer) {
      for (std::size_t which = 0; which < 4; ++which) {
        Norm& norm = activations_[layer][which];
        norm.seen.resize(static_cast<std::size_t>(order_.rows), false);
        norm.columns = table(static_cast<std::int16_t>(layer), which).columns;
      }
    }
    for (const ParameterGroup& group : groups_) {
      parameters_.emplace_back(group.unit == UnitKind::kLayer ? layers : 1);
      for (Norm& norm : parameters_.back()) norm.size = group.end - group.begin;
    }
  }

  std::vector<QuantityNorm> run(const StepOutcome& outcome) {
    for (const StepTensor& tensor : outcome.tensors) {
      if (tensor.before_op) continue;
      const std::string& kind = schedule_.tensors[static_cast<std::size_t>(tensor.id.kind)].name;
      const ModelShape& model = schedule_.model;
      if (kind == "attention_output") rows(tensor, 0, 0);
      if (kind == "qkv_grad") {
        rows(tensor, 1, 0);
        rows(tensor, 2, model.q_width());
        rows(tensor, 3, model.q_width() + model.kv_width());
      }
      if (!tensor.resident) continue;
      if (const auto range = unit_range(schedule_, tensor.rank, tensor.id, "grads", "grad_shard")) {
        gradients(tensor, *range);
      }
    }
    return collect(outcome);
  }

 private:
  const ReferenceRows& table(std::int16_t layer, std::size_t which) const {
    const StepReference::Layer& of = reference_.layers[static_cast<std::size_t>(layer)];
    const ReferenceRows* tables[4] = {&of.o, &of.dq, &of.dk, &of.dv};
    return *tables[which];
  }

  void rows(const StepTensor& tensor, std::size_t which, std::int64_t column) {
    const std::int16_t layer = layer_of(tensor);
    const ReferenceRows& expected = table(layer, which);
    Norm& norm = activations_[static_cast<std::size_t>(layer)][which];
    const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(tensor.id.kind)];
    const RowMap& map = *schedule_.shape(tensor.rank, tensor.id.chunk).row_maps[static_cast<std::size_t>(kind.rows)];
    const std::vector<RowToken> tokens = row_tokens(map);
    std::vector<std::int64_t> reference_rows(tokens.size(), -1);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].document < 0) continue;
      reference_rows[i] = order_.row(*schedule_.batch, tokens[i]);
      if (expected.values.columns == 0 && !expected.rounded.holds(reference_rows[i])) {
        reference_rows[i] = -1;  // the reference has no such row: it stays unseen
        continue;
      }
      norm.elements += expected.columns;
      norm.seen[static_cast<std::size_t>(reference_rows[i])] = true;
    }
    // Sums of blocks, added in order: the same on any number of threads.
    constexpr std::size_t kBlock = 256;
    std::vector<std::pair<double, double>> sums((tokens.size() + kBlock - 1) / kBlock);
    share_out(static_cast<std::int64_t>(sums.size()), hardware_threads(), [&](std::int64_t block) {
      auto& [difference, reference] = sums[static_cast<std::size_t>(block)];
      const std::size_t end = std::min(tokens.size(), static_cast<std::size_t>(block + 1) * kBlock);
      for (std::size_t i = static_cast<std::size_t>(block) * kBlock; i < end; ++i) {
        if (reference_rows[i] < 0) continue;
        const auto index = i * static_cast<std::size_t>(kind.columns) + static_cast<std::size_t>(column);
        const auto add = [&](std::int64_t j, float value) {
          const double wanted = static_cast<double>(value);
          const double apart = static_cast<double>(bf16_at(tensor, index + static_cast<std::size_t>(j))) - wanted;
          difference += apart * apart;
          reference += wanted * wanted;
        };
        if (expected.values.columns > 0) {
          const float* values = expected.values.row(reference_rows[i]);
          for (std::int64_t j = 0; j < expected.columns; ++j) add(j, values[j]);
        } else {
          const Bf16* values = expected.rounded.row(reference_rows[i]) + expected.first_column;
          for (std::int64_t j = 0; j < expected.columns; ++j) add(j, to_float(values[j]));
        }
      }
    });
    double sum = 0;
    for (const auto& [difference, reference] : sums) {
      sum += difference;
      norm.reference += reference;
    }
    norm.add(tensor.rank, sum);
  }

  const std::vector<float>& unit_grads(const UnitRange& range) const {
    switch (range.unit) {
      case UnitKind::kEmbedding:
        return reference_.embedding_grads;
      case UnitKind::kHead:
        return reference_.head_grads;
      case UnitKind::kLayer:
        break;
    }
    return reference_.layer_grads[static_cast<std::size_t>(range.layer)];
  }

  void gradients(const StepTensor& tensor, const UnitRange& range) {
    const std::vector<float>& expected = unit_grads(range);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const ParameterGroup& group = groups_[g];
      if (group.unit != range.unit) continue;
      Norm& norm = parameters_[g][static_cast<std::size_t>(range.layer)];
      const std::int64_t begin = std::max(group.begin, range.begin);
      const std::int64_t end = std::min(group.end, range.begin + range.count);
      if (begin >= end) continue;
      norm.elements += end - begin;
      norm.held.emplace_back(begin - group.begin, end - group.begin);
      // Sums of blocks, added in order: the same on any number of threads.
      constexpr std::int64_t kBlock = std::int64_t{1} << 18;
      std::vector<std::pair<double, double>> sums(static_cast<std::size_t>((end - begin + kBlock - 1) / kBlock));
      share_out(static_cast<std::int64_t>(sums.size()), hardware_threads(), [&](std::int64_t block) {
        double difference = 0, reference = 0;
        const std::int64_t first = begin + block * kBlock;
        for (std::int64_t i = first; i < std::min(end, first + kBlock); ++i) {
          const double value = static_cast<double>(expected[static_cast<std::size_t>(i)]);
          const double apart = static_cast<double>(bf16_at(tensor, static_cast<std::size_t>(i - range.begin))) - value;
          difference += apart * apart;
          reference += value * value;
        }
        sums[static_cast<std::size_t>(block)] = {difference, reference};
      });
      double sum = 0;
      for (const auto& [difference, reference] : sums) {
        sum += difference;
        norm.reference += reference;
      }
      norm.add(tensor.rank, sum);
    }
  }

  // The worst of the layers; `floors` by layer, squared.
  static QuantityNorm worst_of(const std::string& name, const std::vector<const Norm*>& layers,
                               const std::vector<double>& floors, bool layered) {
    QuantityNorm result;
    result.quantity = name;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const Norm& norm = *layers[layer];
      result.elements += norm.elements;
      result.missing += norm.missing();
      const double error = norm.error(floors[layer]);
      if (error < result.error) continue;
      result.error = error;
      const auto rank = std::max_element(norm.by_rank.begin(), norm.by_rank.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      if (rank == norm.by_rank.end()) continue;
      result.worst =
          layered ? fmt::format("layer {}, rank {}", layer, rank->first) : fmt::format("rank {}", rank->first);
    }
    if (result.missing > 0) {
      result.error = std::numeric_limits<double>::infinity();
      result.worst = fmt::format("{} elements of the reference are held by no rank", result.missing);
    }
    return result;
  }

  std::vector<QuantityNorm> collect(const StepOutcome& outcome) const {
    std::vector<QuantityNorm> results;
    QuantityNorm loss;
    loss.quantity = "loss";
    loss.elements = 1;
    loss.error = std::abs(outcome.loss - reference_.loss) / std::abs(reference_.loss);
    if (!std::isfinite(loss.error)) loss.error = std::numeric_limits<double>::infinity();
    if (reference_.loss == 0) loss.error = outcome.loss == 0 ? 0 : std::numeric_limits<double>::infinity();
    results.push_back(loss);
    const char* names[4] = {"O", "dQ", "dK", "dV"};
    for (std::size_t which = 0; which < 4; ++which) {
      std::vector<const Norm*> layers;
      std::vector<double> floors;
      for (const std::vector<Norm>& layer : activations_) {
        layers.push_back(&layer[which]);
        const bool vanishes = which == 1 || which == 2;
        floors.push_back(vanishes ? kGradientFloor * kGradientFloor * layer[3].reference : 0);
      }
      results.push_back(worst_of(names[which], layers, floors, true));
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<const Norm*> layers;
      for (const Norm& norm : parameters_[g]) layers.push_back(&norm);
      results.push_back(worst_of(groups_[g].name, layers, std::vector<double>(layers.size(), 0.0),
                                 groups_[g].unit == UnitKind::kLayer));
    }
    return results;
  }

  const Schedule& schedule_;
  const StepReference& reference_;
  RowOrder order_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::vector<Norm>> activations_;  // by layer: O, dQ, dK, dV
  std::vector<std::vector<Norm>> parameters_;   // by group, layer
};

ReferenceRows table_of(const Matrix& values) {
  ReferenceRows rows;
  rows.columns = values.cols();
  rows.values = RowTable<float>(values.rows(), values.cols());
  share_out(values.rows(), hardware_threads(), [&](std::int64_t i) {
    for (std::int64_t j = 0; j < values.cols(); ++j) rows.values.row(i)[j] = static_cast<float>(values(i, j));
  });
  return rows;
}

// `limit_of(a quantity, the same one of `beside` or nullptr)`.
template <class LimitOf>
std::vector<NumericsResult> judged(const std::vector<QuantityNorm>& errors, const std::vector<QuantityNorm>& beside,
                                   const std::string& reference, const LimitOf& limit_of) {
  std::vector<NumericsResult> results;
  for (const QuantityNorm& of : errors) {
    const auto same = std::find_if(beside.begin(), beside.end(),
                                   [&](const QuantityNorm& other) { return other.quantity == of.quantity; });
    NumericsResult result;
    result.quantity = of.quantity;
    result.reference = reference;
    result.error = of.error;
    result.undistributed_error = same == beside.end() ? 0 : same->error;
    result.limit = limit_of(of, same == beside.end() ? nullptr : &*same);
    result.elements = of.elements;
    result.missing = of.missing;
    result.worst = of.worst;
    result.pass = within_limit(result);
    results.push_back(std::move(result));
  }
  return results;
}

constexpr const char* kUndistributedStep = "undistributed-bf16";
constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 20;

std::vector<float> floats(const std::vector<double>& values) {
  std::vector<float> result(values.size());
  const auto count = static_cast<std::int64_t>(values.size());
  share_out((count + kElementsAtATime - 1) / kElementsAtATime, hardware_threads(), [&](std::int64_t block) {
    const std::int64_t begin = block * kElementsAtATime, end = std::min(count, begin + kElementsAtATime);
    std::copy(values.begin() + begin, values.begin() + end, result.begin() + begin);
  });
  return result;
}

}  // namespace

bool within_limit(const NumericsResult& result) {
  return result.missing == 0 && result.limit < kErrorOfZeros && result.error <= result.limit;
}

StepWish numerics_wish(const Schedule& schedule) {
  StepWish wish;
  wish.released = {"attention_output", "qkv_grad"};
  for (const TensorKind& kind : schedule.tensors) {
    if (kind.rows == kFlat && kind.category == MemoryCategory::kGradients) wish.resident.push_back(kind.name);
  }
  return wish;
}

StepWish row_wish(const Schedule& schedule) {
  StepWish wish = numerics_wish(schedule);
  wish.released.insert(wish.released.end(), {"qkv", "attention_output_grad"});
  wish.backward_lse = true;
  return wish;
}

StepReference reference_of(const ModelShape&, const Reference& reference) {
  StepReference result;
  result.name = "fp64";
  result.loss = reference.loss;
  for (const ReferenceLayer& layer : reference.layers) {
    result.layers.push_back(
        {table_of(layer.o), table_of(layer.q_grad), table_of(layer.k_grad), table_of(layer.v_grad)});
  }
  result.embedding_grads = floats(reference.embedding_grads);
  result.head_grads = floats(reference.head_grads);
  for (const std::vector<double>& layer : reference.layer_grads) result.layer_grads.push_back(floats(layer));
  return result;
}

StepReference reference_of(const Schedule& undistributed, std::shared_ptr<const StepOutcome> outcome) {
  const ModelShape& model = undistributed.model;
  StepReference result;
  result.name = kUndistributedStep;
  result.loss = outcome->loss;
  result.step = outcome;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const auto number = static_cast<std::int16_t>(layer);
    const RowView o = rows_of(undistributed, *outcome, "attention_output", number);
    const RowView grad = rows_of(undistributed, *outcome, "qkv_grad", number);
    const std::int64_t q_width = model.q_width(), kv_width = model.kv_width();
    result.layers.push_back({{q_width, {}, o, 0},
                             {q_width, {}, grad, 0},
                             {kv_width, {}, grad, q_width},
                             {kv_width, {}, grad, q_width + kv_width}});
  }
  result.embedding_grads.resize(static_cast<std::size_t>(unit_elements(model, UnitKind::kEmbedding)));
  result.head_grads.resize(static_cast<std::size_t>(unit_elements(model, UnitKind::kHead)));
  result.layer_grads.resize(static_cast<std::size_t>(model.layers));
  for (std::vector<float>& layer : result.layer_grads) {
    layer.resize(static_cast<std::size_t>(unit_elements(model, UnitKind::kLayer)));
  }
  for (const StepTensor& tensor : outcome->tensors) {
    if (!tensor.resident) continue;
    const auto range = unit_range(undistributed, tensor.rank, tensor.id, "grads", "grad_shard");
    if (!range) continue;
    std::vector<float>* into = &result.embedding_grads;
    if (range->unit == UnitKind::kHead) into = &result.head_grads;
    if (range->unit == UnitKind::kLayer) into = &result.layer_grads[static_cast<std::size_t>(range->layer)];
    const std::int64_t count = std::min(range->count, static_cast<std::int64_t>(into->size()) - range->begin);
    share_out((count + kElementsAtATime - 1) / kElementsAtATime, hardware_threads(), [&](std::int64_t block) {
      const std::int64_t begin = block * kElementsAtATime, end = std::min(count, begin + kElementsAtATime);
      for (std::int64_t i = begin; i < end; ++i) {
        (*into)[static_cast<std::size_t>(range->begin + i)] = bf16_at(tensor, static_cast<std::size_t>(i));
      }
    });
  }
  return result;
}

std::vector<QuantityNorm> relative_errors(const Schedule& schedule, const StepOutcome& outcome,
                                          const StepReference& reference) {
  return Comparison(schedule, reference).run(outcome);
}

std::vector<NumericsResult> judge(const std::vector<QuantityNorm>& errors,
                                  const std::vector<QuantityNorm>& undistributed, const std::string& reference,
                                  const NumericsLimits& limits) {
  return judged(errors, undistributed, reference, [&](const QuantityNorm& of, const QuantityNorm* alone) {
    return alone == nullptr || is_activation(of.quantity) ? limits.activations : limits.gradient_factor * alone->error;
  });
}

std::vector<NumericsResult> judge_against_step(const std::vector<QuantityNorm>& errors,
                                               const std::vector<QuantityNorm>& other, const NumericsLimits& limits) {
  return judged(errors, other, kUndistributedStep, [&](const QuantityNorm&, const QuantityNorm* apart) {
    return std::max(limits.activations, apart == nullptr ? 0 : limits.gradient_factor * apart->error);
  });
}

}  // namespace longhaul
