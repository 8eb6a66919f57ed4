#include "sim/schedule/tensor.h"

#include "sim/core/invariant.h"

namespace longhaul {

const char* to_string(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGathered:
      return "gathered_parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kCheckpoints:
      return "checkpoints";
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kKeyValue:
      return "key_value";
    case MemoryCategory::kCommunication:
      return "communication";
    case MemoryCategory::kLogits:
      return "logits";
    case MemoryCategory::kCount:
      break;
  }
  LH_ASSERT(false, "no memory category {}", static_cast<int>(category));
  return "";
}

RowMapPtr make_row_map(std::vector<RowRun> runs) {
  auto map = std::make_shared<RowMap>();
  for (const RowRun& run : runs) {
    LH_ASSERT(run.count >= 0 && run.first >= 0, "row run of {} tokens from {}", run.count, run.first);
    if (run.count == 0) continue;
    map->rows += run.count;
    if (run.document >= 0) map->tokens += run.count;
    if (!map->runs.empty()) {
      RowRun& last = map->runs.back();
      const bool same =
          last.document == run.document && (run.document < 0 || last.view == run.view) && last.run == 0 && run.run == 0;
      if (same && (run.document < 0 || last.first + last.count == run.first)) {
        last.count += run.count;
        continue;
      }
    }
    map->runs.push_back(run);
  }
  return map;
}

RowListPtr make_row_list(std::vector<RowSpan> spans) {
  auto list = std::make_shared<RowList>();
  for (const RowSpan& span : spans) {
    LH_ASSERT(span.count >= 0 && span.begin >= 0, "row span of {} from {}", span.count, span.begin);
    if (span.count == 0) continue;
    list->rows += span.count;
    if (!list->spans.empty() && list->spans.back().begin + list->spans.back().count == span.begin) {
      list->spans.back().count += span.count;
    } else {
      list->spans.push_back(span);
    }
  }
  return list;
}

}  // namespace longhaul
