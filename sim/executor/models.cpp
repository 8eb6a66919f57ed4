#include "sim/executor/models.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "sim/core/invariant.h"
#include "sim/cost/kernel_features.h"
#include "sim/executor/launch_pieces.h"
#include "sim/network/flow_solver.h"

namespace longhaul {
namespace {

constexpr std::int64_t kActivationBytes = 2;  // bf16

struct Sized {
  Estimate estimate;
  KernelKind kernel = KernelKind::kElementwise;
  std::int64_t tiles = 0;
  std::optional<double> issue_seconds = {};  // nothing: a plain launch
  std::optional<double> stall_seconds = {};  // nothing: the host does not wait
  std::int64_t blocks = 0;                   // of the launch, one multiprocessor each; 0: not one that holds others up
  bool takes_device_at_once = false;
};

// Sequences that one launch takes as a batch: equal squares of a step whose sequences are one document each. Such
// training does not pack, so its attention is the dense kernel over batch x heads, not a varlen call (basp.md 2.4: B
// sequences of h/N heads are the thread blocks of one sequence of B h/N heads). 1 for everything else.
std::int64_t batched_sequences(const Schedule& schedule, const PieceList& list) {
  if (schedule.batch == nullptr || schedule.batch->documents.size() != schedule.batch->sequences.size()) return 1;
  const Piece& first = list.pieces.front();
  const bool equal = std::all_of(list.pieces.begin(), list.pieces.end(), [&](const Piece& piece) {
    return piece.rule == MaskRule::kCausal && piece.q_count == piece.k_count && piece.q_token == piece.k_token &&
           piece.q_count == first.q_count && piece.operand == first.operand;
  });
  return equal ? static_cast<std::int64_t>(list.pieces.size()) : 1;
}

// Whether two pieces see the same rows of one operand.
bool keys_meet(const PieceList& list) {
  std::vector<const Piece*> pieces;
  pieces.reserve(list.pieces.size());
  for (const Piece& piece : list.pieces) pieces.push_back(&piece);
  std::sort(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
    return std::tie(a->operand, a->k_row) < std::tie(b->operand, b->k_row);
  });
  return std::adjacent_find(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
           return a->operand == b->operand && a->k_row + a->k_count > b->k_row;
         }) != pieces.end();
}

Sized attention_time(const KernelModel& model, const Schedule& schedule, const OpInstance& at) {
  const Op& op = *at.op;
  const PieceListPtr& list = at.shape->pieces[static_cast<std::size_t>(op.pieces)];
  const std::int64_t batch = batched_sequences(schedule, *list);
  AttentionWork work;
  if (model.has_attention_library() && batch == 1) {
    for (const AttentionPieceSize& piece : launch_pieces(*list)) work.add(piece);
  } else {
    for (const Piece& piece : list->pieces) {
      work.add({piece.q_count, piece.k_count, piece.pairs});
      if (batch > 1) break;  // one stands for all, with the heads of all
    }
  }
  const bool backward = op.pass == Pass::kBackward;
  if (backward) {
    work.shared_keys = batch == 1 && keys_meet(*list);
    return {.estimate = model.attention_backward(work, batch * op.q_heads, batch * op.kv_heads, op.head_dim),
            .kernel = work.dense() ? KernelKind::kAttentionBackwardDense : KernelKind::kAttentionBackwardRagged,
            .blocks = work.k_tiles * batch * op.q_heads,
            .takes_device_at_once = model.attention_starts_with_main_kernel(false)};
  }
  return {.estimate = model.attention_forward(work, batch * op.q_heads, batch * op.kv_heads, op.head_dim),
          .kernel = work.dense() ? KernelKind::kAttentionForwardDense : KernelKind::kAttentionForwardRagged,
          .blocks = work.q_tiles * batch * op.q_heads,
          .takes_device_at_once = model.attention_starts_with_main_kernel(true)};
}

