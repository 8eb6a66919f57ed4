// Properties of transfers and of the flow solver on random groups, clusters and loads.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <numeric>

#include "sim/network/algorithm_loads.h"
#include "sim/network/collectives.h"
#include "sim/network/flow_solver.h"
#include "tests/unit/network/naive_max_min.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

const Cluster& cluster_number(int number) {
  static const std::vector<Cluster> clusters = [] {
    Topology narrow = *read_topology("dgx-a100-hdr", LONGHAUL_SOURCE_ROOT);
    narrow.nodes_per_leaf = 2;
    narrow.oversubscription = 4;
    Topology slow = *read_topology("hgx-h100-ndr-sharp", LONGHAUL_SOURCE_ROOT);
    slow.what_ifs.resize(2);
    slow.what_ifs[0].links = "n1.nic3";
    slow.what_ifs[0].scale_bandwidth = 0.3;
    slow.what_ifs[0].scale_latency = 4;
    slow.what_ifs[1].links = "n0.g2.nvl>";
    slow.what_ifs[1].scale_bandwidth = 0.5;
    Topology tree = *read_topology("dgx-h100-ndr", LONGHAUL_SOURCE_ROOT);
    tree.network_fabric = NetworkFabric::kFatTree;
    tree.nodes_per_leaf = 2;
    tree.oversubscription = 2;
    tree.routing = Routing::kHash;
    return std::vector<Cluster>{shipped_cluster("gb200-nvl72", 144),
                                *make_cluster(slow, 32),
                                *make_cluster(tree, 48),
                                shipped_cluster("dgx-h200-ndr", 64),
                                shipped_cluster("dgx-a100-hdr", 24),
                                shipped_cluster("a100-40gb-2x4", 8),
                                shipped_cluster("a800-4x8", 32),
                                *make_cluster(narrow, 40),
                                shipped_cluster("dgx-h100-ndr", 5)};
  }();
  return clusters[static_cast<std::size_t>(number)];
}

const Cluster& any_cluster() { return cluster_number(*rc::gen::inRange(0, 9)); }

std::int64_t any_bytes() {
  const int magnitude = *rc::gen::inRange(0, 31);
  return *rc::gen::inRange<std::int64_t>(1, (std::int64_t{1} << magnitude) + 1);
}

// Distinct ranks in any order: ranges, strides and random sets.
std::vector<int> any_group(const Cluster& cluster) {
  const int gpus = cluster.gpus();
  if (*rc::gen::inRange(0, 3) == 0) {
    const int stride = *rc::gen::inRange(1, gpus + 1);
    const int first = *rc::gen::inRange(0, gpus);
    return rank_range(*rc::gen::inRange(1, (gpus - 1 - first) / stride + 2), first, stride);
  }
  const int percent = *rc::gen::inRange(1, 101);
  std::vector<int> ranks;
  for (int rank = 0; rank < gpus; ++rank) {
    if (*rc::gen::resize(100, rc::gen::inRange(0, 100)) < percent) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(0);
  const std::size_t turn = *rc::gen::inRange<std::size_t>(0, ranks.size());
  std::rotate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(turn), ranks.end());
  return ranks;
}

std::vector<PeerMessage> any_messages(const Cluster& cluster) {
  std::vector<PeerMessage> messages(*rc::gen::inRange<std::size_t>(1, 40));
  for (PeerMessage& message : messages) {
    message = {*rc::gen::inRange(0, cluster.gpus()), *rc::gen::inRange(0, cluster.gpus()), Bytes{any_bytes() - 1}};
  }
  return messages;
}

Transfer any_transfer(const Cluster& cluster, Collectives& collectives) {
  const int kind = *rc::gen::inRange(0, 9);
  if (kind == 0) return collectives.exchange(any_messages(cluster));
  const std::vector<int> ranks = any_group(cluster);
  const Bytes bytes{any_bytes()};
  if (kind == 5) return collectives.all_to_all(ranks, bytes);
  if (kind == 6) return collectives.send_receive(ranks, bytes);
  if (kind >= 7) {
    std::vector<Bytes> parts(ranks.size());
    for (Bytes& part : parts) part = Bytes{any_bytes() - 1};
    return kind == 7 ? collectives.all_gather_v(ranks, parts) : collectives.reduce_scatter_v(ranks, parts);
  }
  if (kind == 1) return collectives.all_gather(ranks, bytes);
  if (kind == 2) return collectives.reduce_scatter(ranks, bytes);
  if (kind == 3) return collectives.all_reduce(ranks, bytes);
  return collectives.broadcast(ranks, bytes);
}

