// The one measuring loop: takes cold samples of a call until they are quiet, then batches, as nvbench does.
//
// Cold samples go on until there are at least `fewest_samples`, at least `least_seconds` have passed and the noise is
// low (noise.h); or until `most_seconds` or `most_samples`. A sample whose clock is below `throttle_ratio` of the
// default clock is dropped and the device rests, longer each time it happens again; after `most_drops` dropped ones in
// a row the loop gives up: what was kept so far (or, if that is nothing, the dropped ones) is reported as throttled.
// Batches then run for `batch_seconds`, and the later half of them counts: the steady state of a busy stream, whose
// clock is reported beside it. They are not dropped: a device that holds its power limit by a lower clock is what
// training sees (from 3 ms a call on, an H200's limit moves calls by up to 10 %; docs/performance-log.md, 2026-11-29).
//
// A throttle ratio of 0.7: an H200 under matrix products holds its 700 W at 1,470 of 1,980 MHz (0.74;
// validate/data/h200x2/README.md, 2026-11-29), which must count; nvbench's 0.75 would drop every such call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "validate/gpu/calibrate/noise.h"
#include "validate/gpu/calibrate/stopwatch.h"
#include "validate/gpu/loop_samples.h"

namespace longhaul {

struct LoopLimits {
  std::size_t fewest_samples = 10, most_samples = 200;
  double least_seconds = 0.04, most_seconds = 0.5;
  NoiseLimit noise;
  double default_clock_mhz = 0;  // 0: unknown, nothing is dropped
  double throttle_ratio = 0.7;
  int most_drops = 10;
  double first_rest_seconds = 0.01, longest_rest_seconds = 0.32;
  double batch_seconds = 0.1;
  int most_batch_calls = 64;  // what a held stream's queue takes with several launches a call
};

enum class StopReason : std::uint8_t {
  kQuiet,      // the noise rule held
  kTime,       // most_seconds passed first
  kSamples,    // most_samples were taken first
  kThrottled,  // the clock stayed low
};
const char* stop_name(StopReason reason);  // "quiet", "time", "samples", "throttled"

struct Measurement {
  SampleSummary ms;         // cold; of at least one sample
  double deviation = 0;     // relative standard deviation of the cold samples; 0 of one
  double clock_mhz = 0;     // mean over the cold samples that know theirs; 0: none does
  std::size_t dropped = 0;  // throttled samples
  double batch_ms = 0;      // a call; mean over the later half of the batches
  double batch_clock_mhz = 0;
  StopReason stop = StopReason::kQuiet;
};

Measurement measure(Stopwatch& stopwatch, const LoopLimits& limits);

}  // namespace longhaul
