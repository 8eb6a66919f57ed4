// The tables of `longhaul calibrate` that have programs of their own: overlap and collectives.
#include <fmt/format.h>

#include <exception>
#include <functional>
#include <utility>

#include "validate/gpu/cuda_bench.h"
#include "validate/gpu/machine.h"
#include "validate/gpu/measure_collectives.h"
#include "validate/gpu/measure_overlap.h"
#include "validate/gpu/size_list.h"

namespace longhaul {
namespace {

constexpr const char* kCollectiveSizes = "512:1G";
constexpr const char* kQuickCollectiveSizes = "1M:64M";
const std::vector<std::int64_t> kOverlapSizes = {std::int64_t{64} << 20, std::int64_t{256} << 20};
// NCCL's own choice and few blocks: the ends between which a collective may lie.
const std::vector<int> kOverlapCtas = {0, 8};
// A pair of overlap takes three turns of three loops of 15 ms and more, 0.35 s on an H200 (validate/data/h200x2,
// 2026-11-29); a covered pair five turns of a transfer of 40 ms, 0.6 s; a point of collectives 0.1 s.
constexpr double kSetUpSeconds = 4, kPairSeconds = 0.35, kCoveredSeconds = 0.6, kPointSeconds = 0.1;
constexpr int kComputes = 4, kOwnNeighbours = 4, kOverlapCollectives = 4, kPriorities = 2;

double pairs_seconds(int neighbours, double seconds) { return kSetUpSeconds + kComputes * neighbours * seconds; }

// A rank that fails alone in its team can be joined; among several the others wait for it for ever, so the process ends
// here, with the rows on the disk.
class TeamFaults {
 public:
  TeamFaults(int gpus, std::function<void(const std::string&)> end_process)
      : gpus_(gpus), end_process_(std::move(end_process)) {}

  RankTeam::OnFault handler() {
    return [this](int rank, const std::exception_ptr& fault) {
      if (gpus_ == 1) {
        fault_ = fault;
        return;
      }
      end_process_(fmt::format("GPU {} ({}) failed: {}; the rows measured before it are kept: run again with --resume",
                               rank, gpu_name(rank), text_of(fault)));
    };
  }
  void rethrow() const {
    if (fault_) throw BenchFault(text_of(fault_));
  }

 private:
  static std::string text_of(const std::exception_ptr& fault) {
    try {
      std::rethrow_exception(fault);
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  int gpus_;
  std::function<void(const std::string&)> end_process_;
  std::exception_ptr fault_;
};

using EndProcess = std::function<void(const std::string&)>;

CalibrationTable overlap_table(int gpus, bool covered, bool quick, const EndProcess& end_process) {
  OverlapOptions options;
  options.gpus = gpus;
  options.covered = covered;
  options.quiet = true;
  options.sizes = kOverlapSizes;
  options.max_ctas = kOverlapCtas;
  if (quick) {
    options.sizes.resize(1);
    options.max_ctas.resize(1);
  }
  const auto sizes = static_cast<int>(options.sizes.size());
  const auto ctas = static_cast<int>(options.max_ctas.size());
  CalibrationTable table;
  table.call_class = CallClass::kOverlap;
  table.suffix = covered ? ".overlap-covered.csv" : ".overlap.csv";
  table.format = overlap_format(options);
  table.predicted_seconds = covered ? pairs_seconds(kOverlapCollectives * ctas + 1, kCoveredSeconds)
                                    : pairs_seconds(kOwnNeighbours * sizes, kPairSeconds);
  if (!covered && gpus > 1) {
    table.predicted_seconds += pairs_seconds((kOverlapCollectives * ctas * kPriorities + 1) * sizes, kPairSeconds);
  }
  table.measure = [options, gpus, end_process](ResultFile& file) {
    TeamFaults faults(gpus, end_process);
    measure_overlap(options, file, faults.handler());
    faults.rethrow();
  };
  return table;
}

CalibrationTable collectives_table(int gpus, bool quick, const EndProcess& end_process) {
  CollectivesOptions options;
  options.gpus = gpus;
  options.gpus_per_node = visible_gpus();
  options.quiet = true;
  options.sizes = *parse_size_range(quick ? kQuickCollectiveSizes : kCollectiveSizes, "sizes");
  options.collectives = measured_collectives();
  CalibrationTable table;
  table.call_class = CallClass::kCollectives;
  table.suffix = ".collectives.csv";
  table.format = collectives_format(options);
  table.predicted_seconds =
      kSetUpSeconds + kPointSeconds * static_cast<double>(options.sizes.size() * options.collectives.size());
  table.measure = [options, gpus, end_process](ResultFile& file) {
    TeamFaults faults(gpus, end_process);
    measure_collectives(options, file, faults.handler());
    faults.rethrow();
  };
  return table;
}

}  // namespace

std::vector<CalibrationTable> CudaBench::tables(const std::vector<CallClass>& classes, bool quick) {
  std::vector<CalibrationTable> result;
  for (const CallClass call_class : classes) {
    if (call_class == CallClass::kOverlap) {
      result.push_back(overlap_table(gpus_, false, quick, options_.end_process));
      if (gpus_ > 1) result.push_back(overlap_table(gpus_, true, quick, options_.end_process));
    }
    if (call_class == CallClass::kCollectives && gpus_ > 1)
      result.push_back(collectives_table(gpus_, quick, options_.end_process));
  }
  return result;
}

}  // namespace longhaul
