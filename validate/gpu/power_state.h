// Power, heat and clocks of a GPU as the driver's management library tells them, for the head of measured files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul {

// "power limit: 700 W", "temperature: 31 C", "clocks: multiprocessors 1980 MHz at most, memory 3201 MHz, ..."; one line
// that says why where the library (libnvidia-ml.so.1, part of the driver) is not there or does not tell. `device`: of
// CUDA.
std::vector<std::string> power_lines(int device);

// The same at this moment; 0: not known.
struct PowerState {
  std::int32_t sm_clock_mhz = 0, temperature_c = 0, power_w = 0;
};
PowerState power_state(int device);

}  // namespace longhaul
