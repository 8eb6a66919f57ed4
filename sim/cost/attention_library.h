// Attention by another library than the one that a device's calibration measured (cuDNN).
//
// Models one varlen launch: seconds = call + pair x (visited pairs a multiprocessor) + tile x (tiles a multiprocessor)
// + row x (query rows a multiprocessor) + tail. Items are query tiles of 128 rows forward, key tiles of 128 rows
// backward; they visit blocks of `block_rows` of the other side (attention_work.h) that hold an unmasked pair. Rows: Q
// and O, backward dO x O and the accumulators of dQ, which are memory's work. Tail: FlashAttention-2 deals a masked
// call's tiles out so that long ones run last; it ends `masked_tail_tiles` mean tiles later than a perfectly even one.
// FlashAttention-3 runs long ones first and ends evenly; its calls with a mask run another kernel, of narrower key
// tiles forward, whose pair takes `seconds_per_masked_pair`. Its forward tiles hold several query heads of a key head
// (`packs_heads`), so that short pieces fill them; they visit whole tiles of keys. A library whose grid has as many
// tiles for every piece as the longest one has (FlashAttention-2, FlashAttention-3 backward) also pays for the blocks
// that find no work. Never less than the one longest item takes on its multiprocessor, nor than the operands' bytes
// over the data sheet's bandwidth. Constants are per head of dimension 128 and scale with the dimension.
//
// Other generations than the measured one: the part of a pair's time that its matrix products need at the rate that
// the library's instructions reach (`matrix_share` of the peak) scales with that rate, the rest (softmax, loads) and
// the tiles' own time with the clock of the multiprocessors, rows with the memory's bandwidth. FlashAttention-2 issues
// mma.sync: all of an A100's rate, about 63 % of Hopper's (arXiv 2402.13499). A generation without a share cannot run
// the library. Where the library's instructions bind it and not the matrix units (`same_clocks`), a pair takes as many
// clocks as it did at the clock that was measured, whatever the peaks.
//
// Files: topologies/devices/attention/NAME.json, schema topologies/attention-library.schema.json, which name the data
// of every constant. Units: seconds. Residuals are measured / predicted - 1 over all rows that were fitted.
// Ignored: deterministic backward passes (atomics are the libraries' default), the dQ accumulators' memory.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/cluster/device.h"
#include "sim/core/error.h"
#include "sim/cost/attention_work.h"

namespace longhaul {

struct Estimate;

struct AttentionLibraryPass {
  double seconds_per_call = 0;
  double seconds_per_pair = 0;  // of one multiprocessor
  double seconds_per_tile = 0;  // of one multiprocessor
  double masked_tail_tiles = 0;
  double seconds_per_idle_block = 0;         // of one multiprocessor; 0 where no grid has any
  double residual_low = 0;                   // <= 0, 5 % end
  double residual_high = 0;                  // >= 0, 95 % end
  double seconds_per_row = 0;                // of one multiprocessor, a query row; on the measured device
  std::int64_t block_rows = kAttentionTile;  // or kAttentionBlock
  double seconds_per_masked_pair = 0;        // of calls that have a mask; 0: seconds_per_pair
  bool packs_heads = false;                  // forward: heads of a key head share tiles (PackedTiles)
  bool starts_with_main_kernel = false;      // no short kernel before it
  double clock = 0;                          // of the multiprocessors while it was measured, 1 / s; 0: not known
};

struct AttentionLibrary {
  std::string name;
  std::string date;
  GpuGeneration measured_generation = GpuGeneration::kHopper;
  double measured_peak_flops_per_second = 0;
  int measured_multiprocessors = 0;
  double measured_memory_bytes_per_second = 1;
  std::map<GpuGeneration, double> matrix_share;  // in (0, 1], the measured generation's among them
  std::set<GpuGeneration> same_clocks;           // a pair takes as many clocks there as measured
  AttentionLibraryPass forward, backward;

  const AttentionLibraryPass& pass(bool is_forward) const { return is_forward ? forward : backward; }
  bool runs_on(const DeviceSpec& device) const { return matrix_share.count(device.generation) > 0; }
  bool measured_on(const DeviceSpec& device) const { return device.generation == measured_generation; }
};

// "cudnn", "flash-attention-2", "flash-attention-3", "flex-flash-attention". The first is the calibration's own and has
// no file.
const std::vector<std::string>& attention_library_names();

// Of a name other than "cudnn". Every fault of the file.
Expected<std::shared_ptr<const AttentionLibrary>> read_attention_library(const std::string& name,
                                                                         const std::string& data_directory);
Expected<std::shared_ptr<const AttentionLibrary>> parse_attention_library(const std::string& text,
                                                                          const std::string& file);

// Multiprocessors x the clock of kernels that the power limit does not hold, 1 / s; 0 for a generation whose matrix
// units are not known here.
double multiprocessor_clocks(const DeviceSpec& device);

// Generations that the library runs on, as device files call them.
std::vector<std::string> library_generations(const AttentionLibrary& library);

// Seconds of one launch; the device must be one that the library runs on.
double library_attention_seconds(const AttentionLibrary& library, const DeviceSpec& device, bool forward,
                                 const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                                 std::int64_t head_dim);

}  // namespace longhaul
