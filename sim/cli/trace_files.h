// Chrome traces of a run as files: FOLDER<case>.<label>.trace.json, with .gz when compressed.
#pragma once

#include <string>

#include "sim/cli/output_folder.h"
#include "sim/timeline/traced.h"

namespace longhaul {

// One file a trace, its name by unique_file_names in row order. `folder` is "" or ends in '/'. Throws LimitError where
// a file cannot be written.
void add_traces(OutputFolder& output, const std::string& folder, const TraceBundle& traces, bool compressed);

}  // namespace longhaul
