#include "validate/gpu/communicator.h"

#include <fmt/format.h>

#include <cstddef>

#include "validate/gpu/nccl_check.h"

namespace longhaul {
namespace {

// Sends and receives between NCCL's group calls go out together; the group is closed on the way out of a fault too.
class Group {
 public:
  Group() { LH_NCCL_CHECK(ncclGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (!ended_) ncclGroupEnd();
  }
  void end() {
    ended_ = true;
    LH_NCCL_CHECK(ncclGroupEnd());
  }

 private:
  bool ended_ = false;
};

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

Communicator::Communicator(const ncclUniqueId& id, int ranks, int rank, int max_ctas) : ranks_(ranks), rank_(rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (max_ctas > 0) config.maxCTAs = max_ctas;
  ncclComm_t comm = nullptr;
  LH_NCCL_CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config));
  comm_.reset(comm);
}

void Communicator::enqueue(const CollectiveShape& shape, const float* send, float* receive, cudaStream_t stream) const {
  const std::size_t count = size(shape.count);
  ncclComm_t comm = comm_.get();
  switch (shape.collective) {
    case MeasuredCollective::kAllReduce:
      LH_NCCL_CHECK(ncclAllReduce(send, receive, count, ncclFloat, ncclSum, comm, stream));
      return;
    case MeasuredCollective::kAllGather:
      LH_NCCL_CHECK(ncclAllGather(send, receive, count, ncclFloat, comm, stream));
      return;
    case MeasuredCollective::kReduceScatter:
      LH_NCCL_CHECK(ncclReduceScatter(send, receive, count, ncclFloat, ncclSum, comm, stream));
      return;
    case MeasuredCollective::kBroadcast:
      LH_NCCL_CHECK(ncclBroadcast(send, receive, count, ncclFloat, 0, comm, stream));
      return;
    case MeasuredCollective::kAllToAll: {
      Group group;
      for (int peer = 0; peer < ranks_; ++peer) {
        LH_NCCL_CHECK(ncclSend(send + peer * shape.count, count, ncclFloat, peer, comm, stream));
        LH_NCCL_CHECK(ncclRecv(receive + peer * shape.count, count, ncclFloat, peer, comm, stream));
      }
      group.end();
      return;
    }
    case MeasuredCollective::kSendRecv: {
      Group group;
      LH_NCCL_CHECK(ncclSend(send, count, ncclFloat, (rank_ + 1) % ranks_, comm, stream));
      LH_NCCL_CHECK(ncclRecv(receive, count, ncclFloat, (rank_ + ranks_ - 1) % ranks_, comm, stream));
      group.end();
      return;
    }
  }
}

void Communicator::enqueue_exchange(const ExchangePlan& plan, const float* send, float* receive,
                                    cudaStream_t stream) const {
  Group group;
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::int64_t out = plan.count(rank_, peer), in = plan.count(peer, rank_);
    if (out > 0) {
      LH_NCCL_CHECK(ncclSend(send + plan.send_offset(rank_, peer), size(out), ncclFloat, peer, comm_.get(), stream));
    }
    if (in > 0) {
      LH_NCCL_CHECK(
          ncclRecv(receive + plan.receive_offset(rank_, peer), size(in), ncclFloat, peer, comm_.get(), stream));
    }
  }
  group.end();
}

void Communicator::enqueue_broadcasts(const ExchangePlan& plan, const float* send, float* receive,
                                      cudaStream_t stream) const {
  Group group;
  for (int root = 0; root < ranks_; ++root) {
    const std::int64_t count = plan.count(root, rank_);
    if (count == 0) continue;
    float* part = receive + plan.receive_offset(rank_, root);
    LH_NCCL_CHECK(ncclBroadcast(root == rank_ ? send : part, part, size(count), ncclFloat, root, comm_.get(), stream));
  }
  group.end();
}

void Communicator::check_health() const {
  ncclResult_t background = ncclSuccess;
  LH_NCCL_CHECK(ncclCommGetAsyncError(comm_.get(), &background));
  LH_NCCL_CHECK(background);
}

ncclUniqueId make_nccl_id() {
  ncclUniqueId id;
  LH_NCCL_CHECK(ncclGetUniqueId(&id));
  return id;
}

std::string nccl_version() {
  int version = 0;
  LH_NCCL_CHECK(ncclGetVersion(&version));
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace longhaul
