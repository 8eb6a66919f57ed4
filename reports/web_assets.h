// The style sheet and the script of the report, as the build put them in from reports/web.
#pragma once

#include <string_view>

namespace longhaul {

std::string_view report_css();
std::string_view report_js();

}  // namespace longhaul
