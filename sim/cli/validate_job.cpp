#include "sim/cli/validate_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "sim/cli/command.h"
#include "sim/cli/validate_gpu.h"
#include "sim/core/error.h"
#include "validate/device/gpu_devices.h"
#include "validate/device/host_device.h"
#include "validate/device/job_transport.h"

namespace longhaul {
namespace {

constexpr const char* kGo = "go";
constexpr const char* kStop = "stop";

// One rank a place: from the share of the process that has it.
std::vector<int> gpus_by_rank(const std::vector<int>& share, int process, std::int32_t each, std::int32_t ranks) {
  std::vector<int> gpus(static_cast<std::size_t>(ranks), -1);
  for (std::int32_t i = 0; i < each; ++i) {
    gpus[static_cast<std::size_t>(process * each + i)] = share.empty() ? 0 : share[static_cast<std::size_t>(i)];
  }
  return gpus;
}

// Devices of this process's ranks; `ready` is called when they are there, before they are joined with others'.
JobTeam open_team(ProcessJob& job, const Schedule& schedule, const std::vector<int>& share, bool on_host,
                  const std::function<void()>& ready) {
  const auto ranks = static_cast<std::int32_t>(schedule.ranks.size());
  const std::int32_t each = ranks_of_each(ranks, job.processes());
  JobTeam team;
  const std::vector<int> gpus = gpus_by_rank(share, job.process(), each, ranks);
  if (on_host) {
    for (const int gpu : gpus) team.owned.push_back(gpu < 0 ? nullptr : std::make_unique<HostDevice>());
    ready();
    team.transport = std::make_unique<JobTransport>(job, each);
  } else {
    GpuTeam made = gpu_devices().make_team(schedule, {gpus, &job, ready});
    team.owned = std::move(made.devices);
    team.transport = std::move(made.transport);
  }
  for (const auto& device : team.owned) team.devices.push_back(device.get());
  return team;
}

Json plain(const StepWish& wish) {
  return {{"released", wish.released}, {"resident", wish.resident}, {"backward_lse", wish.backward_lse}};
}

Json plain(const ExecutorOptions& options) {
  return {{"warmups", options.warmups},           {"repeats", options.repeats},
          {"seed", options.parameter_seed},       {"timeout_ms", options.timeout.count()},
          {"plant_kernel", options.plant.kernel}, {"plant_share", options.plant.share}};
}

ExecutorOptions options_from(const Json& json) {
  ExecutorOptions options;
  options.warmups = json.at("warmups").get<std::int32_t>();
  options.repeats = json.at("repeats").get<std::int32_t>();
  options.parameter_seed = json.at("seed").get<std::uint64_t>();
  options.timeout = std::chrono::milliseconds(json.at("timeout_ms").get<std::int64_t>());
  options.plant = {json.at("plant_kernel").get<std::string>(), json.at("plant_share").get<double>()};
  return options;
}

// A process that is not the first.
class Follower {
 public:
  explicit Follower(ProcessJob& job) : job_(job) {}

  int follow() {
    for (;;) {
      const Json order = Json::parse(receive_text(job_, 0));
      const std::string what = order.at("do").get<std::string>();
      if (what == "end") return order.at("code").get<int>();
      if (what == "see") answer([&] { return see(); });
      if (what == "take") answer([&] { return take(order); });
      if (what == "run") run(order);
    }
  }

  // Work of an ended run may still be on a device: it must not be waited for.
  bool faulted() const { return faulted_; }

 private:
  // A reply, or why there is none.
  void answer(const std::function<Json()>& reply) {
    Json json;
    try {
      json = reply();
      json["error"] = "";
    } catch (const LimitError& error) {
      json = {{"error", error.what()}};
    }
    send_text(job_, 0, json.dump());
  }

  Json see() const {
    if (const auto missing = missing_for_gpu()) throw LimitError(*missing);
    return {{"host", job_.host()}, {"gpus", gpu_devices().addresses()}};
  }

  Json take(const Json& order) {
    share_ = order.at("gpus").get<std::vector<int>>();
    return least_of(share_);
  }

