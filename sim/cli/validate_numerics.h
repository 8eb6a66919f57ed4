// The numbers of a run against a reference: double precision where that is affordable, else the undistributed step in
// bf16 on the same device and, of sampled query rows, attention in double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "validate/device/device_executor.h"
#include "validate/device/numerics.h"
#include "validate/device/sampled_rows.h"
#include "validate/report/prepared_run.h"

namespace longhaul {

// What references are computed with: devices that are made for undistributed steps, and double precision.
struct ReferenceTools {
  std::function<std::unique_ptr<Device>(AttentionChoice)> make_device;
  DoubleMath& math;
};

// What a step is held against; the same for every strategy that trains the same batch of the same model.
struct NumericsReference {
  std::optional<StepReference> reference;  // none: numbers are not compared
  // Errors against the same reference of the undistributed step or, where that is the reference, of a second one whose
  // attention runs in other kernels; empty where this device has no others.
  std::vector<QuantityNorm> undistributed;
  std::vector<std::int64_t> rows;  // sampled; empty: none
  std::vector<QuantityNorm> undistributed_rows;
  std::string left_out;  // what is not compared, and why
};

// What a step is compared with (--reference).
enum class ReferenceChoice : std::uint8_t {
  kAuto,             // double precision where this machine's cores do it in about a minute, else undistributed
  kDoublePrecision,  // the whole step on the CPU, however long it takes
  kUndistributed,    // bf16 on one rank, and sampled rows of attention in double precision
  kNone,             // times alone
};
Expected<ReferenceChoice> reference_choice(const std::string& name);

// The reference made last, for the next strategy: one step of 128K tokens takes gigabytes and seconds.
struct ReferenceCache {
  ReferenceChoice choice = ReferenceChoice::kAuto;
  std::function<void(const std::string&)> note;  // told what took how long; may be empty
  std::uint64_t fingerprint = 0, seed = 0;       // of the undistributed schedule, of the parameters
  bool whole = false;                            // double precision
  std::shared_ptr<const NumericsReference> reference;
};

// Whether a step is compared with double precision as a whole, on this machine's cores.
bool takes_double_precision(const Schedule& schedule, ReferenceChoice choice);

class NumericsCheck {
 public:
  // Runs the undistributed step (one rank) unless `cache` has it, on a device that is made for it and gone afterwards.
  // Throws DeviceFault, but where memory is short, which is said and left out.
  NumericsCheck(const PreparedRun& prepared, const ReferenceTools& tools, const ExecutorOptions& options,
                ReferenceCache& cache);

  const StepWish& wish() const { return wish_; }
  // Adds the results, and what was left out, to the record; tells `note` what is done.
  void judge(const StepOutcome& outcome, RunRecord& record, const std::function<void(const char*)>& note) const;

 private:
  const Schedule& schedule_;
  DoubleMath& math_;
  StepWish wish_;
  std::shared_ptr<const NumericsReference> reference_;
};

}  // namespace longhaul
