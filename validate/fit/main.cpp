// longhaul-fit: fits the kernel model, or NCCL's time model, to measured tables and writes the constants.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "sim/core/data_files.h"
#include "validate/fit/collectives/collective_fit.h"
#include "validate/fit/fit.h"
#include "validate/fit/published.h"

namespace {

int faults(const longhaul::Errors& errors) {
  for (const longhaul::InputError& error : errors) fmt::print(stderr, "{}\n", error.to_string());
  return 2;
}

int write(const std::string& out, const std::string& text) {
  std::ofstream file(out);
  file << text;
  file.close();
  if (file) return 0;
  fmt::print(stderr, "{}: cannot be written\n", out);
  return 2;
}

int run(const std::string& tables, const std::string& out) {
  const longhaul::Expected<longhaul::Fit> fit = longhaul::fit_h200(tables);
  if (!fit) return faults(fit.error());
  fmt::print("{}", longhaul::report(*fit));
  return out.empty() ? 0 : write(out, longhaul::write_calibration(fit->calibration(), fit->data_files));
}

int run_published(const std::string& device, const std::string& out) {
  const std::string data = longhaul::data_directory();
  const auto base = longhaul::read_calibration(data + "/topologies/devices/calibration/h200.json");
  if (!base) return faults(base.error());
  const auto fit = longhaul::fit_published(device, data, *base);
  if (!fit) return faults(fit.error());
  fmt::print("{}", longhaul::report(*fit));
  if (out.empty()) return 0;
  return write(out, longhaul::write_calibration(fit->calibration, longhaul::published_files(device)));
}

int run_collectives(const std::string& tables, const std::string& out) {
  const auto read = longhaul::read_collective_tables(tables, longhaul::data_directory());
  if (!read) return faults(read.error());
  const longhaul::CollectiveFit fit = longhaul::fit_collectives(longhaul::fitted_rows(*read), longhaul::prior_places());
  const auto& parameters = longhaul::collective_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    fmt::print("{:<40} {:>10.4g}   prior {:>8.4g}\n", parameters[i].name,
               longhaul::value_at(parameters[i], fit.places[static_cast<Eigen::Index>(i)]), parameters[i].prior);
  }
  fmt::print("cost {:.2f}\n", fit.cost);
  return out.empty() ? 0 : write(out, longhaul::write_nccl_constants(fit.constants, *read));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fit the kernel model to measured tables; print held-out errors.");
  app.footer("Example: longhaul-fit --out topologies/devices/calibration/h200.json validate/data/h200");
  std::string tables;
  std::string out;
  app.add_option("TABLES", tables, "folder of the measured tables");
  app.add_option("--out", out, "calibration file to write; without it only the errors are printed");
  CLI::App* collectives = app.add_subcommand("collectives", "Fit NCCL's time model to measured collectives");
  collectives->add_option("TABLES", tables, "folder of the measured tables")->required();
  collectives->add_option("--out", out, "file of constants to write; without it they are only printed");
  collectives->footer("Example: longhaul-fit collectives --out topologies/nccl.json validate/data/collectives");
  CLI::App* published = app.add_subcommand("published", "Scale the H200's calibration to published tables of a device");
  std::string device;
  published->add_option("DEVICE", device, "a device with published rows")
      ->required()
      ->check(CLI::IsMember(longhaul::published_devices()));
  published->add_option("--out", out, "calibration file to write; without it the factors are printed");
  published->footer("Example: longhaul-fit published --out topologies/devices/calibration/h100.json h100");
  CLI11_PARSE(app, argc, argv);
  if (!collectives->parsed() && !published->parsed() && tables.empty()) {
    fmt::print(stderr, "TABLES is required\n");
    return 2;
  }
  try {
    if (published->parsed()) return run_published(device, out);
    if (collectives->parsed()) return run_collectives(tables, out);
    return run(tables, out);
  } catch (const std::invalid_argument& fault) {
    fmt::print(stderr, "{}\n", fault.what());
    return 2;
  }
}
