// How much longer kernels, copies and transfers of one device take while they run side by side.
//
// Model. Each thing that runs beside a kernel adds its own part to the kernel's time (the parts add up):
//   * a communication kernel of n channels keeps n blocks on the device; they take `multiprocessors_per_channel` w
//     multiprocessors each, from its launch to its end, whether its bytes move or it waits for other ranks. Attention
//     hands out small pieces of work and needs S / (S - n w) of its time. A GEMM has min(tiles, S) blocks, each of
//     which begins with a tile of its own: those that find no multiprocessor bring theirs after all others are done, in
//     a wave of their own. Instead of ceil(tiles / S) waves there are ceil((tiles - late) / (S - n w)) + 1; a GEMM
//     whose tiles fit beside the channels loses nothing;
//   * a memory-bound kernel shares the memory bandwidth max-min fairly with what transfers and host copies move: it
//     keeps what they leave, at least half. A transfer moves `memory_bytes_per_transferred_byte` a byte sent or
//     received, at the rate to which the kernel slows it;
//   * a memory-bound kernel on another stream (pack, cast) and a compute kernel slow each other by measured factors:
//     its blocks are scheduled between those of the compute kernel, and no bandwidth alone explains it;
//   * copies by the copy engines use no multiprocessor and little bandwidth; what they cost compute is measured;
//   * two kernels that are bound by the same share it: each takes its time once more for each of the others.
// A transfer takes a measured factor longer beside a kernel; which one depends on the kernel's class alone. A compute
// kernel has all multiprocessors until its last wave of blocks leaves some free: a communication kernel that is
// launched while one runs gets its own only then (`holds_transfers`, `last_wave`). Of b blocks on S multiprocessors the
// last wave is 1 / ceil(b / S) of its time, none if it is full: FlashAttention-2 beside hops of a ring on two H200
// (validate/data/h200x2/ring_steps.csv) let them in at 0.94, 0.89, 0.94, 0.63 and 0.67 of its time, with 16, 8, 16, 3
// and 3 waves.
//
// Constants: `overlap` of the calibration (sim/cost/calibration.h), fitted by `longhaul-fit`. A device that was not
// measured has those of the nearest one, with its own multiprocessors and bandwidths.
// Units: bytes, seconds; factors are times together / times alone. Invariants: every factor is at least 1, and 1 with
// nothing beside; more beside never gives a smaller factor.
// Ignores: power and clocks apart from what the measured factors hold, the L2, how sizes and launch times of the two
// meet.
#pragma once

#include <cstdint>

#include "sim/core/units.h"

namespace longhaul {

enum class KernelKind;

enum class OverlapClass : std::uint8_t { kGemm, kAttention, kMemory, kHostCopy };
inline constexpr int kOverlapClassCount = 4;
OverlapClass overlap_class(KernelKind kernel);

struct OverlapConstants {
  struct Compute {
    double beside_memory_kernel = 1;
    double multiprocessors_per_channel = 0;
    bool holds_transfers = false;
  };
  Compute gemm;
  Compute attention;
  double compute_beside_host_copy = 1;
  double memory_kernel_beside_compute = 1;
  double host_copy_beside_compute = 1;
  double memory_bytes_per_transferred_byte = 0;
  double transfer_beside_gemm = 1;
  double transfer_beside_attention = 1;
  double transfer_beside_memory_kernel = 1;
};

// What runs on a device beside the kernel that is asked about.
struct Beside {
  int gemms = 0;
  int attentions = 0;
  int memory_kernels = 0;
  int host_copies = 0;
  int channels = 0;                         // blocks of communication kernels, waiting ones too
  double transferred_bytes_per_second = 0;  // sent and received by them when undisturbed
  bool operator==(const Beside&) const = default;
};

class OverlapModel {
 public:
  OverlapModel() = default;  // nothing slows anything
  // `memory_bandwidth` is what large copies reach. `scale` >= 0 multiplies all that is added to a time; 0: no
  // slow-down.
  OverlapModel(const OverlapConstants& constants, int multiprocessors, BytesPerSecond memory_bandwidth,
               BytesPerSecond host_link, double scale = 1);

  // `tiles` of a GEMM's output (gemm_tiles of sim/cost/kernel_features.h); 0: too many to count in waves.
  double kernel(OverlapClass kernel, const Beside& beside, std::int64_t tiles = 0) const;
  // Of a transfer while a kernel of this class runs on one of its ranks.
  double transfer(OverlapClass beside) const;
  // Whether a transfer that is launched while a kernel of this class runs waits for its last wave.
  bool holds_transfers(OverlapClass kernel) const;
  // Part of the time of a launch of so many blocks, one multiprocessor each at a time, in which its last ones run and
  // leave multiprocessors free; 0 where they leave none, and for no blocks.
  double last_wave(std::int64_t blocks) const;

 private:
  double added_to_compute(const OverlapConstants::Compute& constants, const Beside& beside, std::int64_t tiles) const;
  double added_by_channels(double taken, std::int64_t tiles) const;
  double added_to_memory_kernel(const Beside& beside) const;

  OverlapConstants constants_;
  double multiprocessors_ = 1;
  double memory_bytes_per_second_ = 1;
  double host_link_bytes_per_second_ = 0;
  double scale_ = 0;
};

}  // namespace longhaul
