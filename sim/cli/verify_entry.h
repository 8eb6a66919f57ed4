// One entry of a study executed on virtual ranks and compared with the undistributed reference: on the study's own
// documents, reduced (sim/study/reduce.h), and on random batches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/study/entry_run.h"
#include "sim/study/find_entry.h"
#include "sim/study/reduce.h"
#include "validate/cpu/verify.h"

namespace longhaul {

struct Verified {
  VerifyReport report;  // of the study's own documents
  ReducedCase reduced;
  Degrees degrees;
  // Random batches: compared, and those that the strategy cannot run.
  std::int64_t random = 0, refused = 0;
  double random_worst = 0;
  std::vector<std::string> random_faults;  // "batch 12: dQ: error ..."

  bool pass() const { return report.pass && random_faults.empty(); }
  double worst() const;  // of all batches
};

struct NotVerified {
  Errors errors;               // of the study; if there are none:
  std::string not_applicable;  // the reason; empty if it does not fit
  EntryResult simulated;
};

struct VerifyRequest {
  double tolerance = 1e-10;
  std::int64_t batches = 0;  // random; batch k draws from the stream "verify/k" of documents.seed
  // Told what begins, and how much of the whole is done; may be empty.
  std::function<void(std::size_t done, std::size_t of, const std::string& phase)> progress;
};

// Simulates at real size first: what does not fit is not verified. Throws as verify() does.
tl::expected<Verified, NotVerified> verify_entry(const Study& study, const FoundEntry& found,
                                                 const VerifyRequest& request);

}  // namespace longhaul
