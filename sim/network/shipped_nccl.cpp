#include "sim/network/shipped_nccl.h"

#include "sim/core/data_files.h"

namespace longhaul {

Expected<NcclConstants> read_shipped_nccl(const std::string& data_directory) {
  return read_nccl_constants(data_directory + "/topologies/nccl.json");
}

const NcclConstants& shipped_nccl() {
  static const NcclConstants constants = [] {
    const Expected<NcclConstants> read = read_shipped_nccl(data_directory());
    if (!read) throw LimitError(read.error().front().to_string());
    return *read;
  }();
  return constants;
}

}  // namespace longhaul
