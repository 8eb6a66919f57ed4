#include "validate/cpu/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "sim/core/error.h"
#include "sim/core/invariant.h"
#include "sim/schedule/checks.h"
#include "sim/schedule/coverage.h"
#include "validate/cpu/reference.h"
#include "validate/cpu/resident.h"

namespace longhaul {
namespace {

// A quantity of one layer (or of the whole model) that is compared as a unit.
struct Tracker {
  std::string name;
  double scale = 0;       // max|ref|
  double difference = 0;  // max|x - ref|; infinity once something is NaN
  std::int64_t compared = 0;
  std::vector<bool> seen;  // by element or row of the reference
  std::string worst;

  void compare(double value, double reference, const std::string& where) {
    double apart = std::abs(value - reference);
    if (!std::isfinite(apart)) apart = std::numeric_limits<double>::infinity();
    ++compared;
    if (apart <= difference) return;
    difference = apart;
    worst = where;
  }
  double error() const { return scale > 0 ? difference / scale : difference; }
};

double max_abs(const Matrix& values) { return values.size() == 0 ? 0.0 : values.cwiseAbs().maxCoeff(); }

class Verification {
 public:
  Verification(const Schedule& schedule, const VerifyOptions& options)
      : schedule_(schedule),
        options_(options),
        reference_(
            reference_step(schedule.model, *schedule.batch, make_parameters(schedule.model, options.parameter_seed))),
        groups_(parameter_groups(schedule.model)) {
    loss_.name = "loss";
    loss_.scale = std::abs(reference_.loss);
    loss_.seen.resize(1);
    prepare_parameters();
    prepare_activations();
  }

  void run(VerifyReport& report) {
    ExecutionOptions execution;
    execution.order = options_.order;
    execution.order_seed = options_.order_seed;
    execution.parameter_seed = options_.parameter_seed;
    execution.on_release = [this](int rank, const TensorData& tensor, const OpInstance* at) {
      observe(rank, tensor, at);
    };
    const ExecutionResult result = execute(schedule_, execution);
    loss_.compare(result.loss, reference_.loss, "the sum over ranks");
    loss_.seen[0] = true;
    report.loss = result.loss;
    report.ops = result.ops;
    report.collectives = result.collectives;
    collect(report);
  }

 private:
  void prepare_parameters() {
    for (const ParameterGroup& group : groups_) {
      const std::int64_t copies = group.unit == UnitKind::kLayer ? schedule_.model.layers : 1;
      std::vector<Tracker>& trackers = parameter_trackers_.emplace_back();
      for (std::int64_t layer = 0; layer < copies; ++layer) {
        Tracker tracker;
        tracker.name = group.name;
        tracker.seen.resize(static_cast<std::size_t>(group.end - group.begin));
        const std::vector<double>& values = unit_grads(group.unit, layer);
        for (std::int64_t i = group.begin; i < group.end; ++i) {
          tracker.scale = std::max(tracker.scale, std::abs(values[static_cast<std::size_t>(i)]));
        }
        trackers.push_back(std::move(tracker));
      }
    }
  }

  void prepare_activations() {
    const char* names[4] = {"O", "dQ", "dK", "dV"};
    for (const ReferenceLayer& layer : reference_.layers) {
      const Matrix* values[4] = {&layer.o, &layer.q_grad, &layer.k_grad, &layer.v_grad};
      std::vector<Tracker>& trackers = activation_trackers_.emplace_back(4);
      for (std::size_t i = 0; i < 4; ++i) {
        trackers[i].name = names[i];
        trackers[i].scale = max_abs(*values[i]);
        trackers[i].seen.resize(static_cast<std::size_t>(reference_.rows));
      }
      // Where every row sees one key, dQ and dK vanish and hold rounding errors of terms as large as dV.
      for (std::size_t i = 1; i < 3; ++i) trackers[i].scale = std::max(trackers[i].scale, 1e-4 * trackers[3].scale);
    }
  }

  const std::vector<double>& unit_grads(UnitKind unit, std::int64_t layer) const {
    switch (unit) {
      case UnitKind::kEmbedding:
        return reference_.embedding_grads;
      case UnitKind::kHead:
        return reference_.head_grads;
      case UnitKind::kLayer:
        break;
    }
    return reference_.layer_grads[static_cast<std::size_t>(layer)];
  }

  void observe(int rank, const TensorData& tensor, const OpInstance* at) {
    if (at == nullptr) {
      const auto range = unit_range(schedule_, rank, tensor.id, "grads", "grad_shard");
      if (range) compare_gradients(rank, tensor, *range);
      return;
    }
    const std::string& kind = schedule_.tensors[static_cast<std::size_t>(tensor.id.kind)].name;
    const bool output = kind == "attention_output";
    if (!output && kind != "qkv_grad") return;
    const auto layer = static_cast<std::size_t>(tensor.id.layer == kNoLayer ? at->layer : tensor.id.layer);
    if (output) {
      compare_rows(rank, tensor, layer, 0, reference_.layers[layer].o, 0);
      return;
    }
    const ModelShape& model = schedule_.model;
    compare_rows(rank, tensor, layer, 1, reference_.layers[layer].q_grad, 0);
    compare_rows(rank, tensor, layer, 2, reference_.layers[layer].k_grad, model.q_width());
    compare_rows(rank, tensor, layer, 3, reference_.layers[layer].v_grad, model.q_width() + model.kv_width());
  }

