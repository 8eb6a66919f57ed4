// Chrome traces of a run as files: FOLDER/<case>.<label>.trace.json, with .gz when compressed.
#pragma once

#include <string>

#include "sim/timeline/traced.h"

namespace longhaul {

// Characters of labels that do not suit a file name become '_'. Throws LimitError where a file cannot be written.
void write_traces(const std::string& folder, const TraceBundle& traces, bool compressed);

}  // namespace longhaul