std::int64_t sent(const MemberTraffic& member) { return member.sent_intra_node + member.sent_inter_node; }

RC_GTEST_PROP(Transfers, AreWellFormed, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  const Transfer transfer = any_transfer(cluster, collectives);
  std::int64_t all_sent = 0;
  std::int64_t all_received = 0;
  for (const MemberTraffic& member : transfer.members) {
    RC_ASSERT(member.sent_intra_node >= 0 && member.sent_inter_node >= 0 && member.received >= 0);
    all_sent += sent(member);
    all_received += member.received;
  }
  RC_ASSERT(transfer.copied_bytes >= 0 && transfer.merged_bytes >= 0);
  RC_ASSERT(all_sent + transfer.copied_bytes == all_received + transfer.merged_bytes);
  RC_ASSERT(all_sent == transfer.intra_node_bytes + transfer.inter_node_bytes);
  RC_ASSERT(transfer.alone == transfer.latency + Time::from_seconds(transfer.byte_seconds));
  LinkId last = -1;
  for (const LinkLoad& load : transfer.loads) {
    RC_ASSERT(load.link > last);
    RC_ASSERT(load.bytes > 0);
    const double bandwidth = cluster.links()[static_cast<std::size_t>(load.link)].bandwidth.value;
    RC_ASSERT(transfer.byte_seconds >= static_cast<double>(load.bytes) / bandwidth * (1 - 1e-12));
    last = load.link;
  }
}

// Bytes that leave nodes are on the NICs, once out and once in; nothing else is.
RC_GTEST_PROP(Transfers, PutOnTheNicsWhatLeavesTheNodes, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  const Transfer transfer = any_transfer(cluster, collectives);
  std::int64_t out = 0;
  std::int64_t in = 0;
  for (const LinkLoad& load : transfer.loads) {
    const std::string& name = cluster.links()[static_cast<std::size_t>(load.link)].name;
    if (name.find(".nic") == std::string::npos) continue;
    (name.back() == '>' ? out : in) += load.bytes;
  }
  RC_ASSERT(out == transfer.inter_node_bytes);
  RC_ASSERT(in == transfer.inter_node_bytes);
}

// Every member of an all-gather takes in what the others have, whatever the group looks like; of a broadcast, the
// buffer; of an exchange, what was sent to it.
RC_GTEST_PROP(Transfers, BytesReceivedAreBytesAsked, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  const std::vector<int> ranks = any_group(cluster);
  const std::int64_t bytes = any_bytes();
  const auto others = static_cast<std::int64_t>(ranks.size()) - 1;
  RC_PRE(others > 0);
  const Transfer gather = collectives.all_gather(ranks, Bytes{bytes});
  RC_ASSERT(gather.members.size() == ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    RC_ASSERT(gather.members[i].rank == ranks[i]);
    if (gather.algorithm != NcclAlgorithm::kRing && gather.algorithm != NcclAlgorithm::kPat) continue;
    RC_ASSERT(gather.members[i].received == others * bytes);
    RC_ASSERT(sent(gather.members[i]) == others * bytes);
  }
  const Transfer broadcast = collectives.broadcast(ranks, Bytes{bytes});
  for (const MemberTraffic& member : broadcast.members) {
    RC_ASSERT(member.received == (member.rank == ranks[0] ? 0 : bytes));
  }
  const std::vector<PeerMessage> messages = any_messages(cluster);
  const Transfer exchange = collectives.exchange(messages);
  for (const MemberTraffic& member : exchange.members) {
    std::int64_t asked_out = 0;
    std::int64_t asked_in = 0;
    for (const PeerMessage& message : messages) {
      if (message.from == message.to) continue;
      if (message.from == member.rank) asked_out += message.bytes.value;
      if (message.to == member.rank) asked_in += message.bytes.value;
    }
    RC_ASSERT(sent(member) == asked_out);
    RC_ASSERT(member.received == asked_in);
  }
}

