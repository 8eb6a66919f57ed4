// longhaul-fit: fits the kernel model to measured tables and writes the calibration file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "validate/fit/fit.h"

namespace {

int run(const std::string& tables, const std::string& out) {
  const longhaul::Expected<longhaul::Fit> fit = longhaul::fit_h200(tables);
  if (!fit) {
    for (const longhaul::InputError& error : fit.error()) fmt::print(stderr, "{}\n", error.to_string());
    return 2;
  }
  fmt::print("{}", longhaul::report(*fit));
  if (out.empty()) return 0;
  std::ofstream file(out);
  file << longhaul::write_calibration(fit->calibration, fit->data_files);
  file.close();
  if (!file) {
    fmt::print(stderr, "{}: cannot be written\n", out);
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fit the kernel model to measured tables; print leave-one-out errors.");
  app.footer("Example: longhaul-fit --out topologies/devices/calibration/h200.json validate/data/h200");
  std::string tables;
  std::string out;
  app.add_option("TABLES", tables, "folder of the measured tables")->required();
  app.add_option("--out", out, "calibration file to write; without it only the errors are printed");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(tables, out);
  } catch (const std::invalid_argument& fault) {
    fmt::print(stderr, "{}\n", fault.what());
    return 2;
  }
}
