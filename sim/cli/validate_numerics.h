// The numbers of a run against a reference: double precision where that is affordable, else the undistributed step in
// bf16 on the same device and, of sampled query rows, attention in double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "validate/device/device_executor.h"
#include "validate/device/numerics.h"
#include "validate/device/row_reference.h"
#include "validate/report/prepared_run.h"

namespace longhaul {

using MakeDevice = std::function<std::unique_ptr<Device>()>;

class NumericsCheck {
 public:
  // Runs the undistributed step (one rank, data-parallel) where the strategy's objective has one, on a device that is
  // made for it and gone afterwards. Throws DeviceFault, but where memory is short, which is said and left out.
  NumericsCheck(const PreparedRun& prepared, const MakeDevice& make_device, const ExecutorOptions& options);

  const StepWish& wish() const { return wish_; }
  // Adds the results, and what was left out, to the record.
  void judge(const StepOutcome& outcome, RunRecord& record) const;

 private:
  const Schedule& schedule_;
  StepWish wish_;
  std::optional<StepReference> reference_;   // none: numbers are not compared
  std::vector<QuantityNorm> undistributed_;  // errors of the undistributed step against the same reference
  std::vector<std::int64_t> rows_;           // sampled; empty: none
  std::vector<QuantityNorm> undistributed_rows_;
  std::string left_out_;  // what is not compared, and why
};

}  // namespace longhaul