// The loads of every algorithm, whether NCCL would take it here or not: what members send, less what switches merge and
// with what they copy, is what members receive; NICs carry what leaves domains, NVLink the rest; all-reduce leaves
// everybody with the buffer.
RC_GTEST_PROP(AlgorithmLoads, ConserveBytes, ()) {
  const Cluster& cluster = any_cluster();
  const std::vector<int> ranks = any_group(cluster);
  RC_PRE(ranks.size() > 1u);
  const CommGroup group = make_comm_group(cluster, ranks);
  const std::int64_t bytes = any_bytes();
  const bool one_domain = group.domains.size() == 1;
  const bool switches = cluster.topology().node_fabric == NodeFabric::kNvSwitch;
  const int heads = *rc::gen::inRange(1, group.smallest + 1);
  LoadSheet sheet(cluster);
  sheet.begin(ranks);
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      put_tree(sheet, group, bytes);
      break;
    case 1:
      RC_PRE(one_domain && switches);
      put_nvls_all_reduce(sheet, group, bytes);
      break;
    case 2:
      RC_PRE(switches);
      put_nvls_tree(sheet, group, heads, bytes);
      break;
    case 3:
      put_collnet_all_reduce(sheet, group, heads, InsideDomain::kDirect, bytes);
      break;
    case 4:
      put_collnet_all_reduce(sheet, group, heads, InsideDomain::kChain, bytes);
      break;
    case 5:
      put_switch_gather(sheet, group, heads, switches ? InsideDomain::kNvls : InsideDomain::kDirect, bytes);
      break;
    case 6:
      put_switch_scatter(sheet, group, heads, switches ? InsideDomain::kNvls : InsideDomain::kDirect, bytes);
      break;
    default:
      RC_PRE(group.largest == 1);
      put_pat(sheet, group, bytes, *rc::gen::inRange(0, 2) == 0);
      break;
  }
  Transfer transfer;
  sheet.take(transfer);
  std::int64_t all_sent = 0;
  std::int64_t all_received = 0;
  for (const MemberTraffic& member : transfer.members) {
    all_sent += sent(member);
    all_received += member.received;
  }
  RC_ASSERT(all_sent + transfer.copied_bytes == all_received + transfer.merged_bytes);
  std::int64_t on_nics = 0;
  for (const LinkLoad& load : transfer.loads) {
    if (cluster.links()[static_cast<std::size_t>(load.link)].name.find(".nic") != std::string::npos)
      on_nics += load.bytes;
  }
  RC_ASSERT(transfer.inter_node_bytes <= on_nics);
  RC_ASSERT((on_nics == 0) == one_domain);
  RC_ASSERT(!transfer.loads.empty());
}

// Two transfers that share a link, started together: neither ends before it would alone, and if the link is the
// tightest of both, both end later.
RC_GTEST_PROP(FlowSolver, TransfersThatMeetSlowEachOther, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  const std::vector<int> ranks = any_group(cluster);
  RC_PRE(ranks.size() > 1u);
  const Bytes bytes{1'000'000 + any_bytes()};
  const Transfer one = collectives.all_gather(ranks, bytes);
  Transfer other = one;
  FlowSolver solver(cluster);
  const std::vector<Time> finish = run_flows(solver, {{Time::zero(), &one}, {Time::zero(), &other}});
  double links = 0;
  for (const LinkLoad& load : one.loads) {
    links = std::max(links, Bytes{load.bytes} / cluster.links()[static_cast<std::size_t>(load.link)].bandwidth);
  }
  // Both want `links` seconds of the tightest link: together twice that, unless NCCL left it half idle.
  const Time together = one.latency + Time::from_seconds(std::max(one.byte_seconds, 2 * links));
  for (const Time end : finish) {
    RC_ASSERT(end >= one.alone);
    RC_ASSERT(std::abs((end - together).ps()) <= 2);
  }
}

// What the closed form says is what the solver does, to the picosecond.
RC_GTEST_PROP(FlowSolver, AnUndisturbedTransferTakesItsTimeAlone, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  const Transfer transfer = any_transfer(cluster, collectives);
  FlowSolver solver(cluster);
  const Time start = Time::from_ps(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000));
  RC_ASSERT(run_flows(solver, {{start, &transfer}})[0] == start + transfer.alone);
  for (const LinkLoad& load : transfer.loads) {
    RC_ASSERT(solver.delivered()[static_cast<std::size_t>(load.link)] == load.bytes);
  }
  RC_ASSERT(solver.in_flight() == 0);
}

struct Workload {
  std::vector<Transfer> transfers;
  std::vector<Start> starts;
};

