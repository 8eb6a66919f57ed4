// Why a context-parallel plan cannot be made; shared by the planners.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "sim/strategies/context_parallel/shard.h"

namespace longhaul {

// Reason, a sentence fragment, or none. Documents of less than one token are a bug of the caller.
std::optional<std::string> cp_refusal(std::span<const PlannedDocument> documents, std::int64_t ranks);

}  // namespace longhaul
