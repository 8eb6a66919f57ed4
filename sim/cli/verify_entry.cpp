#include "sim/cli/verify_entry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace longhaul {
namespace {

// The quantity that is worst, or the first rule that is broken.
std::string fault_of(const VerifyReport& report) {
  const QuantityError* worst = nullptr;
  for (const QuantityError& of : report.quantities) {
    if (worst == nullptr || of.missing > worst->missing || !(of.error <= worst->error)) worst = &of;
  }
  std::string text = worst == nullptr ? std::string("nothing was compared")
                                      : fmt::format("{}: error {:.2e}, {}", worst->name, worst->error, worst->worst);
  if (!report.violations.empty()) text += "; " + report.violations.front();
  return text;
}

constexpr std::size_t kPhases = 3;  // before random batches

void show(const VerifyRequest& request, std::size_t done, const std::string& phase) {
  if (request.progress) request.progress(done, kPhases + static_cast<std::size_t>(request.batches), phase);
}

// The reduced case with the documents of random batch `index`.
StudyCase random_case(const StudyCase& reduced, const Degrees& degrees, std::int64_t index) {
  StudyCase of = reduced;
  Rng rng(static_cast<std::uint64_t>(reduced.documents.seed), fmt::format("verify/{}", index));
  of.documents.explicit_sequences =
      random_documents(reduced.documents.sequences, std::max(degrees.cp, degrees.sp), rng);
  of.documents.context_tokens = 0;
  for (const std::vector<std::int64_t>& sequence : of.documents.explicit_sequences) {
    std::int64_t tokens = 0;
    for (const std::int64_t length : sequence) tokens += length;
    of.documents.context_tokens = std::max(of.documents.context_tokens, tokens);
  }
  return of;
}

void verify_random(const Study& study, const StrategyEntry& entry, const VerifyRequest& request, Verified& verified) {
  VerifyOptions options;
  options.tolerance = request.tolerance;
  for (std::int64_t i = 0; i < request.batches; ++i) {
    show(request, kPhases + static_cast<std::size_t>(i), fmt::format("random batch {}", i));
    const StudyCase of = random_case(verified.reduced.study_case, verified.degrees, i);
    const Expected<CaseSetup> setup = set_up_case(of, study.file);
    if (!setup) {
      ++verified.refused;
      continue;
    }
    const Planned planned = plan_entry(*setup, entry, verified.degrees, 0);
    if (!planned) {
      ++verified.refused;
      continue;
    }
    const VerifyReport report = verify(*planned->schedule, options);
    ++verified.random;
    verified.random_worst = std::max(verified.random_worst, report.worst);
    if (!report.pass) verified.random_faults.push_back(fmt::format("batch {}: {}", i, fault_of(report)));
  }
}

}  // namespace

double Verified::worst() const { return std::max(report.worst, random_worst); }

tl::expected<Verified, NotVerified> verify_entry(const Study& study, const FoundEntry& found,
                                                 const VerifyRequest& request) {
  const StrategyEntry& entry = *found.entry;
  const Expected<CaseSetup> full = set_up_case(*found.study_case, study.file);
  if (!full) return tl::unexpected(NotVerified{full.error(), "", {}});
  Errors errors = entry_errors(*full, entry);
  if (!errors.empty()) return tl::unexpected(NotVerified{std::move(errors), "", {}});
  show(request, 0, "simulating at real size: does it fit?");
  EntryResult simulated = run_entry(*full, entry, TraceMode::kNone);
  if (!simulated.fits()) {
    const std::string reason = simulated.not_applicable;
    return tl::unexpected(NotVerified{{}, reason, std::move(simulated)});
  }
  show(request, 1, "planning the reduced case");
  Verified verified;
  verified.degrees = simulated.degrees;
  verified.reduced = reduce_case(*found.study_case, verified.degrees.pp);
  const Expected<CaseSetup> setup = set_up_case(verified.reduced.study_case, study.file);
  if (!setup) return tl::unexpected(NotVerified{setup.error(), "", {}});
  const Planned planned = plan_entry(*setup, entry, verified.degrees, 0);
  if (!planned) {
    const std::string reason =
        fmt::format("{} (reduced: {})", planned.error(), fmt::join(verified.reduced.changes, ", "));
    return tl::unexpected(NotVerified{{}, reason, std::move(simulated)});
  }
  show(request, 2, "executing on virtual ranks and without distribution");
  VerifyOptions options;
  options.tolerance = request.tolerance;
  verified.report = verify(*planned->schedule, options);
  verify_random(study, entry, request, verified);
  return verified;
}

}  // namespace longhaul
