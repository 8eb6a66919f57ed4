// Hand-made results and traces for the tests of reports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/core/json.h"
#include "sim/timeline/traced.h"

namespace longhaul::testing {

// A row that runs: step, low and high in ms.
Json row(const std::string& label, double step_ms, double low_ms, double high_ms);

// Results of one unnamed case.
Json results_of(std::vector<Json> rows, const std::string& baseline);

OpRecord op(std::int32_t rank, StreamId stream, OpKind kind, std::string_view label, std::int64_t start_ps,
            std::int64_t end_ps);

// Fills in streams ("compute", "copy-in", "copy-out", "cp") and eight GPUs a node.
Traced traced_of(const std::string& strategy, std::vector<OpRecord> ops,
                 std::vector<RecordedTimeline::MemorySample> samples = {});

// Two ranks of one layer each: GEMMs, attention, a collective that rank 0 waits for, memory that rises and falls. In
// all 5 ops a rank, 10 in total.
Traced small_trace(const std::string& strategy);

// Three strategies of which one does not fit and one does not apply, with small_trace for two.
Json small_results();
TraceBundle small_bundle();

// How often `part` is in `text`.
std::size_t count(const std::string& text, const std::string& part);

}  // namespace longhaul::testing