void fill(Workload& workload, const Cluster& cluster, Collectives& collectives) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 12);
  for (std::size_t i = 0; i < count; ++i) workload.transfers.push_back(any_transfer(cluster, collectives));
  const auto runs = *rc::gen::inRange<std::size_t>(1, 25);
  for (std::size_t i = 0; i < runs; ++i) {
    const auto which = *rc::gen::inRange<std::size_t>(0, count);
    workload.starts.push_back(
        {Time::from_ps(*rc::gen::inRange<std::int64_t>(0, 2'000'000'000)), &workload.transfers[which]});
  }
}

// No transfer ends before start + alone, all end by the time of running one after the other, and the links deliver
// what was asked. (The solver itself asserts capacity and bytes left.)
RC_GTEST_PROP(FlowSolver, SharedTransfersKeepTheirBounds, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  Workload workload;
  fill(workload, cluster, collectives);
  FlowSolver solver(cluster);
  const std::vector<Time> finish = run_flows(solver, workload.starts);
  std::vector<std::int64_t> asked(cluster.links().size());
  Time last_start;
  Time serial;
  for (const Start& start : workload.starts) {
    last_start = std::max(last_start, start.time);
    serial += start.transfer->alone;
    for (const LinkLoad& load : start.transfer->loads) asked[static_cast<std::size_t>(load.link)] += load.bytes;
  }
  const Time slack = Time::from_ps(static_cast<std::int64_t>(4 * workload.starts.size()));
  for (std::size_t i = 0; i < finish.size(); ++i) {
    RC_ASSERT(finish[i] + Time::from_ps(1) >= workload.starts[i].time + workload.starts[i].transfer->alone);
    RC_ASSERT(finish[i] <= last_start + serial + slack);
  }
  RC_ASSERT(solver.delivered() == asked);
  for (const double peak : solver.peak_utilisation()) RC_ASSERT(peak >= 0 && peak <= 1);
}

// Every flow on links k times as fast takes 1/k of the time (no latency: byte phases only).
RC_GTEST_PROP(FlowSolver, RatesTimesKAreTimesOverK, ()) {
  const int scale = *rc::gen::element(2, 4, 8);
  static const Cluster slow = plain_cluster(16);
  const Cluster fast = plain_cluster(16, scale);
  const auto runs = *rc::gen::inRange<std::size_t>(1, 12);
  std::vector<Transfer> on_slow;
  std::vector<Transfer> on_fast;
  std::vector<std::int64_t> times;
  for (std::size_t i = 0; i < runs; ++i) {
    const int percent = *rc::gen::inRange(1, 60);
    std::vector<LinkId> path;
    for (LinkId link = 0; link < static_cast<LinkId>(slow.links().size()); ++link) {
      if (*rc::gen::resize(100, rc::gen::inRange(0, 100)) < percent) path.push_back(link);
    }
    if (path.empty()) path.push_back(0);
    const std::int64_t bytes = any_bytes();
    on_slow.push_back(path_transfer(slow, path, bytes));
    on_fast.push_back(path_transfer(fast, path, bytes));
    times.push_back(*rc::gen::inRange<std::int64_t>(0, 100'000'000) * scale);
  }
  std::vector<Start> slow_starts;
  std::vector<Start> fast_starts;
  for (std::size_t i = 0; i < runs; ++i) {
    slow_starts.push_back({Time::from_ps(times[i]), &on_slow[i]});
    fast_starts.push_back({Time::from_ps(times[i] / scale), &on_fast[i]});
  }
  FlowSolver slow_solver(slow);
  FlowSolver fast_solver(fast);
  const std::vector<Time> slow_finish = run_flows(slow_solver, slow_starts);
  const std::vector<Time> fast_finish = run_flows(fast_solver, fast_starts);
  for (std::size_t i = 0; i < runs; ++i) {
    // Each finish before it is rounded to a picosecond, and moves the later ones by that.
    const std::int64_t slack = scale * static_cast<std::int64_t>(runs + 1);
    RC_ASSERT(std::abs(slow_finish[i].ps() - scale * fast_finish[i].ps()) <= slack);
  }
}

// Shifting all starts shifts all ends; and the run is the same in a solver that has been used.
RC_GTEST_PROP(FlowSolver, AShiftOfAllStartsShiftsAllEnds, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  Workload workload;
  fill(workload, cluster, collectives);
  FlowSolver solver(cluster);
  const std::vector<Time> first = run_flows(solver, workload.starts);
  const Time shift = Time::from_seconds(100);
  for (Start& start : workload.starts) start.time += shift;
  const std::vector<Time> second = run_flows(solver, workload.starts);
  for (std::size_t i = 0; i < first.size(); ++i) RC_ASSERT(second[i] == first[i] + shift);
}

// Many runs of one transfer are one bundle; the same as copies of it, which are water-filled as separate transfers.
RC_GTEST_PROP(FlowSolver, ABundleEqualsCopies, ()) {
  const Cluster& cluster = any_cluster();
  Collectives collectives(cluster);
  const Transfer transfer = any_transfer(cluster, collectives);
  const auto runs = *rc::gen::inRange<std::size_t>(1, 8);
  const std::vector<Transfer> copies(runs, transfer);
  std::vector<Start> bundle;
  std::vector<Start> separate;
  for (std::size_t i = 0; i < runs; ++i) {
    const Time time = Time::from_ps(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000));
    bundle.push_back({time, &transfer});
    separate.push_back({time, &copies[i]});
  }
  FlowSolver one(cluster);
  FlowSolver other(cluster);
  const std::vector<Time> together = run_flows(one, bundle);
  const std::vector<Time> apart = run_flows(other, separate);
  for (std::size_t i = 0; i < runs; ++i) {
    RC_ASSERT(std::abs(together[i].ps() - apart[i].ps()) <= static_cast<std::int64_t>(runs) + 1);
  }
}

// Plain flows over a few links that start at any time; some have a limit, some a weight.
struct Traffic {
  std::vector<Transfer> transfers;
  std::vector<Time> times;
};

Traffic any_traffic(const Cluster& cluster) {
  Traffic traffic;
  const auto flows = *rc::gen::inRange<std::size_t>(1, 25);
  for (std::size_t i = 0; i < flows; ++i) {
    std::vector<LinkId> path;
    const unsigned links = *rc::gen::inRange(1u, 256u) & *rc::gen::element(0xffu, 0x0fu, 0x55u, 0x81u);
    for (LinkId link = 0; link < 8; ++link) {
      if ((links >> link & 1u) != 0) path.push_back(link);
    }
    if (path.empty()) path.push_back(0);
    Transfer transfer = path_transfer(cluster, path, *rc::gen::inRange<std::int64_t>(1, 100'000'000),
                                      Time::from_ps(*rc::gen::inRange<std::int64_t>(0, 1'000'000)));
    transfer.weight = *rc::gen::element(1.0, 1.0, 2.0, 0.25);
    transfer.byte_seconds *= *rc::gen::element(1.0, 1.0, 1.5, 4.0);
    transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
    traffic.transfers.push_back(transfer);
    traffic.times.push_back(Time::from_ps(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000)));
  }
  return traffic;
}

std::vector<Start> starts_of(const Traffic& traffic) {
  std::vector<Start> starts;
  for (std::size_t i = 0; i < traffic.transfers.size(); ++i)
    starts.push_back({traffic.times[i], &traffic.transfers[i]});
  return starts;
}

// The finish times when the rates of all flows are made from scratch at every event, in seconds.
std::vector<double> finish_from_scratch(const Cluster& cluster, const Traffic& traffic) {
  const std::size_t count = traffic.transfers.size();
  std::vector<double> begins(count);
  std::vector<double> left(count, 1);  // part of the bytes
  std::vector<double> finish(count, -1);
  for (std::size_t i = 0; i < count; ++i) begins[i] = (traffic.times[i] + traffic.transfers[i].latency).seconds();
  double now = 0;
  for (std::size_t done = 0; done < count;) {
    std::vector<std::size_t> moving;
    std::vector<NaiveFlow> flows;
    double until = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < count; ++i) {
      if (finish[i] >= 0) continue;
      if (begins[i] > now) {
        until = std::min(until, begins[i]);
      } else {
        moving.push_back(i);
        flows.push_back({&traffic.transfers[i]});
      }
    }
    std::vector<double> rates = naive_max_min(cluster, flows);  // of the bytes on a link: all links have as many
    for (std::size_t k = 0; k < moving.size(); ++k) {
      rates[k] /= static_cast<double>(traffic.transfers[moving[k]].loads[0].bytes);
      until = std::min(until, now + left[moving[k]] / rates[k]);
    }
    for (std::size_t k = 0; k < moving.size(); ++k) {
      const std::size_t i = moving[k];
      const double end = now + left[i] / rates[k];
      left[i] -= (until - now) * rates[k];
      if (end > until * (1 + 1e-13)) continue;
      finish[i] = until;
      ++done;
    }
    now = until;
  }
  return finish;
}