  void compare_gradients(int rank, const TensorData& tensor, const UnitRange& range) {
    const std::vector<double>& reference = unit_grads(range.unit, range.layer);
    const std::string where = fmt::format("rank {}, {}", rank, tensor_name(schedule_, tensor.id));
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const ParameterGroup& group = groups_[g];
      if (group.unit != range.unit) continue;
      Tracker& tracker = parameter_trackers_[g][static_cast<std::size_t>(range.layer)];
      const std::int64_t end = std::min(group.end, range.begin + range.count);
      for (std::int64_t i = std::max(group.begin, range.begin); i < end; ++i) {
        tracker.compare(tensor.values[static_cast<std::size_t>(i - range.begin)],
                        reference[static_cast<std::size_t>(i)], where);
        tracker.seen[static_cast<std::size_t>(i - group.begin)] = true;
      }
    }
  }

  void compare_rows(int rank, const TensorData& tensor, std::size_t layer, std::size_t which, const Matrix& reference,
                    std::int64_t column) {
    LH_ASSERT(tensor.row_map != nullptr && tensor.columns >= column + reference.cols(), "{} has {} columns",
              tensor_name(schedule_, tensor.id), tensor.columns);
    Tracker& tracker = activation_trackers_[layer][which];
    const std::string where = fmt::format("rank {}, {}, layer {}", rank, tensor_name(schedule_, tensor.id), layer);
    const std::vector<RowToken> tokens = row_tokens(*tensor.row_map);
    for (std::int64_t i = 0; i < tensor.rows; ++i) {
      const RowToken& token = tokens[static_cast<std::size_t>(i)];
      if (token.document < 0) continue;
      const std::int64_t row = reference_.row(*schedule_.batch, token.document, token.view, token.position);
      const double* values = tensor.values.data() + i * tensor.columns + column;
      for (std::int64_t j = 0; j < reference.cols(); ++j) tracker.compare(values[j], reference(row, j), where);
      tracker.seen[static_cast<std::size_t>(row)] = true;
    }
  }

  static void add(VerifyReport& report, const std::vector<Tracker>& trackers) {
    QuantityError quantity;
    quantity.name = trackers.front().name;
    for (const Tracker& tracker : trackers) {
      quantity.compared += tracker.compared;
      quantity.missing += std::count(tracker.seen.begin(), tracker.seen.end(), false);
      if (tracker.error() > quantity.error) {
        quantity.error = tracker.error();
        quantity.worst = tracker.worst;
      }
    }
    if (quantity.missing > 0) {
      quantity.error = std::numeric_limits<double>::infinity();
      quantity.worst = fmt::format("{} of the reference are held by no rank", quantity.missing);
    }
    report.worst = std::max(report.worst, quantity.error);
    report.quantities.push_back(std::move(quantity));
  }

  void collect(VerifyReport& report) const {
    add(report, {loss_});
    for (const std::vector<Tracker>& trackers : parameter_trackers_) add(report, trackers);
    for (std::size_t which = 0; which < 4; ++which) {
      std::vector<Tracker> trackers;
      for (const std::vector<Tracker>& layer : activation_trackers_) trackers.push_back(layer[which]);
      add(report, trackers);
    }
    report.pass = report.worst <= options_.tolerance;
  }

  const Schedule& schedule_;
  const VerifyOptions& options_;
  Reference reference_;
  std::vector<ParameterGroup> groups_;
  Tracker loss_;
  std::vector<std::vector<Tracker>> parameter_trackers_;   // by group, layer
  std::vector<std::vector<Tracker>> activation_trackers_;  // by layer: O, dQ, dK, dV
};

}  // namespace

double schedule_flops(const Schedule& schedule) {
  double flops = 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Cursor cursor(static_cast<std::int32_t>(rank));
    OpInstance at;
    while (cursor.next(schedule, at)) {
      const Op& op = *at.op;
      if (op.kind == OpKind::kGemm) {
        const GemmShape shape = gemm_shape(schedule, at);
        flops += 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
      } else if (op.kind == OpKind::kAttention && op.pieces >= 0) {
        const double pairs = static_cast<double>(at.shape->pieces[static_cast<std::size_t>(op.pieces)]->pairs);
        const double each = op.pass == Pass::kBackward ? 10.0 : 4.0;  // backward forms the scores again
        flops += each * pairs * static_cast<double>(op.q_heads * op.head_dim);
      }
    }
  }
  return flops;
}

VerifyReport verify(const Schedule& schedule, const VerifyOptions& options) {
  VerifyReport report;
  report.flops = schedule_flops(schedule) + reference_flops(schedule.model, *schedule.batch);
  if (report.flops > options.flop_limit) {
    throw LimitError(fmt::format("verification needs {:.3g} FLOP, more than {:.3g}; use fewer tokens, layers or ranks",
                                 report.flops, options.flop_limit));
  }
  report.violations = check_schedule(schedule).violations;
  const std::vector<std::string> uncovered = check_coverage(schedule);
  report.violations.insert(report.violations.end(), uncovered.begin(), uncovered.end());
  Verification(schedule, options).run(report);
  report.pass = report.pass && report.violations.empty();
  return report;
}

}  // namespace longhaul
