#include "sim/strategies/context_parallel/refusal.h"

#include <fmt/format.h>

#include "sim/core/invariant.h"

namespace longhaul {

std::optional<std::string> cp_refusal(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  if (ranks < 1) return fmt::format("the group needs at least 1 rank, not {}", ranks);
  if (documents.empty()) return "the sequence has no documents";
  for (const PlannedDocument& document : documents) {
    LH_ASSERT(document.tokens >= 1, "document {} has {} tokens", document.document, document.tokens);
  }
  return std::nullopt;
}

}  // namespace longhaul