  void run(const Json& order) {
    bool voted = false;
    const auto vote = [&](const std::string& error, std::uint64_t fingerprint) {
      voted = true;
      send_text(job_, 0, Json{{"error", error}, {"fingerprint", fingerprint}}.dump());
      return receive_text(job_, 0) == kGo;
    };
    struct Stopped {};
    try {
      const Expected<Prepared> prepared =
          prepare_run(order.at("study"), order.at("file").get<std::string>(), order.at("label").get<std::string>(),
                      order.at("case").get<std::string>());
      if (!prepared) throw LimitError(prepared.error().front().to_string());
      const Schedule& schedule = *(*prepared)->planned.schedule;
      const DevicePlan plan(schedule);
      JobTeam team = open_team(job_, schedule, share_, order.at("on_host").get<bool>(), [&] {
        if (!vote("", schedule_fingerprint(schedule))) throw Stopped{};
      });
      const Json how = Json::parse(receive_text(job_, 0));
      const Json& wish = how.at("wish");
      faulted_ = follow_run(job_, plan, team.devices, *team.transport, options_from(how.at("options")),
                            {wish.at("released").get<std::vector<std::string>>(),
                             wish.at("resident").get<std::vector<std::string>>(), wish.at("backward_lse").get<bool>()});
      if (faulted_) {  // a destructor might wait for what hangs; the process ends without it
        for (auto& device : team.owned) device.release();
        team.transport.release();
      }
    } catch (const Stopped&) {
      return;
    } catch (const LimitError& error) {
      if (voted) throw;
      vote(error.what(), 0);
    }
  }

 public:
  // Name and least free memory of GPUs of this process.
  static Json least_of(const std::vector<int>& gpus) {
    std::int64_t least = 0;
    std::string name;
    for (const int gpu : gpus) {
      const std::unique_ptr<Device> device = gpu_devices().make(gpu, AttentionChoice::kBest);
      const std::int64_t free = device->free_bytes();
      least = least == 0 ? free : std::min(least, free);
      name = device->hardware().device;
    }
    return {{"device", name}, {"free_bytes", least}};
  }