// One after the other on a stream. The part that a call timed alone hides is the first one's.
Estimate sequence(const Estimate& first, const Estimate& second) {
  return {first.seconds + second.seconds, first.low + second.low, first.high + second.high,
          std::max(first.basis, second.basis), first.hidden};
}

Sized move_time(const KernelModel& model, const Schedule& schedule, const OpInstance& at) {
  const Bytes payload{touched_bytes(schedule, at) / 2};  // read once, written once
  if (at.op->stream == kCopyInStream)
    return {model.copy(CopyKind::kHostToDevice, payload), KernelKind::kCopyHostToDevice};
  if (at.op->stream == kCopyOutStream)
    return {model.copy(CopyKind::kDeviceToHost, payload), KernelKind::kCopyDeviceToHost};
  return {model.copy(CopyKind::kDeviceToDevice, payload), KernelKind::kCopyDeviceToDevice};
}

Sized gemm_time(const KernelModel& model, const Schedule& schedule, const OpInstance& at) {
  const GemmShape shape = gemm_shape(schedule, at);
  if (shape.k == 0) {  // nothing to reduce: C is set to zero
    const View& c = at.op->operands[2];
    return {model.elementwise(Bytes{view_bytes(schedule, at, c)}), KernelKind::kElementwise};
  }
  GemmPass pass = GemmPass::kForward;
  if (at.op->pass == Pass::kBackward) pass = at.op->transpose_a ? GemmPass::kBackwardWeight : GemmPass::kBackwardInput;
  const std::int64_t tiles = gemm_tiles(shape.m, shape.n);
  return {
      .estimate = model.gemm(pass, shape.m, shape.n, shape.k),
      .kernel = KernelKind::kGemm,
      .tiles = tiles,
      .blocks = tiles,
      .takes_device_at_once = true,
  };
}

// The kernel of kernels/elementwise that runs the op, as calibrations call it, and the operand whose rows and columns
// it goes over; -1: flat. Functions without a kernel there count as any other.
struct ElementwiseKernel {
  const char* function = "";
  int shape_operand = -1;
};

ElementwiseKernel elementwise_kernel(const Op& op) {
  if (op.kind == OpKind::kMergePartials) return {"merge_attention", 0};
  switch (op.function) {
    case Function::kRmsNorm:
      return {"rms_norm", 0};
    case Function::kRmsNormBackward:
      return {"rms_norm_backward", 0};
    case Function::kRope:
    case Function::kRopeBackward:
      return {"rope", 0};
    case Function::kSwiGlu:
      return {"swiglu", 1};
    case Function::kSwiGluBackward:
      return {"swiglu_backward", 1};
    case Function::kCrossEntropy:
      return {"cross_entropy_with_gradient", 0};
    case Function::kCast:
      return {"cast_to_bf16", -1};
    default:
      return {};
  }
}

// AdamW over a gradient of bf16 (operands: state, gradient, parameters): the kernel reads fp32, which a cast makes.
Estimate optimizer_time(const KernelModel& model, const Schedule& schedule, const OpInstance& at, Bytes touched) {
  if (at.op->operands.size() != 3) return model.elementwise(touched, "adamw", 0, 0);
  const std::int64_t gradient = view_bytes(schedule, at, at.op->operands[1]);
  if (gradient != view_bytes(schedule, at, at.op->operands[2])) return model.elementwise(touched, "adamw", 0, 0);
  constexpr std::int64_t kWider = 2;  // fp32 over bf16
  const Estimate cast = model.elementwise(Bytes{gradient + kWider * gradient}, "cast_to_fp32", 0, 0);
  return sequence(cast, model.elementwise(Bytes{touched.value + (kWider - 1) * gradient}, "adamw", 0, 0));
}