// Any sequence of starts and ends: finish times as if all rates were made from scratch at every event. The solver
// rounds each finish to a picosecond; an event may move the later ones by that many times the most that a rate can
// change.
RC_GTEST_PROP(FlowSolver, FinishTimesAreThoseOfASolutionFromScratch, ()) {
  static const Cluster cluster = plain_cluster(8);
  const Traffic traffic = any_traffic(cluster);
  FlowSolver solver(cluster);
  const std::vector<Time> finish = run_flows(solver, starts_of(traffic));
  const std::vector<double> expected = finish_from_scratch(cluster, traffic);
  for (std::size_t i = 0; i < finish.size(); ++i) {
    RC_ASSERT(std::abs(finish[i].seconds() - expected[i]) <= 1e-9 * expected[i] + 100e-12);
  }
}

// A flow cut into pieces that follow one another at once ends when the whole does, and so do all others.
RC_GTEST_PROP(FlowSolver, SplittingAFlowChangesNothing, ()) {
  static const Cluster cluster = plain_cluster(8);
  Traffic whole = any_traffic(cluster);
  Transfer& first = whole.transfers.front();
  const auto pieces = *rc::gen::inRange<std::int64_t>(2, 6);
  const std::int64_t each = first.loads[0].bytes;
  for (LinkLoad& load : first.loads) load.bytes = each * pieces;
  const double alone = first.byte_seconds;
  first.byte_seconds *= static_cast<double>(pieces);
  first.alone = first.latency + Time::from_seconds(first.byte_seconds);
  Transfer piece = first;
  for (LinkLoad& load : piece.loads) load.bytes = each;
  piece.byte_seconds = alone;
  piece.alone = piece.latency + Time::from_seconds(alone);
  Transfer rest = piece;
  rest.latency = Time::zero();
  rest.alone = Time::from_seconds(alone);
  FlowSolver uncut(cluster);
  const std::vector<Time> expected = run_flows(uncut, starts_of(whole));
  std::vector<Start> starts = starts_of(whole);
  starts.front().transfer = &piece;
  FlowSolver cut(cluster);
  std::int64_t ended = 0;
  std::vector<Time> finish = run_flows(cut, starts, [&](std::size_t flow, Time) -> const Transfer* {
    return flow == 0 && ++ended < pieces ? &rest : nullptr;
  });
  for (std::size_t i = 0; i < finish.size(); ++i) {
    RC_ASSERT(std::abs(finish[i].ps() - expected[i].ps()) <= 100 + expected[i].ps() / 1'000'000'000);
  }
  RC_ASSERT(cut.delivered() == uncut.delivered());
}

// What a link has delivered at any time is at most its bandwidth times the time, with eps too, and all is delivered.
RC_GTEST_PROP(FlowSolver, BytesOverTimeNeverPassTheBandwidth, ()) {
  static const Cluster cluster = plain_cluster(8);
  const Traffic traffic = any_traffic(cluster);
  FlowSolver solver(cluster, *rc::gen::element(0.0, 1e-3, 0.1));
  std::vector<std::int64_t> asked(cluster.links().size());
  Time first = Time::max();
  for (std::size_t i = 0; i < traffic.times.size(); ++i) {
    first = std::min(first, traffic.times[i] + traffic.transfers[i].latency);
    for (const LinkLoad& load : traffic.transfers[i].loads) asked[static_cast<std::size_t>(load.link)] += load.bytes;
  }
  run_flows(solver, starts_of(traffic), [&](std::size_t, Time now) -> const Transfer* {
    for (std::size_t link = 0; link < asked.size(); ++link) {
      const double most = cluster.links()[link].bandwidth.value * ((now - first).seconds() + 25e-12);
      RC_ASSERT(static_cast<double>(solver.delivered()[link]) <= most * (1 + 1e-9));
    }
    return nullptr;
  });
  RC_ASSERT(solver.delivered() == asked);
}

}  // namespace
}  // namespace longhaul