 private:
  ProcessJob& job_;
  std::vector<int> share_;
  bool faulted_ = false;
};

// The hosts of the job must be the nodes of the study's cluster, or the prediction is of another machine.
void require_nodes(const std::vector<std::string>& hosts, std::int32_t ranks, int gpus_per_node) {
  const std::int32_t each = ranks / static_cast<std::int32_t>(hosts.size());
  const auto host = [&](std::int32_t rank) { return hosts[static_cast<std::size_t>(rank / each)]; };
  for (std::int32_t rank = 1; rank < ranks; ++rank) {
    const bool new_host = host(rank) != host(rank - 1);
    const bool new_node = rank % gpus_per_node == 0;
    if (new_host == new_node) continue;
    throw LimitError(fmt::format(
        "the study's cluster has {} GPUs in a node, the job has ranks {} and {} on {} ({}): start as many processes a "
        "host as fill a node, or describe this cluster in a topology",
        gpus_per_node, rank - 1, rank, new_host ? "two hosts" : "one host",
        new_host ? fmt::format("{}, {}", host(rank - 1), host(rank)) : host(rank)));
  }
}

}  // namespace

std::string JobLead::ask(int process, const std::string& order) {
  send_text(job_, process, order);
  return receive_text(job_, process);
}

MachineAtHand JobLead::gpus_at_hand(std::string& hardware_name) {
  const int processes = job_.processes();
  std::vector<ProcessGpus> seen = {{job_.host(), gpu_devices().addresses()}};
  const auto name = [&](int p, const std::string& host) {
    return host.empty() ? fmt::format("process {} of {}", p, processes)
                        : fmt::format("process {} of {} on {}", p, processes, host);
  };
  const auto asked = [&](int p, const Json& order, const std::string& host) {
    Json reply = Json::parse(ask(p, order.dump()));
    const std::string error = reply.at("error").get<std::string>();
    if (!error.empty()) throw LimitError(fmt::format("{}: {}", name(p, host), error));
    return reply;
  };
  for (int p = 1; p < processes; ++p) {
    const Json reply = asked(p, {{"do", "see"}}, "");
    seen.push_back({reply.at("host").get<std::string>(), reply.at("gpus").get<std::vector<std::string>>()});
  }
  shares_ = share_gpus(seen);
  hosts_.clear();
  std::size_t least = shares_.front().size();
  for (std::size_t p = 0; p < seen.size(); ++p) {
    hosts_.push_back(seen[p].host);
    least = std::min(least, shares_[p].size());
  }
  const Json own = Follower::least_of(shares_.front());
  hardware_name = own.at("device").get<std::string>();
  MachineAtHand machine;
  machine.device = shipped_device_of(hardware_name);
  machine.ranks = static_cast<int>(least) * processes;
  machine.memory_bytes = own.at("free_bytes").get<std::int64_t>();
  for (int p = 1; p < processes; ++p) {
    const auto at = static_cast<std::size_t>(p);
    const Json reply = asked(p, {{"do", "take"}, {"gpus", shares_[at]}}, hosts_[at]);
    const std::string other = reply.at("device").get<std::string>();
    if (other != hardware_name) {
      throw LimitError(fmt::format("{} has {}, process 0 has {}: a run needs GPUs of one kind", name(p, hosts_[at]),
                                   other, hardware_name));
    }
    machine.memory_bytes = std::min(machine.memory_bytes, reply.at("free_bytes").get<std::int64_t>());
  }
  return machine;
}

JobTeam JobLead::make_team(const PreparedRun& prepared, const std::string& file, bool on_host) {
  const Schedule& schedule = *prepared.planned.schedule;
  const auto ranks = static_cast<std::int32_t>(schedule.ranks.size());
  ranks_of_each(ranks, job_.processes());
  if (!on_host) require_nodes(hosts_, ranks, prepared.study_case->topology.gpus_per_node);
  const std::string order = Json{
      {"do", "run"},
      {"study", prepared.study_json},
      {"file", file},
      {"label", prepared.entry->label},
      {"case", prepared.study_case->name},
      {"on_host", on_host}}.dump();
  for (int p = 1; p < job_.processes(); ++p) send_text(job_, p, order);
  busy_ = true;
  const std::uint64_t fingerprint = schedule_fingerprint(schedule);
  bool counted = false;
  // The votes of all others, then what they do; `error` is this process's own.
  const auto decide = [&](std::string error) {
    counted = true;
    for (int p = 1; p < job_.processes(); ++p) {
      const Json reply = Json::parse(receive_text(job_, p));
      std::string other = reply.at("error").get<std::string>();
      if (other.empty() && reply.at("fingerprint").get<std::uint64_t>() != fingerprint) {
        other = "plans another schedule from the same study: is it another version of longhaul?";
      }
      if (error.empty() && !other.empty()) error = fmt::format("process {} of {}: {}", p, job_.processes(), other);
    }
    for (int p = 1; p < job_.processes(); ++p) send_text(job_, p, error.empty() ? kGo : kStop);
    busy_ = error.empty();
    if (!error.empty()) throw LimitError(error);
  };
  try {
    return open_team(job_, schedule, shares_.empty() ? std::vector<int>{} : shares_.front(), on_host,
                     [&] { decide(""); });
  } catch (const LimitError& error) {
    if (counted) throw;
    decide(fmt::format("{}: {}", process_name(job_), error.what()));
    throw;
  }
}

RunRecord JobLead::run(const DevicePlan& plan, JobTeam& team, const ExecutorOptions& options, const StepWish& wish,
                       const std::function<void(StepOutcome, RunRecord&)>& on_step) {
  const std::string how = Json{{"options", plain(options)}, {"wish", plain(wish)}}.dump();
  for (int p = 1; p < job_.processes(); ++p) send_text(job_, p, how);
  RunRecord record = lead_run(job_, plan, team.devices, *team.transport, options, wish, on_step);
  busy_ = false;
  return record;
}

void JobLead::leave(int code) {
  if (left_) return;
  left_ = true;
  for (int p = 1; p < job_.processes(); ++p) send_text(job_, p, Json{{"do", "end"}, {"code", code}}.dump());
  job_.finish();
}

int run_in_job(ProcessJob& job, const LeadJob& lead) {
  JobLead side(job);
  const auto failed = [&](const std::string& why) {
    // What comes from another process says so itself.
    const bool named = why.rfind("process ", 0) == 0;
    const int code = cannot(named ? why : fmt::format("{}: {}", process_name(job), why));
    // Others wait for this process where no message reaches them, unless they wait for process 0's next order.
    if (job.process() > 0 || side.busy()) job.abort(code);
    side.leave(code);
    return code;
  };
  try {
    if (job.process() == 0) {
      const int code = lead(side);
      side.leave(code);
      return code;
    }
    Follower follower(job);
    const int code = follower.follow();
    job.finish();
    if (follower.faulted()) end_now(code);
    return code;
  } catch (const LimitError& error) {
    return failed(error.what());
  } catch (const std::bad_alloc&) {
    return failed("out of memory; run fewer ranks, tokens or layers");
  }
}

}  // namespace longhaul