// What the backward pass of a norm takes beside its kernel: the rows' scales once more from x, and, where it adds to dx
// (operands: x, weight, dy, dx, dweight), an addition of what the kernel wrote.
Estimate beside_norm_backward(const KernelModel& model, const Schedule& schedule, const OpInstance& at) {
  const std::int64_t x = view_bytes(schedule, at, at.op->operands[0]);
  const Estimate scales = model.elementwise(Bytes{x}, "rms_norm", 0, 0);
  constexpr std::int64_t kPasses = 3;  // reads two, writes one
  if (at.op->operands[3].access != Access::kAccumulate) return scales;
  return sequence(scales, model.elementwise(Bytes{kPasses * x}, "merge_attention", 0, 0));
}

Estimate elementwise_time(const KernelModel& model, const Schedule& schedule, const OpInstance& at) {
  Bytes bytes{touched_bytes(schedule, at)};
  if (at.op->kind == OpKind::kOptimizer) return optimizer_time(model, schedule, at, bytes);
  const ElementwiseKernel kernel = elementwise_kernel(*at.op);
  const auto operand = static_cast<std::size_t>(kernel.shape_operand);
  if (kernel.shape_operand < 0 || operand >= at.op->operands.size()) {
    return model.elementwise(bytes, kernel.function, 0, 0);
  }
  const View& view = at.op->operands[operand];
  const std::int64_t rows = view_rows(schedule, at, view);
  const std::int64_t row_bytes = rows == 0 ? 0 : view_bytes(schedule, at, view) / rows;
  const bool norm_backward = at.op->function == Function::kRmsNormBackward && at.op->operands.size() == 5;
  // The kernel alone reads x and dy and writes dx; the read of an accumulated dx is the addition's.
  if (norm_backward && at.op->operands[3].access == Access::kAccumulate) bytes.value -= rows * row_bytes;
  const Estimate alone = model.elementwise(bytes, kernel.function, rows, row_bytes / kActivationBytes);
  return norm_backward && rows > 0 ? sequence(alone, beside_norm_backward(model, schedule, at)) : alone;
}

// Slices of a cat: spans of the row list that has most of them.
std::int64_t joined_slices(const OpInstance& at) {
  std::size_t most = 1;
  for (const View& view : at.op->operands) {
    if (view.rows == kAllRows) continue;
    most = std::max(most, at.shape->row_lists[static_cast<std::size_t>(view.rows)]->spans.size());
  }
  return static_cast<std::int64_t>(most);
}

// Copies by an eager framework's kernels; the stall before an op.
void make_eager(const KernelModel& model, const Schedule& schedule, const OpInstance& at, Sized& sized) {
  const Op& op = *at.op;
  if (op.eager != EagerKernel::kNone) {
    const Bytes bytes{touched_bytes(schedule, at)};
    if (const auto eager = model.eager(to_string(op.eager), bytes)) sized.estimate = *eager;
    sized.issue_seconds = model.eager_issue_seconds(to_string(op.eager));
    if (op.eager == EagerKernel::kJoinedSlices && sized.issue_seconds) {
      *sized.issue_seconds *= static_cast<double>(joined_slices(at));
    }
    const double wait = model.eager_wait_seconds(to_string(op.eager));
    if (wait > 0) sized.stall_seconds = wait;
  }
  if (op.stall == HostStall::kNone) return;
  std::int64_t pieces = 0;
  if (op.pieces >= 0) {
    pieces = static_cast<std::int64_t>(launch_pieces(*at.shape->pieces[static_cast<std::size_t>(op.pieces)]).size());
  }
  const double stall = model.stall_seconds(to_string(op.stall), pieces);
  for (double* end : {&sized.estimate.seconds, &sized.estimate.low, &sized.estimate.high}) *end += stall;
  if (stall > 0) sized.stall_seconds = sized.stall_seconds.value_or(0) + stall;
}

