#include "reports/trace_events.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace longhaul {

void TraceEvents::name_process(std::int64_t process, std::string_view name) {
  add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":{1}}}}})", process,
                  trace_string(name)));
  add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", process));
}

void TraceEvents::name_thread(std::int64_t process, std::int64_t thread, std::string_view name) {
  add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", process, thread,
                  trace_string(name)));
  add(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", process,
                  thread, thread));
}

std::string trace_string(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string trace_microseconds(std::int64_t ps) {
  return fmt::format("{}{}.{:06}", ps < 0 ? "-" : "", std::abs(ps) / 1'000'000, std::abs(ps) % 1'000'000);
}

}  // namespace longhaul
