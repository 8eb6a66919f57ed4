// The NCCL constants that ship: topologies/nccl.json of the data directory.
#pragma once

#include <string>

#include "sim/network/nccl/constants.h"

namespace longhaul {

// Reads the file; every fault at once.
Expected<NcclConstants> read_shipped_nccl(const std::string& data_directory);

// Those of data_directory(), read once a process. Throws LimitError with the first fault where the file is not there or
// faulty: whoever takes a user's input calls read_shipped_nccl first and lists them all.
const NcclConstants& shipped_nccl();

}  // namespace longhaul