Sized kernel_time(const KernelModel& model, const Schedule& schedule, const OpInstance& at) {
  Sized sized;
  switch (at.op->kind) {
    case OpKind::kGemm:
      sized = gemm_time(model, schedule, at);
      break;
    case OpKind::kAttention:
      // Rows without keys only have their outputs set.
      if (at.shape->pieces[static_cast<std::size_t>(at.op->pieces)]->pieces.empty()) {
        sized.estimate = model.elementwise(Bytes{view_bytes(schedule, at, at.op->q)});
      } else {
        sized = attention_time(model, schedule, at);
      }
      break;
    case OpKind::kMove:
      sized = move_time(model, schedule, at);
      break;
    case OpKind::kMergePartials:
    case OpKind::kElementwise:
    case OpKind::kOptimizer:
      sized.estimate = elementwise_time(model, schedule, at);
      break;
    case OpKind::kCollective:
      LH_ASSERT(false, "`{}` is a collective, not a kernel", at.op->label);
  }
  make_eager(model, schedule, at, sized);
  return sized;
}

class FlowNetwork : public CollectiveNetwork {
 public:
  FlowNetwork(const Cluster& cluster, double scale)
      : cluster_(&cluster),
        collectives_(cluster),
        solver_(cluster),
        links_(cluster.links().size()),
        scale_(scale),
        passed_before_(links_),
        left_bytes_(links_) {}

  TransferId prepare(const CollectiveCall& call) override {
    if (call.kind == CollectiveKind::kExchange) {
      const auto [known, fresh] = exchanges_.try_emplace({call.group, content_of(call)}, 0);
      if (fresh) known->second = build(call);
      return known->second;
    }
    return build(call);
  }

  TransferId build(const CollectiveCall& call) {
    Prepared prepared;
    const Transfer transfer = make(call);
    const std::vector<std::int32_t>& ranks = call.schedule->groups[static_cast<std::size_t>(call.group)].members;
    if (call.kind == CollectiveKind::kExchange) keep_messages(prepared, call, ranks);
    prepared.traffic.resize(ranks.size());
    for (const MemberTraffic& member : transfer.members) {
      const auto found = std::find(ranks.begin(), ranks.end(), member.rank);
      LH_ASSERT(found != ranks.end(), "rank {} moves bytes for group {} without being a member", member.rank,
                call.group);
      prepared.traffic[static_cast<std::size_t>(found - ranks.begin())] = {member.sent_intra_node,
                                                                           member.sent_inter_node, member.received};
    }
    prepared.loads = transfer.loads;
    if (!prepared.messages.empty()) prepared.unscaled = transfer;
    prepared.transfer = scaled(transfer);
    prepared_.push_back(std::move(prepared));
    return static_cast<TransferId>(prepared_.size()) - 1;
  }

  ExchangeChannels exchange_channels(const Schedule& schedule, GroupId group, const MemberExchange& member) override {
    const std::vector<std::int32_t>& ranks = schedule.groups[static_cast<std::size_t>(group)].members;
    const Bytes largest{member.largest_message};
    const int waiting =
        collectives_.exchange_channels(static_cast<int>(ranks.size()), domains_of(group, ranks), member.peers, largest);
    return {waiting, moving_channels(waiting, member.partners, Bytes{member.messages}, largest)};
  }

  std::span<const MemberBytes> traffic(TransferId transfer) const override {
    return prepared_[static_cast<std::size_t>(transfer)].traffic;
  }
  TransferUse use(TransferId transfer) const override {
    const Transfer& of = prepared_[static_cast<std::size_t>(transfer)].transfer;
    return {of.channels, of.alone.seconds(), of.copied_bytes, of.merged_bytes};
  }

