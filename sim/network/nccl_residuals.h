// How far predicted collectives lie from measured ones, by class: topologies/nccl-residuals.json.
//
// Residuals are leave-one-table-out: of a call on a machine that the constants were not fitted to. A half width h means
// that nine in ten measured calls of the class lie within h of the prediction, relative to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/cluster/topology.h"
#include "sim/core/error.h"

namespace longhaul {

// Where a call runs: inside one NVLink domain, or over a network; NCCL's constants are known for the network, or stand
// on single or contradicting tables (EFA, TCPX, plain Ethernet).
enum class ResidualNodes : std::uint8_t { kOne, kSeveralKnown, kSeveralOther };
inline constexpr std::size_t kResidualNodes = 3;
// Below 64 KiB, 64 KiB to 1 MiB, 1 to 64 MiB, from 64 MiB.
inline constexpr std::size_t kResidualBands = 4;

struct NcclResiduals {
  std::array<std::array<double, kResidualBands>, kResidualNodes> half_width{};

  // Of calls of `bytes`, as nccl-tests counts them.
  double of(ResidualNodes nodes, double bytes) const;
};

// Where calls over (several) or inside one domain of this topology stand.
ResidualNodes residual_nodes(const Topology& topology, bool several);

// Reads the file of the data directory; every fault at once: an unknown class, a band that is none of the four, a width
// that is no number from 0 to 10, a class that is missing or comes twice.
Expected<NcclResiduals> read_nccl_residuals(const std::string& data_directory);
// Those of data_directory(), read once a process. Throws LimitError where the file is not there or faulty.
const NcclResiduals& shipped_nccl_residuals();

}  // namespace longhaul
