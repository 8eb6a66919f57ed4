#include "validate/device/job_run.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kGoOn = "go on";
constexpr const char* kEnd = "end";

// Another process ended the run.
struct RunEnded {};

void send_outcome(ProcessJob& job, const StepOutcome& outcome) {
  OrderedJson tensors = OrderedJson::array();
  for (const StepTensor& tensor : outcome.tensors) {
    const TensorId& id = tensor.id;
    tensors.push_back(
        {tensor.rank, id.kind, id.layer, id.chunk, id.instance, tensor.resident, tensor.before_op, tensor.position});
  }
  // The loss by its bits: JSON has no infinities.
  send_text(job, 0,
            OrderedJson{{"outcome",
                         {{"loss", std::bit_cast<std::uint64_t>(outcome.loss)},
                          {"ops", outcome.ops},
                          {"collectives", outcome.collectives},
                          {"tensors", tensors}}}}
                .dump());
  for (const StepTensor& tensor : outcome.tensors) job.send(0, tensor.bytes);
}

// Adds what `from` sends behind the header that is `json`.
void add_outcome(ProcessJob& job, int from, const OrderedJson& json, const DevicePlan& plan, StepOutcome& all) {
  all.loss += std::bit_cast<double>(json.at("loss").get<std::uint64_t>());
  all.ops += json.at("ops").get<std::int64_t>();
  all.collectives = std::max(all.collectives, json.at("collectives").get<std::int64_t>());
  for (const OrderedJson& of : json.at("tensors")) {
    StepTensor tensor;
    tensor.rank = of.at(0).get<std::int32_t>();
    tensor.id = {of.at(1).get<TensorKindId>(), of.at(2).get<std::int16_t>(), of.at(3).get<std::int32_t>(),
                 of.at(4).get<std::uint8_t>()};
    tensor.resident = of.at(5).get<bool>();
    tensor.before_op = of.at(6).get<bool>();
    tensor.position = of.at(7).get<std::int32_t>();
    if (tensor.position >= 0) tensor.at = plan.programs().op(tensor.rank, tensor.position).at;
    const std::vector<std::byte> received = job.receive(from);
    tensor.bytes.assign(received.begin(), received.end());
    all.tensors.push_back(std::move(tensor));
  }
}

FaultKind fault_kind(const std::string& name) {
  for (const FaultKind kind : {FaultKind::kKernel, FaultKind::kNccl, FaultKind::kHang, FaultKind::kMemory,
                               FaultKind::kDeviceLost, FaultKind::kUnsupported}) {
    if (name == to_string(kind)) return kind;
  }
  return FaultKind::kKernel;
}

DeviceFault fault_of(const RunFailure& failure) {
  return {fault_kind(failure.kind), {failure.rank, failure.position, failure.op, failure.kernel}, failure.message};
}

void require_alive(const RunRecord& record, const Transport& transport) {
  if (record.failure.kind.empty() || transport.survives_faults()) return;
  throw LimitError(fault_of(record.failure).what());
}

// Of several the first that is no hang: the others hang because of it.
void choose_failure(const std::vector<RunRecord>& records, RunRecord& merged) {
  for (const RunRecord& record : records) {
    const RunFailure& failure = record.failure;
    const bool better = merged.failure.kind.empty() ||
                        (merged.failure.kind == to_string(FaultKind::kHang) && failure.kind != merged.failure.kind);
    if (!failure.kind.empty() && better) merged.failure = failure;
  }
}

class Lead {
 public:
  Lead(ProcessJob& job, const DevicePlan& plan)
      : job_(job), plan_(plan), ended_(static_cast<std::size_t>(job.processes())) {}

  // Tensors of all processes; what their failures say goes into the fault that is thrown.
  void compare(StepOutcome own, RunRecord& record, const std::function<void(StepOutcome, RunRecord&)>& on_step) {
    take_outcomes(&own);
    for (const std::optional<RunRecord>& other : ended_) {
      if (!other) continue;
      answer(kEnd);
      throw fault_of(other->failure);
    }
    if (on_step) on_step(std::move(own), record);
    answer(kGoOn);
  }