  void start(Time now, TransferId transfer, std::uint32_t tag) override {
    Prepared& prepared = prepared_[static_cast<std::size_t>(transfer)];
    ++prepared.runs;
    if (tag >= flow_of_tag_.size()) flow_of_tag_.resize(tag + 1);
    flow_of_tag_[tag] = solver_.start(now, prepared.transfer, tag);
  }
  void start_exchange(Time now, TransferId transfer, std::uint32_t tag, std::span<const Time> arrivals) override {
    const Prepared& whole = prepared_[static_cast<std::size_t>(transfer)];
    const bool together = std::all_of(arrivals.begin(), arrivals.end(), [&](Time at) { return at == now; });
    if (whole.messages.empty() || together) return start(now, transfer, tag);
    waited_.clear();
    for (const Time at : arrivals) waited_.push_back(Time::from_seconds((now - at).seconds() / scale_));
    const Transfer left = collectives_.exchange_left(whole.unscaled, whole.messages, whole.ranks, waited_);
    for (const LinkLoad& load : whole.loads) passed_before_[static_cast<std::size_t>(load.link)] += load.bytes;
    for (const LinkLoad& load : left.loads) {
      passed_before_[static_cast<std::size_t>(load.link)] -= load.bytes;
      left_bytes_[static_cast<std::size_t>(load.link)] += load.bytes;
    }
    // A tag's last transfer is over, but the solver may not have let go of it yet.
    if (tag >= left_.size()) left_.resize(tag + 1);
    Left& slot = left_[tag];
    slot.next = 1 - slot.next;
    slot.transfers[slot.next] = std::make_unique<Transfer>(scaled(left));
    if (tag >= flow_of_tag_.size()) flow_of_tag_.resize(tag + 1);
    flow_of_tag_[tag] = solver_.start(now, *slot.transfers[slot.next], tag);
  }
  void slow(Time now, std::span<const TaggedSlowdown> transfers) override {
    slowed_.clear();
    for (const TaggedSlowdown& change : transfers) {
      LH_ASSERT(change.tag < flow_of_tag_.size(), "transfer {} was never started", change.tag);
      slowed_.push_back({flow_of_tag_[change.tag], change.factor});
    }
    solver_.slow(now, slowed_);
  }
  Time next() const override { return solver_.next(); }
  void advance(Time to, std::vector<std::uint32_t>& finished) override { solver_.advance(to, finished); }

  std::vector<std::int64_t> link_bytes() const override {
    std::vector<std::int64_t> bytes = left_bytes_;
    for (const Prepared& prepared : prepared_) {
      for (const LinkLoad& load : prepared.loads)
        bytes[static_cast<std::size_t>(load.link)] += prepared.runs * load.bytes;
    }
    LH_ASSERT(scale_ != 1 || solver_.in_flight() > 0 || bytes == solver_.delivered(),
              "the network delivered other bytes than it was asked for");
    for (std::size_t i = 0; i < links_; ++i) bytes[i] += passed_before_[i];
    return bytes;
  }
  std::vector<double> link_peak_utilisation() const override { return solver_.peak_utilisation(); }

 private:
  struct Prepared {
    Transfer transfer;            // as the solver runs it
    std::vector<LinkLoad> loads;  // as asked for
    std::vector<MemberBytes> traffic;
    std::int64_t runs = 0;
    // Of an exchange for which it matters when its members come.
    std::vector<PeerMessage> messages;
    std::vector<int> ranks;
    Transfer unscaled;
  };
  struct Left {  // of a tag's exchanges
    std::unique_ptr<Transfer> transfers[2];
    int next = 0;
  };

  void keep_messages(Prepared& prepared, const CollectiveCall& call, const std::vector<std::int32_t>& ranks) const {
    if (ranks.size() < 3) return;
    std::vector<PeerMessage> messages = exchange_messages(call);
    if (!collectives_.waits_matter(messages, ranks)) return;
    prepared.messages = std::move(messages);
    prepared.ranks = ranks;
  }

  // Which messages an exchange is made of, in member numbers: equal numbers, equal messages. Layers, passes and the
  // groups of other pipeline stages repeat the same peer lists, so what was read once is found by the lists themselves
  // (the addresses are looked up, never ordered by in results).
  std::int64_t content_of(const CollectiveCall& call) {
    std::vector<std::uintptr_t> lists;
    for (const OpInstance& at : call.members) {
      for (const CollectivePart& part : at.op->parts) {
        const auto size = [&](const View& view) -> std::uintptr_t {
          if (view.tensor.kind < 0) return 0;
          return static_cast<std::uintptr_t>(
              element_bytes(call.schedule->tensors[static_cast<std::size_t>(view.tensor.kind)].type));
        };
        const ExchangeListPtr& list = at.shape->exchanges[static_cast<std::size_t>(part.exchange)];
        const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(list.get());
        const std::uintptr_t sizes = size(part.send) << 8 | size(part.receive);
        const std::size_t n = lists.size();
        if (n >= 3 && lists[n - 3] == address && lists[n - 2] == sizes) {
          ++lists[n - 1];  // members of one group mostly share their list
        } else {
          lists.insert(lists.end(), {address, sizes, 1});
        }
      }
    }
    return contents_.try_emplace(std::move(lists), static_cast<std::int64_t>(contents_.size())).first->second;
  }

