#include "validate/device/cuda/nccl_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/common/check.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

void require_nccl(ncclResult_t status, const char* call) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw DeviceFault(FaultKind::kNccl, {-1, -1, "", call},
                    fmt::format("{}: {}", ncclGetErrorString(status), ncclGetLastError(nullptr)));
}

// Calls between the group's start and end go out together; the group is closed on the way out of a fault too.
class NcclGroup {
 public:
  NcclGroup() { require_nccl(ncclGroupStart(), "ncclGroupStart"); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() {
    if (!ended_) ncclGroupEnd();
  }
  void end() {
    ended_ = true;
    require_nccl(ncclGroupEnd(), "ncclGroupEnd");
  }

 private:
  bool ended_ = false;
};

ncclDataType_t data_type(ElementType type) {
  switch (type) {
    case ElementType::kBf16:
      return ncclBfloat16;
    case ElementType::kFp32:
      return ncclFloat;
    case ElementType::kInt32:
      return ncclInt32;
  }
  return ncclBfloat16;
}

std::size_t count_of(const Rows& rows) { return static_cast<std::size_t>(rows.rows * rows.columns); }

std::int64_t packed_bytes(const Rows& rows) {
  constexpr std::int64_t kAlignment = 256;
  const std::int64_t bytes = rows.rows * rows.columns * element_bytes(rows.type);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

PlacedRows packed_rows(const Rows& rows, std::byte* at) {
  return {at, nullptr, rows.type, rows.rows, rows.columns, rows.columns};
}

int index_of(const LoweredCall& call, std::int32_t rank) {
  return static_cast<int>(std::find(call.ranks.begin(), call.ranks.end(), rank) - call.ranks.begin());
}

}  // namespace

ShareNcclId within_one_process() {
  return [](GroupId, const std::vector<std::int32_t>&) {
    ncclUniqueId id;
    require_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return id;
  };
}

std::string loaded_nccl_version() {
  int version = 0;
  require_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

NcclTransport::NcclTransport(const Schedule& schedule, std::vector<CudaDevice*> devices, const ShareNcclId& share,
                             std::chrono::milliseconds patience)
    : devices_(std::move(devices)), patience_(patience) {
  for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
    const std::vector<std::int32_t>& members = schedule.groups[g].members;
    const auto here = [&](std::int32_t rank) { return devices_[static_cast<std::size_t>(rank)] != nullptr; };
    if (std::any_of(members.begin(), members.end(), here)) join(static_cast<GroupId>(g), members, share);
  }
}

void NcclTransport::join(GroupId group, const std::vector<std::int32_t>& members, const ShareNcclId& share) {
  const ncclUniqueId id = share(group, members);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (patience_.count() > 0) config.blocking = 0;
  NcclGroup together;
  std::vector<std::pair<std::int32_t, ncclComm_t>> made;
  made.reserve(members.size());  // NCCL writes to where they are until they have settled
  for (std::size_t m = 0; m < members.size(); ++m) {
    const CudaDevice* device = devices_[static_cast<std::size_t>(members[m])];
    if (device == nullptr) continue;
    LH_CUDA_CHECK(cudaSetDevice(device->index()));
    made.emplace_back(members[m], nullptr);
    require_nccl(
        ncclCommInitRankConfig(&made.back().second, static_cast<int>(members.size()), id, static_cast<int>(m), &config),
        "ncclCommInitRankConfig");
  }
  together.end();
  for (const auto& [rank, communicator] : made) communicators_[{group, rank}].reset(communicator);
  settle(group, "ncclCommInitRankConfig");
}

void NcclTransport::settle(GroupId group, const char* call) {
  if (patience_.count() == 0) return;
  const auto end = std::chrono::steady_clock::now() + patience_;
  for (const auto& [key, communicator] : communicators_) {
    if (key.first != group) continue;
    for (;;) {
      ncclResult_t state = ncclSuccess;
      require_nccl(ncclCommGetAsyncError(communicator.get(), &state), "ncclCommGetAsyncError");
      if (state == ncclSuccess) break;
      if (state != ncclInProgress) {
        throw DeviceFault(FaultKind::kNccl, {key.second, -1, "", call}, ncclGetErrorString(state));
      }
      if (std::chrono::steady_clock::now() > end) {
        const std::int32_t rank = key.second;
        abort();  // a destroyed communicator would wait for the others
        throw DeviceFault(FaultKind::kHang, {rank, -1, "", call},
                          fmt::format("the others of group {} do not follow within {} s", group,
                                      static_cast<double>(patience_.count()) / 1000));
      }
      std::this_thread::yield();
    }
  }
}

NcclTransport::~NcclTransport() = default;

ncclComm_t NcclTransport::communicator(GroupId group, std::int32_t rank) const {
  const auto found = communicators_.find({group, rank});
  LH_ASSERT(found != communicators_.end(), "group {} has no communicator for rank {}", group, rank);
  return found->second.get();
}

std::string NcclTransport::label(CollectiveKind kind) const {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "ncclAllReduce";
    case CollectiveKind::kAllGather:
      return "ncclAllGather";
    case CollectiveKind::kReduceScatter:
      return "ncclReduceScatter";
    case CollectiveKind::kBroadcast:
      return "ncclBroadcast";
    case CollectiveKind::kExchange:
      return "ncclSend, ncclRecv";
  }
  return "";
}

