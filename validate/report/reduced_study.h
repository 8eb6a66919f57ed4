// One smaller version of a study, as a study of its own: the parts of reduction.h that decide nothing.
//
// Pure functions. Units: tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/json.h"
#include "sim/scenario/study.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

struct Version {
  Json topology;  // null: the study's own
  Degrees degrees;
  std::int64_t layers = 1;
  std::int64_t vocab = 2;
  std::int64_t ffn = 1;
  std::int64_t hidden = 1;
  std::int64_t micro_batch = 1;
  std::int64_t sequences = 1;
  // Documents keep numerator / denominator of their tokens.
  std::int64_t numerator = 1, denominator = 1;
};

// The first `sequences` of the batch, scaled: a sequence keeps its share rounded down, a document its share of the
// sequence, at least `multiple` tokens each; what rounding leaves over goes to the last document. Lengths are multiples
// of `multiple` (block diffusion: the block, where all documents are). Documents that no longer fit are dropped.
std::vector<std::vector<std::int64_t>> scaled_documents(const Batch& batch, std::int64_t sequences,
                                                        std::int64_t numerator, std::int64_t denominator,
                                                        std::int64_t multiple);

// A config.json of the shape: read_model gives it back.
Json model_config(const ModelShape& model);

// The case of that name in a resolved study.
const Json& resolved_case_of(const Study& study, const std::string& name);

// A topology with this shipped device: the case's own with the device exchanged where that makes one (the same node and
// network), else the first shipped one that has the device. Null where there is none.
Json topology_with(const Json& own, const std::string& file, const std::string& device);

// Writes the degrees of one entry into a study in place of what it says there.
void write_layout(Json& study, const std::string& study_case, const std::string& label, const Degrees& degrees);
// The same for its policy options: `options` in place of those among `keys`.
void write_options(Json& study, const std::string& study_case, const std::string& label,
                   const std::vector<std::string>& keys, const Json& options);

// study/1 with one case and the one entry, layout and documents written out.
Json version_study(const Study& study, const StudyCase& study_case, const StrategyEntry& entry, const Batch& batch,
                   const Version& version);

}  // namespace longhaul
