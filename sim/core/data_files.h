// Where the data files that ship with Longhaul stand, and how a name or path in a study finds one.
//
// The data directory is the environment variable LONGHAUL_DATA when it is set, else the source tree that the build was
// configured from. It holds topologies/ and workloads/ as the repository does.
//
// A reference in an input file is a path when it holds a '/' or ends in the kind's file ending, else a shipped name.
// Paths are relative to the folder of the file that names them. Results keep the reference as given, never the place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

enum class DataKind : std::uint8_t { kTopology, kDevice, kModel, kLengths, kStudy };

// How the kind is called in error texts: "topology", "device", "model", "length table", "study".
std::string_view data_kind_name(DataKind kind);

std::string data_directory();

// What to say of a shipped name at `path` of `file` if the data directory is not there; nullopt if it is.
std::optional<InputError> missing_data_folder(const std::string& file, const std::string& path,
                                              const std::string& directory = data_directory());

// The file of the shipped `name` (without ending), nullopt if there is none. Names never hold a '/'.
std::optional<std::string> find_data_file(DataKind kind, std::string_view name,
                                          const std::string& directory = data_directory());

// All shipped names of a kind, sorted.
std::vector<std::string> list_data_names(DataKind kind, const std::string& directory = data_directory());

// True if `reference` is a path by the rule above, not a shipped name.
bool is_data_path(DataKind kind, std::string_view reference);

// `path` as seen from the folder of `from_file`; absolute paths and an empty folder leave it as it is.
std::string relative_to_file(std::string_view path, std::string_view from_file);

// The file that `reference`, a name or path that stands at `path` of `file`, means. An unknown name adds an error with
// the shipped names and the nearest; a path is returned unopened.
std::optional<std::string> resolve_data_file(DataKind kind, const std::string& reference, const std::string& file,
                                             const std::string& path, Errors& errors,
                                             const std::string& directory = data_directory());

// The most that an input file may hold: 256 MiB.
constexpr std::int64_t kMaxInputBytes = std::int64_t{256} << 20;

// The whole file; an empty file is empty text. Errors, with `expected` for their texts: it cannot be opened or read, is
// no regular file (a folder, a device, a pipe: those may never end), holds more than kMaxInputBytes.
Expected<std::string> read_input_file(const std::string& file, std::string_view expected);
// As above, without the reason.
std::optional<std::string> read_text_file(const std::string& file);

}  // namespace longhaul