void NcclTransport::announce(const LoweredCall& call) {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> bytes;  // by rank: packed sends, receives
  for (const Message& message : call.messages) {
    if (call.kind != CollectiveKind::kExchange || message.from == message.to) continue;
    if (!message.send.tight()) bytes[message.from].first += packed_bytes(message.send);
    if (!message.receive.tight() || message.accumulate) bytes[message.to].second += packed_bytes(message.receive);
  }
  for (const LoweredCall::Part& part : call.parts) {
    for (std::size_t m = 0; m < call.ranks.size(); ++m) {
      if (!part.sends[m].tight()) bytes[call.ranks[m]].first += packed_bytes(part.sends[m]);
      if (!part.receives[m].tight()) bytes[call.ranks[m]].second += packed_bytes(part.receives[m]);
    }
  }
  for (const auto& [rank, of] : bytes) {
    if (devices_[static_cast<std::size_t>(rank)] == nullptr) continue;
    Buffers& buffers = buffers_[{rank, call.group}];
    buffers.send_bytes = std::max(buffers.send_bytes, of.first);
    buffers.receive_bytes = std::max(buffers.receive_bytes, of.second);
  }
}

std::int64_t NcclTransport::scratch_bytes(std::int32_t rank) const {
  std::int64_t bytes = 0;
  for (const auto& [key, buffers] : buffers_) {
    if (key.first == rank) bytes += buffers.send_bytes + buffers.receive_bytes;
  }
  return bytes;
}

// A group's calls run one after the other on its stream, so that they share its buffers.
std::byte* NcclTransport::buffer(std::int32_t rank, GroupId group, bool sends) {
  Buffers& buffers = buffers_[{rank, group}];
  std::byte*& memory = sends ? buffers.send : buffers.receive;
  const std::int64_t bytes = sends ? buffers.send_bytes : buffers.receive_bytes;
  if (memory == nullptr && bytes > 0) memory = devices_[static_cast<std::size_t>(rank)]->allocate(bytes);
  return memory;
}

void NcclTransport::launch(const LoweredCall& call, const std::vector<CallMember>& members) {
  if (call.kind == CollectiveKind::kExchange) {
    exchange(call, members);
  } else {
    ring(call, members);
  }
}

