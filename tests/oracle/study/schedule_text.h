// A schedule as lines of text, every field of every part, so that two schedules can be compared.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul::oracle {

// Tensor kinds, segments with their ops, programs, groups, roles, ranks and shapes. A field added to any of these
// structures breaks the build of schedule_text.cpp, so that none is forgotten.
std::vector<std::string> schedule_lines(const Schedule& schedule);

}  // namespace longhaul::oracle
