#include "validate/gpu/flash_attention_3/cases.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>

namespace longhaul {
namespace {

constexpr std::int64_t kMostTokens = 1 << 22;  // of a list: an element of Q, padded, has an int for its place in a head
constexpr std::int64_t kMostHeads = 256;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::int64_t number(const std::string& text, std::int64_t least, std::int64_t most, const std::string& what) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw CaseError(what + " is \"" + text + "\", not a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most));
  }
  return value;
}

// Whether `text` is the second of two words.
bool second_of(const std::string& text, const char* first, const char* second, const std::string& what) {
  if (text == first) return false;
  if (text == second) return true;
  throw CaseError(what + " is \"" + text + "\", neither " + first + " nor " + second);
}

using Columns = std::map<std::string, std::size_t>;

Columns read_columns(const std::string& line) {
  static const std::set<std::string> known = {"name",     "pass", "mask",    "q_heads",
                                              "kv_heads", "list", "longest", "layout"};
  Columns columns;
  for (const std::string& name : split(line, ',')) {
    if (known.count(name) == 0) throw CaseError("unknown column \"" + name + "\"");
    if (!columns.emplace(name, columns.size()).second) throw CaseError("column \"" + name + "\" twice");
  }
  for (const std::string& name : known) {
    if (name != "longest" && name != "layout" && columns.count(name) == 0)
      throw CaseError("no column \"" + name + "\"");
  }
  return columns;
}

void check(const AttentionCase& one) {
  if (one.q_heads % one.kv_heads != 0) throw CaseError("kv_heads does not divide q_heads");
  if (one.dense && (one.entries.size() != 1 || one.longest != 0)) {
    throw CaseError("a dense layout has one entry in its list and no longest");
  }
  std::int64_t longest = 0;
  for (const AttentionEntry& entry : one.entries) {
    longest = std::max({longest, entry.queries, entry.keys});
    if (one.causal && entry.queries > entry.keys) throw CaseError("a causal piece has more queries than keys");
  }
  if (one.longest != 0 && one.longest < longest) throw CaseError("longest is less than a piece's length");
  if (std::max(one.total_queries(), one.total_keys()) > kMostTokens) {
    throw CaseError("more than " + std::to_string(kMostTokens) + " tokens");
  }
}

AttentionCase read_case(const std::string& line, const Columns& columns) {
  const std::vector<std::string> fields = split(line, ',');
  if (fields.size() != columns.size()) {
    throw CaseError(std::to_string(fields.size()) + " fields, " + std::to_string(columns.size()) + " columns");
  }
  const auto field = [&](const char* name) -> std::string {
    const auto found = columns.find(name);
    return found == columns.end() ? "" : fields[found->second];
  };
  AttentionCase one;
  one.name = field("name");
  if (one.name.empty()) throw CaseError("no name");
  one.backward = second_of(field("pass"), "fwd", "bwd", "pass");
  one.causal = second_of(field("mask"), "full", "causal", "mask");
  one.q_heads = static_cast<int>(number(field("q_heads"), 1, kMostHeads, "q_heads"));
  one.kv_heads = static_cast<int>(number(field("kv_heads"), 1, kMostHeads, "kv_heads"));
  one.list = field("list");
  one.entries = parse_list(one.list);
  const std::string longest = field("longest"), layout = field("layout");
  if (!longest.empty()) one.longest = number(longest, 0, kMostTokens, "longest");
  if (!layout.empty()) one.dense = second_of(layout, "varlen", "dense", "layout");
  check(one);
  return one;
}

}  // namespace

std::int64_t AttentionCase::pieces() const {
  std::int64_t sum = 0;
  for (const AttentionEntry& entry : entries) sum += entry.count;
  return sum;
}

std::int64_t AttentionCase::total_queries() const {
  std::int64_t sum = 0;
  for (const AttentionEntry& entry : entries) sum += entry.count * entry.queries;
  return sum;
}

std::int64_t AttentionCase::total_keys() const {
  std::int64_t sum = 0;
  for (const AttentionEntry& entry : entries) sum += entry.count * entry.keys;
  return sum;
}

std::int64_t AttentionCase::longest_queries() const {
  std::int64_t most = longest;
  for (const AttentionEntry& entry : entries) most = std::max(most, entry.queries);
  return most;
}

std::int64_t AttentionCase::longest_keys() const {
  std::int64_t most = longest;
  for (const AttentionEntry& entry : entries) most = std::max(most, entry.keys);
  return most;
}

std::vector<AttentionEntry> parse_list(const std::string& text) {
  std::vector<AttentionEntry> entries;
  for (const std::string& part : split(text, ';')) {
    const std::size_t star = part.find('*'), cross = part.find('x');
    if (star == std::string::npos || cross == std::string::npos || cross < star) {
      throw CaseError("list has \"" + part + "\", not count*QxK");
    }
    entries.push_back({number(part.substr(0, star), 1, kMostTokens, "a count of list"),
                       number(part.substr(star + 1, cross - star - 1), 1, kMostTokens, "a number of queries of list"),
                       number(part.substr(cross + 1), 1, kMostTokens, "a number of keys of list")});
  }
  return entries;
}

std::vector<AttentionCase> read_cases(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw CaseError(file + ": cannot be read");
  Columns columns;
  std::vector<AttentionCase> cases;
  std::string line;
  for (int at = 1; std::getline(in, line); ++at) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    try {
      if (columns.empty()) {
        columns = read_columns(line);
      } else {
        cases.push_back(read_case(line, columns));
      }
    } catch (const CaseError& error) {
      throw CaseError(file + ":" + std::to_string(at) + ": " + error.what());
    }
  }
  if (cases.empty()) throw CaseError(file + ": no case");
  return cases;
}

}  // namespace longhaul
