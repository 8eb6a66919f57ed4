// Every kernel call on the CPU, by the references that stand beside the kernels (kernels/). Host memory only.
#pragma once

#include "validate/device/device.h"

namespace longhaul {

void run_on_host(const DeviceCall& call, const DeviceArena& memory, StreamId scratch_stream);
void copy_on_host(const PlacedRows& from, const PlacedRows& to, bool accumulate);
void sum_on_host(const std::vector<PlacedRows>& from, const std::vector<PlacedRows>& to, bool accumulate);
void noise_on_host(const PlacedRows& to, std::uint32_t seed);

}  // namespace longhaul
