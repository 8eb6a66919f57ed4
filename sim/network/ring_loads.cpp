// Rings, trees and PAT: algorithms in which members send to members.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/network/algorithm_loads.h"

namespace longhaul {
namespace {

// A message, or the same one backwards: a ring of reductions is a ring of copies run backwards.
void send_one(LoadSheet& sheet, int from, int to, std::int64_t bytes, bool backwards) {
  backwards ? sheet.send(to, from, bytes) : sheet.send(from, to, bytes);
}

// Into member `to` of a domain from member `from` on a switch, from all others over pair links: the (n-1)! cyclic
// orders of the members use every directed pair equally often.
void send_inside(LoadSheet& sheet, const std::vector<int>& members, std::size_t from, std::size_t to,
                 std::int64_t bytes, bool backwards = false) {
  const std::size_t count = members.size();
  if (sheet.cluster().topology().node_fabric == NodeFabric::kNvSwitch) {
    return send_one(sheet, members[from], members[to], bytes, backwards);
  }
  for (std::size_t step = 1; step < count; ++step) {
    send_one(sheet, members[(to + count - step) % count], members[to], even_part(bytes, count - 1, step - 1),
             backwards);
  }
}

// Member i of `to` takes in `in[i]` from the members of `from`, which send equal parts: with as many members on both
// sides each stays on its rail.
void send_across(LoadSheet& sheet, const std::vector<int>& from, const std::vector<int>& to,
                 const std::vector<std::int64_t>& in, bool backwards) {
  std::int64_t total = 0;
  for (const std::int64_t bytes : in) total += bytes;
  std::size_t target = 0;
  std::int64_t room = in[0];
  for (std::size_t source = 0; source < from.size(); ++source) {
    std::int64_t left = even_part(total, from.size(), source);
    while (left > 0) {
      if (room == 0) {
        room = in[++target];
        continue;
      }
      const std::int64_t part = std::min(left, room);
      send_one(sheet, from[source], to[target], part, backwards);
      left -= part;
      room -= part;
    }
  }
}

}  // namespace

void put_ring(LoadSheet& sheet, const CommGroup& group, const MemberBytesTable& in, int root, bool backwards) {
  const std::size_t domains = group.domains.size();
  std::vector<std::int64_t> outside;
  for (std::size_t domain = 0; domain < domains; ++domain) {
    const std::vector<int>& members = group.domains[domain];
    const std::size_t count = members.size();
    const bool has_root = std::find(members.begin(), members.end(), root) != members.end();
    const bool from_outside = domains > 1 && !has_root;
    outside.assign(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      if (members[i] == root) continue;
      const std::int64_t bytes = in[domain][i];
      if (from_outside) outside[i] = even_part(bytes, count, i);
      const std::int64_t inside = bytes - outside[i];
      LH_ASSERT(count > 1 || inside == 0, "{} bytes from others on a domain with one member", inside);
      if (inside > 0) send_inside(sheet, members, (i + count - 1) % count, i, inside, backwards);
    }
    if (from_outside) send_across(sheet, group.domains[(domain + domains - 1) % domains], members, outside, backwards);
  }
}

void put_even_ring(LoadSheet& sheet, const CommGroup& group, std::int64_t each) {
  MemberBytesTable in;
  for (const std::vector<int>& members : group.domains) in.emplace_back(members.size(), each);
  put_ring(sheet, group, in);
  // Every ring link out of a member carries `each`. On the links of a domain a byte that does not divide evenly may
  // stand at a neighbour.
  for (const std::vector<int>& members : group.domains) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::int64_t outside = group.domains.size() > 1 ? even_part(each, members.size(), i) : 0;
      sheet.member(members[i]) = {members[i], each - outside, outside, each};
    }
  }
}

void put_tree_edges(LoadSheet& sheet, const std::vector<int>& heads, std::int64_t bytes) {
  const int count = static_cast<int>(heads.size());
  for (int node = 0; node < count; ++node) {
    const int parents[] = {tree_parent(node, count), second_tree_parent(node, count)};
    for (std::size_t tree = 0; tree < 2; ++tree) {
      if (parents[tree] < 0) continue;
      const int child = heads[static_cast<std::size_t>(node)];
      const int parent = heads[static_cast<std::size_t>(parents[tree])];
      sheet.send(child, parent, even_part(bytes, 2, tree));
      sheet.send(parent, child, even_part(bytes, 2, tree));
    }
  }
}

void put_chains(LoadSheet& sheet, const CommGroup& group, std::size_t channel, std::int64_t bytes) {
  for (const std::vector<int>& members : group.domains) {
    const std::size_t count = members.size();
    for (std::size_t i = 1; i < count; ++i) {
      send_inside(sheet, members, (channel + i) % count, (channel + i - 1) % count, bytes);
      send_inside(sheet, members, (channel + i - 1) % count, (channel + i) % count, bytes);
    }
  }
}

void put_tree(LoadSheet& sheet, const CommGroup& group, std::int64_t buffer) {
  const auto channels = static_cast<std::size_t>(group.largest);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const std::int64_t bytes = even_part(buffer, channels, channel);
    put_chains(sheet, group, channel, bytes);
    std::vector<int> heads;
    for (std::size_t domain = 0; domain < group.domains.size(); ++domain)
      heads.push_back(group.member(domain, channel));
    put_tree_edges(sheet, heads, bytes);
  }
}

void put_pat(LoadSheet& sheet, const CommGroup& group, std::int64_t part, bool scatter) {
  LH_ASSERT(group.largest == 1, "PAT with {} members in a domain", group.largest);
  const std::int64_t count = group.ranks;
  for (std::int64_t distance = 1; distance < count; distance *= 2) {
    const std::int64_t parts = (count - 1 - distance) / (2 * distance) + 1;
    for (std::int64_t i = 0; i < count; ++i) {
      const int near = group.domains[static_cast<std::size_t>(i)][0];
      const int far = group.domains[static_cast<std::size_t>((i + distance) % count)][0];
      scatter ? sheet.send(far, near, parts * part) : sheet.send(near, far, parts * part);
    }
  }
}

}  // namespace longhaul
