// Rewrites kept runs in place in the form that `longhaul validate --keep` writes today: rewrite-kept-runs FILE...
//
// A file is replaced only if what was written reads back as the same run. Exit codes: 0 all rewritten, 2 some file is
// no kept run (all faults are listed; no file is touched), 3 it cannot be written.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <vector>

#include "validate/report/kept_run.h"

namespace longhaul {
namespace {

int rewrite(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  bool wrong = false;
  for (const std::string& file : files) {
    const Expected<KeptRun> run = read_kept_run(file);
    if (!run) {
      for (const InputError& error : run.error()) fmt::print(stderr, "{}\n", error.to_string());
      wrong = true;
      continue;
    }
    texts.push_back(kept_run_text(*run));
    const Expected<Json> json = parse_json(texts.back(), file);
    const Expected<KeptRun> again = json ? parse_kept_run(*json, file) : tl::unexpected(json.error());
    if (!again || again->record != run->record || again->study != run->study) {
      fmt::print(stderr, "{}: does not read back as the same run\n", file);
      wrong = true;
    }
  }
  if (wrong) return 2;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string temporary = files[i] + ".partial";
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << texts[i];
    out.close();
    if (!out || std::rename(temporary.c_str(), files[i].c_str()) != 0) {
      std::remove(temporary.c_str());
      fmt::print(stderr, "cannot write {}\n", files[i]);
      return 3;
    }
  }
  return 0;
}

}  // namespace
}  // namespace longhaul

int main(int count, char** arguments) {
  try {
    return longhaul::rewrite({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
}
