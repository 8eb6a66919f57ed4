#include "validate/report/prepared_run.h"

#include <fmt/format.h>

#include <utility>

#include "sim/strategies/registry.h"
#include "sim/study/entry_run.h"
#include "sim/study/find_entry.h"
#include "validate/report/reduced_study.h"

namespace longhaul {

Expected<Prepared> prepare_run(const Json& study, const std::string& file, const std::string& label,
                               const std::string& study_case) {
  Expected<Study> read = parse_study(study, file, study_options());
  if (!read) return tl::unexpected(read.error());
  auto prepared = std::make_unique<PreparedRun>();
  prepared->study = std::move(*read);
  prepared->study_json = study;
  const Expected<FoundEntry> found = find_entry(prepared->study, label, study_case);
  if (!found) return tl::unexpected(found.error());
  prepared->study_case = found->study_case;
  prepared->entry = found->entry;
  Expected<CaseSetup> setup = set_up_case(*found->study_case, file);
  if (!setup) return tl::unexpected(setup.error());
  prepared->setup.emplace(std::move(*setup));
  prepared->setup->kernels = prepared->setup->kernels_of(*found->entry);  // of the one row that runs
  const Errors errors = entry_errors(*prepared->setup, *found->entry);
  if (!errors.empty()) return tl::unexpected(errors);
  const auto refuse = [&](const std::string& why) {
    return tl::unexpected(
        Errors{{file, found->entry->path, fmt::format("{} is not applicable: {}", label, why), "", ""}});
  };
  // "best" takes what a simulation finds; everything else follows from the study.
  if (found->entry->layout.best) {
    const EntryResult best = run_entry(*prepared->setup, *found->entry, TraceMode::kNone);
    if (!best.not_applicable.empty()) return refuse(best.not_applicable);
    prepared->degrees = best.degrees;
    write_layout(prepared->study_json, study_case, label, best.degrees);
  } else {
    const auto degrees = entry_degrees(*prepared->setup, *found->entry);
    if (!degrees) return refuse(degrees.error());
    prepared->degrees = *degrees;
  }
  Planned planned = plan_entry(*prepared->setup, *found->entry, prepared->degrees, 0);
  if (!planned) return refuse(planned.error());
  prepared->planned = std::move(*planned);
  if (prepared->planned.pinned) {
    const Strategy& strategy = *find_strategy(found->entry->name);
    write_options(prepared->study_json, study_case, label, strategy.option_keys, prepared->planned.pinned());
  }
  return prepared;
}

}  // namespace longhaul
