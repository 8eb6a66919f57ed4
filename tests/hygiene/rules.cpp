#include "tests/hygiene/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <regex>

namespace longhaul::hygiene {
namespace {

constexpr std::int64_t kMaxLines = 600;
constexpr std::int64_t kMaxColumns = 120;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

bool has_suffix(std::string_view text, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view suffix) { return text.ends_with(suffix); });
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Index of the room that a path lies in, or -1: "sim/core/json.h" is in "sim/core", "validate/cpu/run.h" in "validate".
int room_of(std::string_view path) {
  for (std::size_t i = 0; i < rooms().size(); ++i) {
    const std::string& room = rooms()[i];
    if (path.starts_with(room) && path.size() > room.size() && path[room.size()] == '/') return static_cast<int>(i);
  }
  return -1;
}

// Why `path` may not include `included`, or nothing.
std::string include_fault(const std::string& path, const std::string& included) {
  const int from = room_of(path);
  const int to = room_of(included);
  const bool from_root = to >= 0 || included.starts_with("tests/");
  if (!from_root) return fmt::format("\"{}\" is not written from the root, or lies in no room", included);
  if (from < 0) return "";  // tests see everything
  const std::string& from_room = rooms()[static_cast<std::size_t>(from)];
  if (to < 0) return fmt::format("{} includes a test's header \"{}\"", from_room, included);
  const std::string& to_room = rooms()[static_cast<std::size_t>(to)];
  if (to > from) return fmt::format("{} may not include {}, which is listed below it", from_room, to_room);
  if (from_room == "sim/strategies" && to_room == "sim/cost" && included != "sim/cost/estimate.h") {
    return fmt::format("a strategy sees only sim/cost/estimate.h of the cost model, not \"{}\"", included);
  }
  if (from_room == "sim/executor" && (to_room == "sim/strategies" || to_room == "sim/scenario")) {
    return fmt::format("the executor never asks which strategy or scenario made the schedule: {}", to_room);
  }
  return "";
}

// Applies `fault` (a message, or nothing) to each line of `text`.
Findings find_in_lines(const SourceFile& file, const std::string& text,
                       const std::function<std::string(const std::string& line, std::size_t index)>& fault) {
  Findings findings;
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string message = fault(lines[i], i);
    if (!message.empty()) findings.push_back({file.path, static_cast<std::int64_t>(i) + 1, message});
  }
  return findings;
}

// Bytes that start a code point: the width of a line in which every character takes one column.
std::int64_t columns(std::string_view line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Length of the comment, string or character literal that starts at `text[at]`; 0 when none does.
std::size_t blank_length(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  const auto up_to = [&](std::string_view end, std::size_t from, bool with_end) {
    const std::size_t found = rest.find(end, from);
    return found == std::string_view::npos ? rest.size() : found + (with_end ? end.size() : 0);
  };
  if (rest.starts_with("//")) return up_to("\n", 0, false);
  if (rest.starts_with("/*")) return up_to("*/", 2, true);
  if (rest.starts_with("R\"")) {
    const std::size_t open = rest.find('(');
    if (open == std::string_view::npos) return rest.size();
    return up_to(fmt::format("){}\"", rest.substr(2, open - 2)), open, true);
  }
  const char quote = rest.front();
  const bool digit_separator = quote == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
  if ((quote != '"' && quote != '\'') || digit_separator) return 0;
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '\\') {
      ++i;
    } else if (rest[i] == quote) {
      return i + 1;
    }
  }
  return rest.size();
}

}  // namespace

std::string Finding::to_string() const { return fmt::format("{}:{}: {}", path, line, message); }

const std::vector<std::string>& rooms() {
  static const std::vector<std::string> kRooms = {"sim/core",     "sim/cluster",  "sim/workload",   "sim/schedule",
                                                  "sim/cost",     "sim/network",  "sim/strategies", "sim/scenario",
                                                  "sim/timeline", "sim/executor", "sim/analysis",   "sim/study",
                                                  "kernels",      "validate",     "reports",        "sim/cli"};
  return kRooms;
}

std::string blank_comments_and_strings(std::string_view text) {
  std::string result(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = blank_length(text, at);
    for (std::size_t i = at; i < at + length; ++i) {
      if (result[i] != '\n') result[i] = ' ';
    }
    at += std::max<std::size_t>(length, 1);
  }
  return result;
}

bool is_header(const SourceFile& file) { return has_suffix(file.path, {".h", ".cuh"}); }

bool is_cpp(const SourceFile& file) { return is_header(file) || has_suffix(file.path, {".cpp", ".cu"}); }

bool is_code(const SourceFile& file) {
  const bool vendored = file.path.find("/vendor/") != std::string::npos || file.path.find(".min.") != std::string::npos;
  return !vendored &&
         (is_cpp(file) || file.path == "dev" || file.path == ".ci/run" ||
          has_suffix(file.path, {".py", ".sh", ".js", ".mjs", ".css", "meson.build", "meson_options.txt"}));
}

