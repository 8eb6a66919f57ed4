// Published figures of context parallelism, as files: what was published, and the study that reproduces each number.
//
// A folder holds `context-parallel-tables.csv` (table,gate,source,needs), `context-parallel.csv` (one number a row:
// table,what,study,case,strategy,over,quantity,published,needs) and the studies, NAME.json each. A row without a study
// cannot be reproduced; it, or its table, then says in `needs` which assumption would be needed. Facts only: nothing
// here is fitted. Units stand in the quantity's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/scenario/study.h"

namespace longhaul {

enum class PublishedGate : std::uint8_t {
  kNone,      // printed
  kParts,     // every part within 15 %, every total within 10 %
  kSpeedups,  // median within 10 %, the same winner in all cells but one
  kEach,      // every number within 8 %
  kRates,     // median within 12 %, the order of a cell right wherever two numbers lie more than 6 TFLOP/s apart
};
const std::vector<std::string>& published_gates();  // "none", "parts", "speedups", "each", "rates"

// Of one packed sequence and one layer. Parts sum to the total: the time of attention holds the waits for the slowest
// rank, that of copies the launches. Backward is both passes less the forward pass alone.
enum class PublishedQuantity : std::uint8_t {
  kTotalMs,  // both passes
  kForwardMs,
  kBackwardMs,
  kAttentionForwardMs,
  kAttentionBackwardMs,
  kGatherMs,   // exposed communication of the forward pass
  kScatterMs,  // of the backward pass
  kCopiesMs,   // both passes
  kSpeedup,    // time of `over` / time, both passes
  kSpeedupForward,
  kPerSecond,  // sequences a second, both passes
  kPerSecondForward,
  kTflopsForward,   // per GPU, TFLOP/s: 4 x query width x unmasked pairs, over time x GPUs
  kTflopsBackward,  // 2.5 times as many
};
const std::vector<std::string>& published_quantities();
bool is_speedup(PublishedQuantity quantity);

// What a rank's queries, keys and values are in the program that was timed.
enum class PublishedInputs : std::uint8_t {
  kOwn,    // tensors of its rows
  kWhole,  // chunks of whole tensors that every rank holds: a backward pass ends with the gradients of those
};
const std::vector<std::string>& published_inputs();

struct PublishedTable {
  std::string name;
  PublishedGate gate = PublishedGate::kNone;
  PublishedInputs inputs = PublishedInputs::kOwn;
  std::string source;
  std::string needs;  // may be empty
};

struct PublishedNumber {
  std::size_t table = 0;
  std::string what;  // the method as the source calls it
  int study = -1;    // -1: not reproduced
  std::string case_name;
  std::string strategy;  // label
  std::string over;      // label; speed-ups only
  PublishedQuantity quantity = PublishedQuantity::kTotalMs;
  double published = 0;
  std::string needs;
};

struct PublishedFigures {
  std::vector<PublishedTable> tables;
  std::vector<PublishedNumber> numbers;  // in the order of the file
  std::vector<Study> studies;
};

// Every fault of all files at once.
Expected<PublishedFigures> read_published(const std::string& folder);

}  // namespace longhaul