  Transfer make(const CollectiveCall& call) {
    const std::vector<std::int32_t>& members = call.schedule->groups[static_cast<std::size_t>(call.group)].members;
    const std::span<const int> ranks(members.data(), members.size());
    const Bytes bytes{call.buffer_bytes};
    switch (call.kind) {
      case CollectiveKind::kAllReduce:
        return collectives_.all_reduce(ranks, bytes);
      case CollectiveKind::kAllGather:
        return collectives_.all_gather(ranks, bytes);
      case CollectiveKind::kReduceScatter:
        return collectives_.reduce_scatter(ranks, bytes);
      case CollectiveKind::kBroadcast:
        return collectives_.broadcast(ranks, bytes);
      case CollectiveKind::kExchange:
        return collectives_.exchange(exchange_messages(call));
    }
    return {};
  }

  int domains_of(GroupId group, const std::vector<std::int32_t>& ranks) {
    const auto g = static_cast<std::size_t>(group);
    if (g >= domains_.size()) domains_.resize(g + 1);
    if (domains_[g] > 0) return domains_[g];
    std::vector<int> domains;
    for (const std::int32_t rank : ranks) domains.push_back(cluster_->domain_of(rank));
    std::sort(domains.begin(), domains.end());
    const auto end = std::unique(domains.begin(), domains.end());
    return domains_[g] = static_cast<int>(end - domains.begin());
  }

  // All times of the transfer times the scale, also where it shares links.
  Transfer scaled(Transfer transfer) const {
    if (scale_ == 1) return transfer;
    for (LinkLoad& load : transfer.loads) {
      const double bytes = static_cast<double>(load.bytes) * scale_ + 0.5;
      load.bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes));
    }
    transfer.latency = Time::from_seconds(transfer.latency.seconds() * scale_);
    transfer.byte_seconds *= scale_;
    transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
    return transfer;
  }

  const Cluster* cluster_;
  Collectives collectives_;
  FlowSolver solver_;
  std::size_t links_;
  double scale_;
  std::vector<std::int64_t> passed_before_;  // by link: of exchanges, before their last member came
  std::vector<std::int64_t> left_bytes_;     // by link: of their rests
  std::vector<Left> left_;                   // by tag
  std::vector<Time> waited_;                 // scratch of start_exchange()
  std::vector<FlowSolver::FlowId> flow_of_tag_;
  std::vector<FlowSolver::Slowdown> slowed_;                          // scratch of slow()
  std::deque<Prepared> prepared_;                                     // addresses stay
  std::map<std::vector<std::uintptr_t>, std::int64_t> contents_;      // peer lists -> content
  std::map<std::pair<GroupId, std::int64_t>, TransferId> exchanges_;  // group, content -> transfer
  std::vector<int> domains_;                                          // by group: that it spans; 0: not asked yet
};

bool by_pair(const PeerMessage& a, const PeerMessage& b) { return std::tie(a.from, a.to) < std::tie(b.from, b.to); }

}  // namespace