  // The records of all, once this process has its own.
  RunRecord finish(RunRecord own) {
    if (!answered_) {  // a fault ended this process before its tensors were there
      take_outcomes(nullptr);
      answer(kEnd);
    }
    if (!own.failure.kind.empty() && own.failure.message.rfind("process ", 0) != 0) {
      own.failure.message = fmt::format("{}: {}", process_name(job_), own.failure.message);
    }
    std::vector<RunRecord> records = {std::move(own)};
    for (int p = 1; p < job_.processes(); ++p) {
      std::optional<RunRecord>& other = ended_[static_cast<std::size_t>(p)];
      if (!other && went_on_) other = record_of(OrderedJson::parse(receive_text(job_, p)));
      if (other) records.push_back(std::move(*other));
    }
    RunRecord merged = merge_records(records);
    choose_failure(records, merged);
    return merged;
  }

 private:
  static RunRecord record_of(const OrderedJson& message) {
    Expected<RunRecord> record = run_record_from_json(message.at("record"), "a process of the job", true);
    if (!record) throw LimitError(record.error().front().to_string());
    return std::move(*record);
  }

  // From every other process its tensors, added to `all`, or the record that it ended with.
  void take_outcomes(StepOutcome* all) {
    for (int p = 1; p < job_.processes(); ++p) {
      const OrderedJson message = OrderedJson::parse(receive_text(job_, p));
      if (message.contains("record")) {
        ended_[static_cast<std::size_t>(p)] = record_of(message);
        continue;
      }
      StepOutcome left_out;
      add_outcome(job_, p, message.at("outcome"), plan_, all == nullptr ? left_out : *all);
    }
  }

  void answer(const char* word) {
    answered_ = true;
    went_on_ = word == std::string(kGoOn);
    for (int p = 1; p < job_.processes(); ++p) {
      if (!ended_[static_cast<std::size_t>(p)]) send_text(job_, p, word);
    }
  }

  ProcessJob& job_;
  const DevicePlan& plan_;
  std::vector<std::optional<RunRecord>> ended_;  // by process: its record, where a fault ended it before the answer
  bool answered_ = false, went_on_ = false;
};

}  // namespace

RunRecord lead_run(ProcessJob& job, const DevicePlan& plan, const std::vector<Device*>& devices, Transport& transport,
                   const ExecutorOptions& options, const StepWish& wish,
                   const std::function<void(StepOutcome, RunRecord&)>& on_step) {
  Lead lead(job, plan);
  RunRecord own = run_on_devices(plan, devices, transport, options, wish, [&](StepOutcome outcome, RunRecord& record) {
    lead.compare(std::move(outcome), record, on_step);
  });
  require_alive(own, transport);
  return lead.finish(std::move(own));
}

bool follow_run(ProcessJob& job, const DevicePlan& plan, const std::vector<Device*>& devices, Transport& transport,
                const ExecutorOptions& options, const StepWish& wish) {
  RunRecord record;
  try {
    record = run_on_devices(plan, devices, transport, options, wish, [&](const StepOutcome& outcome, RunRecord&) {
      send_outcome(job, outcome);
      if (receive_text(job, 0) != kGoOn) throw RunEnded{};
    });
  } catch (const RunEnded&) {
    return true;
  }
  require_alive(record, transport);
  if (!record.failure.kind.empty()) {
    record.failure.message = fmt::format("{}: {}", process_name(job), record.failure.message);
  }
  send_text(job, 0, OrderedJson{{"record", to_json(record)}}.dump());
  if (record.failure.kind.empty()) return false;
  const FaultKind kind = fault_kind(record.failure.kind);
  return kind != FaultKind::kMemory && kind != FaultKind::kUnsupported;
}

}  // namespace longhaul
