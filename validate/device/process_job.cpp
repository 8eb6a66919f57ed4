#include "validate/device/process_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "sim/core/error.h"

namespace longhaul {
namespace {

std::optional<int> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

std::string name_of(int process, const std::vector<ProcessGpus>& processes) {
  return fmt::format("process {} of {} on {}", process, processes.size(),
                     processes[static_cast<std::size_t>(process)].host);
}

// First process of every host, in order.
std::vector<int> host_starts(const std::vector<ProcessGpus>& processes) {
  std::vector<int> starts;
  std::set<std::string> seen;
  for (std::size_t p = 0; p < processes.size(); ++p) {
    if (p > 0 && processes[p].host == processes[p - 1].host) continue;
    if (!seen.insert(processes[p].host).second) {
      throw LimitError(
          fmt::format("{} comes after processes of another host: ranks of a node must follow each other; "
                      "mpirun --map-by slot, or srun --distribution=block",
                      name_of(static_cast<int>(p), processes)));
    }
    starts.push_back(static_cast<int>(p));
  }
  return starts;
}

// Whether all of [begin, end) see the same GPUs; LimitError if they see some in common.
bool see_the_same(const std::vector<ProcessGpus>& processes, int begin, int end) {
  const std::vector<std::string>& first = processes[static_cast<std::size_t>(begin)].gpus;
  std::map<std::string, int> owner;
  bool same = true;
  std::string shared;
  for (int p = begin; p < end; ++p) {
    const std::vector<std::string>& gpus = processes[static_cast<std::size_t>(p)].gpus;
    same = same && gpus == first;
    for (const std::string& gpu : gpus) {
      const auto [other, alone] = owner.emplace(gpu, p);
      if (!alone && shared.empty()) {
        shared = fmt::format("{} sees GPU {}, and so does process {}", name_of(p, processes), gpu, other->second);
      }
    }
  }
  if (!same && !shared.empty()) {
    throw LimitError(shared + ": give every process all GPUs of its host, or some of its own (CUDA_VISIBLE_DEVICES)");
  }
  return same && end - begin > 1;
}

}  // namespace

void send_text(ProcessJob& job, int to, std::string_view text) {
  job.send(to, std::as_bytes(std::span<const char>(text.data(), text.size())));
}

std::string receive_text(ProcessJob& job, int from) {
  const std::vector<std::byte> message = job.receive(from);
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

std::string process_name(const ProcessJob& job) {
  return fmt::format("process {} of {} on {}", job.process(), job.processes(), job.host());
}

std::int32_t ranks_of_each(std::int32_t ranks, int processes) {
  if (ranks % processes == 0) return ranks / processes;
  int fits = std::min<int>(processes, ranks);
  while (ranks % fits != 0) --fits;
  throw LimitError(
      fmt::format("{} processes do not share {} ranks evenly; start {} processes", processes, ranks, fits));
}

std::optional<LaunchedProcess> launched_process(Environment variable) {
  // srun sets those of the step; a batch script alone has none of them. Its PMI may set its own beside.
  constexpr std::array<std::pair<const char*, const char*>, 3> kLaunchers = {
      {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
       {"PMI_SIZE", "PMI_RANK"},
       {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}}};
  for (const auto& [size, rank] : kLaunchers) {
    const std::optional<int> processes = number(variable(size));
    const std::optional<int> process = number(variable(rank));
    if (processes && process && *processes > 1) return LaunchedProcess{*process, *processes};
  }
  return std::nullopt;
}

std::vector<std::vector<int>> share_gpus(const std::vector<ProcessGpus>& processes) {
  std::vector<std::vector<int>> shares(processes.size());
  std::vector<int> starts = host_starts(processes);
  starts.push_back(static_cast<int>(processes.size()));
  for (std::size_t h = 0; h + 1 < starts.size(); ++h) {
    const int begin = starts[h], end = starts[h + 1];
    const bool shared = see_the_same(processes, begin, end);
    for (int p = begin; p < end; ++p) {
      const auto gpus = static_cast<int>(processes[static_cast<std::size_t>(p)].gpus.size());
      const int each = shared ? gpus / (end - begin) : gpus;
      if (each == 0) {
        throw LimitError(fmt::format("{} gets no GPU: {} processes run on that host, which has {}",
                                     name_of(p, processes), end - begin, gpus));
      }
      for (int i = 0; i < each; ++i) {
        shares[static_cast<std::size_t>(p)].push_back((shared ? (p - begin) * each : 0) + i);
      }
    }
  }
  return shares;
}

}  // namespace longhaul
