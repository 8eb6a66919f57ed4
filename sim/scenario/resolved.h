// A case written back as JSON with every default filled in.
#pragma once

#include <string>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "sim/scenario/study.h"

namespace longhaul {

// What the study said of topology and model, for the resolved case: a shipped name, or the object itself.
struct CaseReferences {
  Json topology;
  Json model;
};

// `reference` as it stands in a resolved study: names and inline objects stay, a path becomes the object in its file
// (null if that cannot be read, which reading the case has reported).
Json resolved_reference(DataKind kind, const Json& reference, const std::string& file);

Json resolved_objective(const Objective& objective);
Json resolved_overlap(const Overlap& overlap);
Json resolved_training(const Training& training);
Json resolved_layout(const LayoutRequest& layout);
Json resolved_documents(const DocumentSource& documents);

// All keys of a case but `name`, in the order of the contract.
Json resolved_case(const StudyCase& study_case, const LayoutRequest& layout, const CaseReferences& references);

}  // namespace longhaul
