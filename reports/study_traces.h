// The traces of a study's run as a bundle for reports. Nothing is copied: the bundle shares the records.
#pragma once

#include "sim/study/run_study.h"
#include "sim/timeline/traced.h"

namespace longhaul {

// One a shown entry that was traced, in the order of the results.
TraceBundle study_traces(const StudyResult& result);

}  // namespace longhaul