void NcclTransport::exchange(const LoweredCall& call, const std::vector<CallMember>& members) {
  struct Post {
    const Message* message;
    std::byte* at;
  };
  std::vector<Post> unpack;
  std::map<std::int32_t, std::int64_t> sent, received;  // bytes of the buffers in use, by rank
  std::vector<std::pair<const Message*, std::byte*>> sends, receives;
  const auto here = [&](std::int32_t rank) { return devices_[static_cast<std::size_t>(rank)] != nullptr; };
  for (const Message& message : call.messages) {
    if (message.from == message.to) {
      if (!here(message.from)) continue;
      const CallMember& self = member_of(members, message.from);
      self.device->copy(placed(message.send, *self.memory, self.schedule_stream),
                        placed(message.receive, *self.memory, self.schedule_stream), message.accumulate, self.stream);
      continue;
    }
    if (here(message.from)) {
      const CallMember& from = member_of(members, message.from);
      const PlacedRows rows = placed(message.send, *from.memory, from.schedule_stream);
      std::byte* at = rows.data;
      if (!message.send.tight()) {
        at = buffer(message.from, call.group, true) + sent[message.from];
        sent[message.from] += packed_bytes(message.send);
        from.device->copy(rows, packed_rows(message.send, at), false, from.stream);
      }
      sends.emplace_back(&message, at);
    }
    if (here(message.to)) {
      const CallMember& to = member_of(members, message.to);
      const PlacedRows rows = placed(message.receive, *to.memory, to.schedule_stream);
      std::byte* at = rows.data;
      if (!message.receive.tight() || message.accumulate) {
        at = buffer(message.to, call.group, false) + received[message.to];
        received[message.to] += packed_bytes(message.receive);
        unpack.push_back({&message, at});
      }
      receives.emplace_back(&message, at);
    }
  }
  NcclGroup group;
  for (const auto& [message, at] : sends) {
    const CallMember& from = member_of(members, message->from);
    require_nccl(ncclSend(at, count_of(message->send), data_type(message->send.type), index_of(call, message->to),
                          communicator(call.group, message->from),
                          static_cast<CudaDevice*>(from.device)->cuda_stream(from.stream)),
                 "ncclSend");
  }
  for (const auto& [message, at] : receives) {
    const CallMember& to = member_of(members, message->to);
    require_nccl(
        ncclRecv(at, count_of(message->receive), data_type(message->receive.type), index_of(call, message->from),
                 communicator(call.group, message->to), static_cast<CudaDevice*>(to.device)->cuda_stream(to.stream)),
        "ncclRecv");
  }
  group.end();
  settle(call.group, "ncclSend, ncclRecv");
  for (const Post& post : unpack) {
    const CallMember& to = member_of(members, post.message->to);
    to.device->copy(packed_rows(post.message->receive, post.at),
                    placed(post.message->receive, *to.memory, to.schedule_stream), post.message->accumulate, to.stream);
  }
}

void NcclTransport::ring(const LoweredCall& call, const std::vector<CallMember>& members) {
  for (const LoweredCall::Part& part : call.parts) {
    NcclGroup group;
    for (const CallMember& member : members) {
      if (!member.takes_part || devices_[static_cast<std::size_t>(member.rank)] == nullptr) continue;
      const auto m = static_cast<std::size_t>(index_of(call, member.rank));
      const Rows& send = part.sends[m];
      const Rows& receive = part.receives[m];
      if (!send.tight() || !receive.tight()) {
        throw DeviceFault(FaultKind::kUnsupported, {member.rank, -1, "", label(call.kind)},
                          "a ring collective of rows with gaps");
      }
      const cudaStream_t stream = static_cast<CudaDevice*>(member.device)->cuda_stream(member.stream);
      const ncclComm_t communicator = this->communicator(call.group, member.rank);
      std::byte* from = member.memory->at(send.base, member.schedule_stream);
      std::byte* to = member.memory->at(receive.base, member.schedule_stream);
      const ncclDataType_t type = data_type(receive.type);
      switch (call.kind) {
        case CollectiveKind::kAllReduce:
          require_nccl(ncclAllReduce(to, to, count_of(receive), type, ncclSum, communicator, stream), "ncclAllReduce");
          break;
        case CollectiveKind::kAllGather:
          require_nccl(ncclAllGather(from, to, count_of(send), data_type(send.type), communicator, stream),
                       "ncclAllGather");
          break;
        case CollectiveKind::kReduceScatter:
          require_nccl(ncclReduceScatter(from, to, count_of(receive), type, ncclSum, communicator, stream),
                       "ncclReduceScatter");
          break;
        case CollectiveKind::kBroadcast: {
          std::byte* buffer = m == 0 ? from : to;
          const Rows& rows = m == 0 ? send : receive;
          require_nccl(ncclBroadcast(buffer, buffer, count_of(rows), data_type(rows.type), 0, communicator, stream),
                       "ncclBroadcast");
          break;
        }
        case CollectiveKind::kExchange:
          break;
      }
    }
    group.end();
    settle(call.group, "a ring collective");
  }
}

void NcclTransport::check() {
  for (const auto& [key, communicator] : communicators_) {
    ncclResult_t state = ncclSuccess;
    require_nccl(ncclCommGetAsyncError(communicator.get(), &state), "ncclCommGetAsyncError");
    if (state == ncclSuccess || state == ncclInProgress) continue;
    throw DeviceFault(FaultKind::kNccl, {key.second, -1, "", fmt::format("communicator of group {}", key.first)},
                      ncclGetErrorString(state));
  }
}

bool NcclTransport::abort() {
  for (auto& [key, communicator] : communicators_) ncclCommAbort(communicator.release());
  communicators_.clear();
  return true;
}

}  // namespace longhaul
