// The device's nanosecond timer, which all multiprocessors share (32 ns to 1 us a tick).
#pragma once

namespace longhaul {

__device__ inline unsigned long long device_nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace longhaul