OpDuration KernelDurations::duration(const Schedule& schedule, const OpInstance& at) const {
  const Sized sized = kernel_time(*model_, schedule, at);
  const Estimate& of = sized.estimate;
  OpDuration out{Time::from_seconds(of.seconds * scale_), sized.kernel, sized.tiles,
                 Time::from_seconds((of.seconds - of.low) * scale_),
                 Time::from_seconds((of.high - of.seconds) * scale_)};
  if (sized.issue_seconds) out.issue = Time::from_seconds(*sized.issue_seconds);
  if (sized.stall_seconds) out.stall = Time::from_seconds(*sized.stall_seconds);
  out.last_wave = overlap_.last_wave(sized.blocks);
  out.takes_device_at_once = sized.takes_device_at_once;
  return out;
}

Estimate KernelDurations::estimate(const Schedule& schedule, const OpInstance& at) const {
  return kernel_time(*model_, schedule, at).estimate;
}

MemberExchange member_exchange(const Schedule& schedule, const OpInstance& at) {
  MemberExchange member;
  std::int32_t sends = 0, receives = 0;
  for (const PeerBytes& peer : exchange_bytes(schedule, at)) {
    const std::int64_t message = std::max(peer.send, peer.receive);
    member.largest_message = std::max(member.largest_message, message);
    member.messages += message;
    member.partners += message > 0 ? 1 : 0;
    sends += peer.send > 0 ? 1 : 0;
    receives += peer.receive > 0 ? 1 : 0;
  }
  member.peers = std::max(sends, receives);
  return member;
}

Time KernelDurations::launch() const { return Time::from_seconds(model_->launch_seconds()); }

std::vector<PeerMessage> exchange_messages(const CollectiveCall& call) {
  const Schedule& schedule = *call.schedule;
  const std::vector<std::int32_t>& ranks = schedule.groups[static_cast<std::size_t>(call.group)].members;
  std::vector<PeerMessage> sends;
  std::vector<PeerMessage> receives;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const OpInstance& at = call.members[i];
    for (const PeerBytes& peer : exchange_bytes(schedule, at)) {
      LH_ASSERT(peer.peer >= 0 && static_cast<std::size_t>(peer.peer) < ranks.size(), "`{}`: no member {}",
                at.op->label, peer.peer);
      const std::int32_t other = ranks[static_cast<std::size_t>(peer.peer)];
      if (peer.send > 0) sends.push_back({ranks[i], other, Bytes{peer.send}});
      if (peer.receive > 0) receives.push_back({other, ranks[i], Bytes{peer.receive}});
    }
    std::int64_t self = 0;
    for (const CollectivePart& part : at.op->parts) {
      const ExchangeListPtr& list = at.shape->exchanges[static_cast<std::size_t>(part.exchange)];
      if (list == nullptr) continue;
      const std::int64_t size =
          part.send.tensor.kind < 0
              ? 0
              : element_bytes(schedule.tensors[static_cast<std::size_t>(part.send.tensor.kind)].type);
      for (const PeerExchange& peer : *list) {
        if (static_cast<std::size_t>(peer.peer) == i && peer.send_rows)
          self += peer.send_rows->rows * peer.send_columns * size;
      }
    }
    if (self > 0) {
      sends.push_back({ranks[i], ranks[i], Bytes{self}});
      receives.push_back({ranks[i], ranks[i], Bytes{self}});
    }
  }
  std::sort(sends.begin(), sends.end(), by_pair);
  std::sort(receives.begin(), receives.end(), by_pair);
  LH_ASSERT(sends.size() == receives.size(), "group {}: {} sends meet {} receives", call.group, sends.size(),
            receives.size());
  for (std::size_t i = 0; i < sends.size(); ++i) {
    LH_ASSERT(sends[i].from == receives[i].from && sends[i].to == receives[i].to && sends[i].bytes == receives[i].bytes,
              "group {}: rank {} sends {} bytes to rank {}, which expects {} bytes from rank {}", call.group,
              sends[i].from, sends[i].bytes.value, sends[i].to, receives[i].bytes.value, receives[i].from);
  }
  return sends;
}

std::unique_ptr<CollectiveNetwork> make_flow_network(const Cluster& cluster, double scale) {
  return std::make_unique<FlowNetwork>(cluster, scale);
}

}  // namespace longhaul
