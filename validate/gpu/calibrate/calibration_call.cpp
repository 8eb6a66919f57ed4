#include "validate/gpu/calibrate/calibration_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace longhaul {
namespace {

constexpr std::array<std::string_view, kCallClassCount> kNames = {
    "gemm", "attention", "varlen", "diffusion", "elementwise", "copy", "launch", "overlap", "collectives"};
constexpr std::size_t kMostPieceText = 48;

std::string number(std::int64_t value) { return value == 0 ? "" : fmt::to_string(value); }

}  // namespace

std::string_view class_name(CallClass call_class) { return kNames.at(static_cast<std::size_t>(call_class)); }

std::vector<std::string> class_names() { return {kNames.begin(), kNames.end()}; }

Expected<std::vector<CallClass>> parse_classes(const std::vector<std::string>& names, const std::string& option) {
  Errors errors;
  const std::vector<std::string> known = class_names();
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    errors.push_back({"<command line>", option, fmt::format("has \"{}\"", name),
                      fmt::format("{}", fmt::join(known, ", ")), nearest_name(name, known)});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  std::vector<CallClass> classes;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (names.empty() || std::find(names.begin(), names.end(), known[i]) != names.end()) {
      classes.push_back(static_cast<CallClass>(i));
    }
  }
  return classes;
}

const std::vector<std::string>& call_columns() {
  static const std::vector<std::string> columns = {"class",    "op",       "pass", "m",      "n",     "k",   "q_heads",
                                                   "kv_heads", "head_dim", "mask", "pieces", "bytes", "name"};
  return columns;
}

std::vector<std::string> call_fields(const CalibrationCall& call) {
  return {std::string(class_name(call.call_class)),
          call.op,
          call.pass,
          number(call.m),
          number(call.n),
          number(call.k),
          number(call.q_heads),
          number(call.kv_heads),
          number(call.head_dim),
          call.mask,
          call.pieces,
          number(call.bytes),
          call.name};
}

std::string describe(const CalibrationCall& call) {
  std::string text = call.op + " " + call.pass;
  switch (call.call_class) {
    case CallClass::kGemm:
      return fmt::format("{} {}x{}x{}", text, call.m, call.n, call.k);
    case CallClass::kAttention:
    case CallClass::kVarlen:
    case CallClass::kDiffusion:
      return fmt::format("{} {} {}/{} heads of {}, {}{}", text, call.mask, call.q_heads, call.kv_heads, call.head_dim,
                         call.pieces.substr(0, kMostPieceText), call.pieces.size() > kMostPieceText ? "..." : "");
    case CallClass::kElementwise:
      return fmt::format("{} {} tokens of {}", call.kernel, call.m, call.n);
    case CallClass::kCopy:
      return fmt::format("{} of {} bytes", text, call.bytes);
    case CallClass::kLaunch:
    case CallClass::kOverlap:
    case CallClass::kCollectives:
      break;
  }
  return text;
}

}  // namespace longhaul
