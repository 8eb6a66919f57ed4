// Readers of the objects of a study: training, layout, objective, overlap, strategies. Each lays what the file gives
// over a value that already holds the defaults, and adds every fault to `errors`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/json.h"
#include "sim/scenario/study.h"

namespace longhaul {

// A JSON value and where it stands.
struct Placed {
  const Json* value = nullptr;  // nullptr if absent
  std::string path;
};

void read_training(const Placed& placed, const std::string& file, Training& training, Errors& errors);

// "best", or an object of degrees. `gpus` is 0 if it is not known; else degrees must divide it.
void read_layout(const Placed& placed, const std::string& file, std::int64_t gpus, LayoutRequest& layout,
                 Errors& errors);

void read_objective(const Placed& placed, const std::string& file, Objective& objective, Errors& errors);

void read_overlap(const Placed& placed, const std::string& file, Overlap& overlap, Errors& errors);

// A library's name; if `generation` is known, one that has constants for it.
void read_attention_library_name(const Placed& placed, const std::string& file, std::optional<GpuGeneration> generation,
                                 std::string& name, Errors& errors);

// What an entry is checked against.
struct EntryContext {
  std::int64_t gpus = 0;
  std::optional<GpuGeneration> generation;  // nothing where the topology has a fault
};

// The `strategies` list. `defaults` holds what the case says of training and layout.
std::vector<StrategyEntry> read_strategies(const Placed& placed, const std::string& file, const EntryContext& context,
                                           const StrategyEntry& defaults, const StudyOptions& options, Errors& errors);

}  // namespace longhaul
