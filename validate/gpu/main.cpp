// longhaul-measure: measures NCCL's collectives and the overlap of compute with transfers on the GPUs of this host.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "validate/gpu/machine.h"
#include "validate/gpu/measure_collectives.h"
#include "validate/gpu/measure_overlap.h"
#include "validate/gpu/size_list.h"

namespace longhaul {
namespace {

constexpr int kWrongInput = 2;
constexpr int kLimit = 3;  // no GPU, too few, a wrong result
constexpr int kFault = 4;  // CUDA or NCCL failed

struct Arguments {
  std::string out, sizes;
  int gpus = 0;
  bool resume = false;
  std::vector<std::string> collectives = measured_collective_names();
  std::vector<int> max_ctas = {0, 16, 8, 4};
  bool uneven = false;
  bool graph = false;
  bool covered = false;
  int gpus_per_node = 0;
  std::string fabric = "unstated";
};

int status_of(const std::exception_ptr& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (const WrongResult& error) {
    fmt::print(stderr, "longhaul-measure: wrong result: {}\n", error.what());
    return kLimit;
  } catch (const LimitError& error) {
    fmt::print(stderr, "longhaul-measure: {}\n", error.what());
    return kLimit;
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul-measure: {}\n", error.what());
    return kFault;
  }
}

// Other ranks may be inside a collective that never ends, so nothing is joined or destroyed. Rows are on the disk.
[[noreturn]] void end_at_fault(int rank, const std::exception_ptr& fault) {
  fmt::print(stderr, "rank {} failed; the rows measured before it are in the file\n", rank);
  std::_Exit(status_of(fault));
}

int report(const Errors& errors) {
  for (const InputError& error : errors) fmt::print(stderr, "{}\n", error.to_string());
  return kWrongInput;
}

template <class T>
std::optional<T> keep(Expected<T> value, Errors& errors) {
  if (value) return std::move(*value);
  append(errors, value.error());
  return std::nullopt;
}

// Asked before CUDA is: a negative number is wrong on every host.
void check_gpus(int asked, Errors& errors) {
  if (asked < 0) errors.push_back({"<command line>", "--gpus", fmt::format("is {}", asked), "a number of GPUs", ""});
}

// All that CUDA sees when `asked` is 0. Throws LimitError where it sees none.
int gpus_to_use(int asked, int at_least, Errors& errors) {
  const int visible = visible_gpus();
  const int gpus = asked == 0 ? visible : asked;
  if (gpus > visible || gpus < at_least) {
    errors.push_back({"<command line>", "--gpus", fmt::format("is {}", gpus),
                      fmt::format("{} to {}, which this host has", at_least, visible), ""});
  }
  return gpus;
}

template <class Measure>
int measure_into(const Arguments& arguments, const ResultFormat& format, const Measure& measure) {
  Expected<ResultFile> file = ResultFile::open(arguments.out, format, arguments.resume);
  if (!file) return report(file.error());
  measure(*file, end_at_fault);
  fmt::print(stderr, "{}: {} rows\n", arguments.out, file->row_count());
  return 0;
}

int run_collectives(const Arguments& arguments) {
  Errors errors;
  CollectivesOptions options;
  options.sizes = keep(parse_size_range(arguments.sizes, "--sizes"), errors).value_or(std::vector<std::int64_t>{});
  for (const std::string& name : arguments.collectives) {
    if (const auto collective = parse_collective(name)) {
      options.collectives.push_back(*collective);
    } else {
      errors.push_back({"<command line>", "--collectives", fmt::format("has \"{}\"", name),
                        fmt::format("{}", fmt::join(measured_collective_names(), ", ")),
                        nearest_name(name, measured_collective_names())});
    }
  }
  options.fabric = arguments.fabric;
  options.graph = arguments.graph;
  check_gpus(arguments.gpus, errors);
  if (!errors.empty()) return report(errors);
  options.gpus = gpus_to_use(arguments.gpus, 2, errors);
  options.gpus_per_node = arguments.gpus_per_node == 0 ? visible_gpus() : arguments.gpus_per_node;
  if (!errors.empty()) return report(errors);
  return measure_into(arguments, arguments.uneven ? uneven_format(options) : collectives_format(options),
                      [&](ResultFile& file, const RankTeam::OnFault& on_fault) {
                        (arguments.uneven ? measure_uneven : measure_collectives)(options, file, on_fault);
                      });
}

int run_overlap(const Arguments& arguments) {
  Errors errors;
  OverlapOptions options;
  options.sizes = keep(parse_size_list(arguments.sizes, "--sizes"), errors).value_or(std::vector<std::int64_t>{});
  for (const int ctas : arguments.max_ctas) {
    if (ctas < 0 || ctas > 64) {
      errors.push_back({"<command line>", "--ctas", fmt::format("has {}", ctas), "0 (NCCL's choice) to 64", ""});
    }
  }
  options.max_ctas = arguments.max_ctas;
  options.covered = arguments.covered;
  check_gpus(arguments.gpus, errors);
  if (!errors.empty()) return report(errors);
  options.gpus = gpus_to_use(arguments.gpus, arguments.covered ? 2 : 1, errors);
  if (!errors.empty()) return report(errors);
  return measure_into(arguments, overlap_format(options), [&](ResultFile& file, const RankTeam::OnFault& on_fault) {
    measure_overlap(options, file, on_fault);
  });
}

void add_common(CLI::App* command, Arguments& arguments) {
  command->add_option("--out", arguments.out, "CSV file to write")->required();
  command->add_option("--gpus", arguments.gpus, "GPUs to use; all of the host if not given");
  command->add_flag("--resume", arguments.resume, "go on with a file that was interrupted");
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  using longhaul::Arguments;
  CLI::App app("Measure NCCL's collectives, and the overlap of compute with transfers, on the GPUs of this host.");
  app.require_subcommand(1);
  Arguments collectives, overlap;
  collectives.sizes = "512:4G";
  overlap.sizes = "16M,64M,256M,1G";

  CLI::App* measure = app.add_subcommand("collectives", "times as nccl-tests takes them, results checked");
  longhaul::add_common(measure, collectives);
  measure->add_option("--sizes", collectives.sizes, "MIN:MAX, doubling (512, 64K, 16M, 4G)")->capture_default_str();
  measure->add_option("--collectives", collectives.collectives, "which, comma-separated; all if not given")
      ->delimiter(',');
  measure->add_flag("--uneven", collectives.uneven, "all-to-all and all-gather with uneven parts instead");
  measure->add_flag("--graph", collectives.graph, "replay CUDA graphs: no launches from the host in the times");
  measure->add_option("--gpus-per-node", collectives.gpus_per_node,
                      "GPUs on this host's board, where CUDA sees only some (written to the file)");
  measure->add_option("--fabric", collectives.fabric, "link between the GPUs (written to the file)")
      ->check(CLI::IsMember({"nvlink", "pcie", "unstated"}))
      ->capture_default_str();

  CLI::App* beside = app.add_subcommand("overlap", "slow-down of compute and transfers that run at the same time");
  longhaul::add_common(beside, overlap);
  beside->add_option("--sizes", overlap.sizes, "bytes of the transfers, comma-separated")->capture_default_str();
  beside->add_flag("--covered", overlap.covered,
                   "one long collective beside the compute loop instead of a loop of them");
  beside->add_option("--ctas", overlap.max_ctas, "limits of NCCL's blocks, comma-separated; 0: NCCL's choice")
      ->delimiter(',')
      ->capture_default_str();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : longhaul::kWrongInput;
  }
  try {
    return *measure ? longhaul::run_collectives(collectives) : longhaul::run_overlap(overlap);
  } catch (...) {
    return longhaul::status_of(std::current_exception());
  }
}
