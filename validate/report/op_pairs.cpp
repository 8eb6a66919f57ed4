#include "validate/report/op_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "validate/report/comparison.h"

namespace longhaul {
namespace {

using Place = std::pair<std::int32_t, std::int32_t>;  // rank, position

template <class Op>
Place place_of(const Op& op) {
  return {op.rank, op.position};
}

// An exclusion of all ops of all ranks says something about the run, not about its ops.
bool is_excluded(const RunRecord& record, const PredictedOp& op) {
  return std::any_of(record.exclusions.begin(), record.exclusions.end(), [&](const Exclusion& exclusion) {
    if (exclusion.rank < 0 && exclusion.position < 0) return false;
    return (exclusion.rank < 0 || exclusion.rank == op.rank) &&
           (exclusion.position < 0 || exclusion.position == op.position);
  });
}

bool is_same(const PredictedOp& predicted, const MeasuredOp& measured) {
  return predicted.kind == measured.kind && predicted.pass == measured.pass && predicted.segment == measured.segment &&
         predicted.index == measured.index && predicted.layer == measured.layer && predicted.chunk == measured.chunk &&
         predicted.label == measured.label;
}

// Collects the faults of ops; counts those beyond the first ten of a kind.
class OpFaults {
 public:
  OpFaults(const RecordPlace& place, Errors& errors) : place_(place), errors_(&errors) {}
  void missing(const PredictedOp& op) {
    if (++missing_ > kNamed) return;
    errors_->push_back({place_.file, place_.path,
                        fmt::format("lacks op {} of rank {}, `{}` ({}, layer {})", op.position, op.rank, op.label,
                                    to_string(op.pass), op.layer),
                        "every op of the schedule, or an exclusion that says why it is not there", ""});
  }
  void unknown(const MeasuredOp& op) {
    if (++unknown_ > kNamed) return;
    errors_->push_back({place_.file, place_.path,
                        fmt::format("holds op {} of rank {}, `{}`, which the schedule does not have there", op.position,
                                    op.rank, op.label),
                        "ops of the schedule by rank and position, each once", ""});
  }
  void finish() {
    count(missing_, "more ops are missing");
    count(unknown_, "more ops are not of the schedule");
  }

 private:
  static constexpr int kNamed = 10;
  void count(int all, const char* what) {
    if (all > kNamed) {
      errors_->push_back({place_.file, place_.path, fmt::format("{} {}", all - kNamed, what), "", ""});
    }
  }
  const RecordPlace& place_;
  Errors* errors_;
  int missing_ = 0, unknown_ = 0;
};

void compare_ops(const Prediction& prediction, const RunRecord& record, const RecordPlace& place, Errors& errors) {
  OpFaults faults(place, errors);
  std::map<Place, const PredictedOp*> wanted;
  for (const PredictedOp& op : prediction.ops) wanted.emplace(place_of(op), &op);
  std::map<Place, bool> found;
  for (std::size_t i = 0; i < record.ops.size(); ++i) {
    const auto at = wanted.find(place_of(record.ops[i]));
    const bool fits = at != wanted.end() && is_same(*at->second, record.ops[i]);
    if (!fits || !found.emplace(place_of(record.ops[i]), true).second) faults.unknown(record.ops[i]);
  }
  for (const PredictedOp& op : prediction.ops) {
    if (!found.contains(place_of(op)) && !is_excluded(record, op)) faults.missing(op);
  }
  faults.finish();
}

// The k-th calls of a group's members belong together: indices into the ops, by (group, k).
std::map<std::pair<GroupId, int>, std::vector<std::size_t>> calls_of(const std::vector<MeasuredOp>& ops) {
  std::map<std::pair<GroupId, std::int32_t>, int> count;  // by group and rank
  std::map<std::pair<GroupId, int>, std::vector<std::size_t>> calls;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == OpKind::kCollective) calls[{ops[i].group, count[{ops[i].group, ops[i].rank}]++}].push_back(i);
  }
  return calls;
}

}  // namespace

Errors record_faults(const Prediction& prediction, const RunRecord& record, const RecordPlace& place) {
  Errors errors;
  const auto fault = [&](const char* key, std::string message, std::string expected) {
    errors.push_back({place.file, place.path + key, std::move(message), std::move(expected), ""});
  };
  const std::uint64_t wanted = schedule_fingerprint(*prediction.schedule);
  if (record.identity.fingerprint != wanted) {
    fault("/identity/fingerprint",
          fmt::format("{:016x} is another schedule (written by Longhaul {} of {}, {} on study {})",
                      record.identity.fingerprint,
                      record.identity.version.empty() ? "of unknown version" : record.identity.version,
                      record.identity.date, record.identity.strategy, record.identity.study),
          fmt::format("{:016x}, what this version makes of the study; measure again if the strategy changed", wanted));
    return errors;  // every op would be a fault
  }
  if (record.ranks != static_cast<std::int32_t>(prediction.schedule->ranks.size())) {
    fault("/ranks", fmt::format("is {}", record.ranks),
          fmt::format("{}, the ranks of the schedule", prediction.schedule->ranks.size()));
  }
  if (record.repeats < 1) fault("/repeats", fmt::format("is {}", record.repeats), "at least one timed repeat");
  compare_ops(prediction, record, place, errors);
  return errors;
}

std::vector<std::vector<double>> op_seconds(const RunRecord& record) {
  std::vector<std::vector<double>> seconds(record.ops.size());
  for (std::size_t i = 0; i < record.ops.size(); ++i) {
    const MeasuredOp& op = record.ops[i];
    for (std::size_t r = 0; r < op.start_ps.size() && !op.communication; ++r) {
      seconds[i].push_back(static_cast<double>(op.end_ps[r] - op.start_ps[r]) * 1e-12);
    }
  }
  for (const auto& [call, members] : calls_of(record.ops)) {
    std::vector<double> least;
    for (const std::size_t i : members) {
      if (least.empty()) least = seconds[i];
      for (std::size_t r = 0; r < std::min(least.size(), seconds[i].size()); ++r) {
        least[r] = std::min(least[r], seconds[i][r]);
      }
    }
    for (const std::size_t i : members) {
      if (!seconds[i].empty()) seconds[i] = least;
    }
  }
  return seconds;
}

std::vector<PairedOp> pair_ops(const Prediction& prediction, const RunRecord& record) {
  std::vector<std::vector<double>> seconds = op_seconds(record);
  std::map<Place, std::size_t> measured;
  for (std::size_t i = 0; i < record.ops.size(); ++i) measured.emplace(place_of(record.ops[i]), i);
  std::vector<PairedOp> pairs;
  pairs.reserve(prediction.ops.size());
  for (const PredictedOp& op : prediction.ops) {
    PairedOp pair{&op, nullptr, {}};
    if (const auto found = measured.find(place_of(op)); found != measured.end()) {
      pair.measured = &record.ops[found->second];
      pair.seconds = std::move(seconds[found->second]);
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace longhaul