Findings check_includes(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*"([^"]+)")re");
  return find_in_lines(file, file.text, [&](const std::string& line, std::size_t) {
    std::smatch match;
    return std::regex_search(line, match, kInclude) ? include_fault(file.path, match[1]) : std::string();
  });
}

Findings check_layout(const SourceFile& file) {
  Findings findings = find_in_lines(file, file.text, [](const std::string& line, std::size_t) -> std::string {
    if (line.find('\t') != std::string::npos) return "a tab";
    if (line.ends_with(' ') || line.ends_with('\r')) return "a blank at the end of the line";
    if (columns(line) > kMaxColumns) return fmt::format("{} columns, at most {}", columns(line), kMaxColumns);
    return "";
  });
  if (!file.text.ends_with('\n')) findings.push_back({file.path, 0, "no newline at the end"});
  const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
  if (lines > kMaxLines) findings.push_back({file.path, 0, fmt::format("{} lines, at most {}", lines, kMaxLines)});
  return findings;
}

Findings check_header(const SourceFile& file) {
  Findings findings;
  if (!file.text.starts_with("//")) findings.push_back({file.path, 1, "a header opens with what it holds, in //"});
  static const std::regex kOnce("(^|\n)#pragma once\n");
  if (!std::regex_search(file.text, kOnce)) findings.push_back({file.path, 0, "no #pragma once"});
  return findings;
}

Findings check_determinism(const SourceFile& file) {
  if (!file.path.starts_with("sim/")) return {};
  static const std::regex kUnordered(R"(\bunordered_(multi)?(map|set)\s*<)");
  static const std::regex kReason(R"(// unordered: \S+)");
  static const std::regex kPointerKey(R"(\b(map|set)<\s*(const\s+)?[\w:]+(\s+const)?\s*\*)");
  static const std::regex kClock(R"(\b(system_clock|steady_clock|high_resolution_clock|random_device)\b)");
  static const std::regex kDistribution(R"(\b\w+_distribution\s*<)");
  static const std::regex kMath(R"(\bstd::(exp|exp2|expm1|log|log2|log10|log1p|pow|cbrt|hypot|sin|cos|tanh)\s*\()");
  const bool command = file.path.starts_with("sim/cli/");
  const bool makes_time = file.path.starts_with("sim/cost/") || file.path.starts_with("sim/network/") ||
                          file.path.starts_with("sim/executor/");
  const std::vector<std::string> raw = lines_of(file.text);
  const auto fault = [&](const std::string& line, std::size_t index) -> std::string {
    if (std::regex_search(line, kUnordered) && !std::regex_search(raw[index], kReason)) {
      return "an unordered container: use a sorted one or an index, or say why its order cannot matter "
             "(// unordered: WHY)";
    }
    if (std::regex_search(line, kPointerKey)) return "a pointer as a key: its order differs from run to run";
    if (!command && std::regex_search(line, kClock)) return "a clock or the machine's randomness in the simulator";
    if (std::regex_search(line, kDistribution)) return "a std distribution: they differ between standard libraries";
    if (makes_time && std::regex_search(line, kMath)) return "simulated time knows + - * / sqrt and tables only";
    return "";
  };
  return find_in_lines(file, blank_comments_and_strings(file.text), fault);
}

Findings check_exit(const SourceFile& file) {
  static const std::regex kMain(R"(\bint\s+main\s*\()");
  static const std::regex kExit(R"(\b(_exit|_Exit|exit|quick_exit)\s*\()");
  const std::string code = blank_comments_and_strings(file.text);
  if (std::regex_search(code, kMain)) return {};
  return find_in_lines(file, code, [](const std::string& line, std::size_t) -> std::string {
    return std::regex_search(line, kExit) ? "exit() outside the file of main()" : "";
  });
}

Findings check_machine_paths(const SourceFile& file) {
  static const std::regex kPath(R"((^|[^\w.])/(work|root|home/\w+)/\w)");
  return find_in_lines(file, file.text, [](const std::string& line, std::size_t) -> std::string {
    return std::regex_search(line, kPath) ? "a path of somebody's machine" : "";
  });
}

Findings check_tests_registered(const std::vector<SourceFile>& files) {
  std::map<std::string, const SourceFile*> builds;  // by folder
  for (const SourceFile& file : files) {
    if (has_suffix(file.path, {"/meson.build"})) builds[folder_of(file.path)] = &file;
  }
  Findings findings;
  for (const SourceFile& file : files) {
    const bool in_tests = file.path.starts_with("tests/") && has_suffix(file.path, {".cpp", ".cu"});
    if (!in_tests && !has_suffix(file.path, {"_test.cpp", "_test.cu"})) continue;
    bool registered = false;
    for (std::string folder = folder_of(file.path); !folder.empty() && !registered; folder = folder_of(folder)) {
      const std::string name = file.path.substr(folder.size() + 1);
      const auto build = builds.find(folder);
      registered = build != builds.end() && build->second->text.find("'" + name + "'") != std::string::npos;
    }
    if (!registered) findings.push_back({file.path, 0, "a test that no meson.build names: it never runs"});
  }
  return findings;
}

}  // namespace longhaul::hygiene
