// `longhaul check`: every error of any input file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/core/error.h"
#include "sim/scenario/study.h"

namespace longhaul {

enum class InputKind : std::uint8_t { kStudy, kTopology, kDevice, kModel, kLengthTable, kDocumentList };

struct CheckedFile {
  std::optional<InputKind> kind;  // nullopt if the content says nothing
  Errors errors;                  // empty if the file is valid
};

// "study", "topology", "device", "model", "length table", "document list".
std::string_view input_kind_name(InputKind kind);

// Reads `file` as what it says it is: a JSON object by its "schema" (study/1, topology/1, device/1) or, without one, by
// the keys of a config.json; a JSON list or a text of numbers as document lengths; a text with the header
// "quantile,tokens", or any other .csv, as a length table.
CheckedFile check_input_file(const std::string& file, const StudyOptions& options);

}  // namespace longhaul
