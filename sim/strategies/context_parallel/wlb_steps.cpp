// Delayed packing of wlb-cp: what each step of a study trains.
#include <fmt/format.h>

#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/wlb.h"
#include "sim/strategies/step/replicas.h"
#include "sim/workload/arithmetic.h"

namespace longhaul {
namespace {

double heaviest_over_mean(const std::vector<double>& work) {
  double sum = 0, most = 0;
  for (const double of_bin : work) {
    sum += of_bin;
    most = std::max(most, of_bin);
  }
  return sum == 0 ? 1 : most * static_cast<double>(work.size()) / sum;
}

// Work of the micro-batches as they are loaded.
std::vector<double> loaded_work(const Batch& batch, std::int64_t each, const WlbWork& work) {
  std::vector<double> bins;
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    if (i % static_cast<std::size_t>(each) == 0) bins.push_back(0);
    for (const PlannedDocument& document : sequence_documents(batch, batch.sequences[i])) {
      bins.back() += work.of(document.tokens);
    }
  }
  return bins;
}

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::shared_ptr<const Batch> batch_of(const WlbBins& bins, const Objective& objective) {
  auto batch = std::make_shared<Batch>();
  batch->objective = objective;
  for (const std::vector<PlannedDocument>& bin : bins.bins) {
    Sequence sequence;
    for (const PlannedDocument& document : bin) {
      sequence.documents.push_back(static_cast<DocumentId>(batch->documents.size()));
      sequence.tokens += document.tokens;
      batch->documents.push_back(document.tokens);
    }
    batch->context_tokens = std::max(batch->context_tokens, sequence.tokens);
    batch->sequences.push_back(std::move(sequence));
  }
  return batch;
}

}  // namespace

std::vector<std::int64_t> wlb_thresholds(std::int64_t window, std::int64_t queues) {
  std::vector<std::int64_t> thresholds;
  for (std::int64_t i = 0; i < queues; ++i) {
    thresholds.push_back(std::max<std::int64_t>(1, window * (queues + i) / (2 * queues)));
  }
  return thresholds;
}

tl::expected<WlbSteps, std::string> wlb_steps(std::span<const std::shared_ptr<const Batch>> loaded,
                                              const ModelShape& model, std::int64_t replicas,
                                              std::int64_t micro_batch_sequences, double packing_limit,
                                              std::int64_t queues) {
  LH_ASSERT(!loaded.empty() && replicas >= 1, "{} steps, {} replicas", loaded.size(), replicas);
  const WlbWork work{attention_forward_flops(model, 1).value, layer_matmul_flops(model, 1).value};
  const std::int64_t window = loaded.front()->context_tokens;
  const std::int64_t bins =
      replicas * micro_batch_count(*loaded.front(), static_cast<int>(replicas), micro_batch_sequences);
  const double most = packing_limit * static_cast<double>(window * micro_batch_sequences);
  WlbPacker packer(bins, static_cast<std::int64_t>(most), wlb_thresholds(window, queues), work);
  std::vector<std::int64_t> arrival;  // step in which each document was loaded, by the packer's document number
  WlbSteps steps;
  steps.imbalance = steps.loaded_imbalance = 0;
  double delay = 0, trained = 0;
  for (std::size_t step = 0; step < loaded.size(); ++step) {
    std::vector<PlannedDocument> documents;
    for (const std::int64_t tokens : loaded[step]->documents) {
      documents.push_back({static_cast<DocumentId>(arrival.size()), tokens});
      arrival.push_back(static_cast<std::int64_t>(step));
    }
    const WlbBins packed = packer.pack(documents);
    for (const std::vector<PlannedDocument>& bin : packed.bins) {
      if (bin.empty()) {
        return tl::unexpected(fmt::format("step {} has fewer documents than micro-batches to pack them into", step));
      }
      for (const PlannedDocument& document : bin) {
        const std::int64_t waited =
            static_cast<std::int64_t>(step) - arrival[static_cast<std::size_t>(document.document)];
        steps.most_delay = std::max(steps.most_delay, waited);
        delay += static_cast<double>(waited) * static_cast<double>(document.tokens);
        trained += static_cast<double>(document.tokens);
      }
    }
    steps.imbalance += heaviest_over_mean(packed.work) / static_cast<double>(loaded.size());
    steps.loaded_imbalance += heaviest_over_mean(loaded_work(*loaded[step], micro_batch_sequences, work)) /
                              static_cast<double>(loaded.size());
    if (step + 1 == loaded.size()) steps.batch = batch_of(packed, loaded[step]->objective);
  }
  steps.mean_delay = delay / trained;
  steps.waiting_documents = packer.waiting();
  steps.waiting_tokens = packer.waiting_tokens();
  return steps;
}

tl::expected<std::string, std::string> select_wlb(StrategyRequest& request,
                                                  std::span<const std::shared_ptr<const Batch>> loaded) {
  if (request.options.value("packing", "fixed") != "delayed") return std::string();
  const auto steps =
      wlb_steps(loaded, request.model, request.degrees.dp, request.training.micro_batch_sequences,
                request.options.value("packing_limit", kWlbPackingLimit), request.options.value("queues", kWlbQueues));
  if (!steps) return tl::unexpected(steps.error());
  request.batch = steps->batch;
  request.training.micro_batch_sequences = 1;
  std::string line = fmt::format(
      "delayed packing over {}: a token waits {:.3f} steps on average, {} at most; {} of {} tokens still waiting at "
      "the end; work of the heaviest micro-batch over the mean {:.3f}, as loaded {:.3f}",
      counted(static_cast<std::int64_t>(loaded.size()), "step"), steps->mean_delay, steps->most_delay,
      counted(steps->waiting_documents, "document"), steps->waiting_tokens, steps->imbalance, steps->loaded_imbalance);
  if (steps->waiting_documents > 0) line += "; speed-ups count the tokens trained";
  if (loaded.size() == 1 && steps->waiting_documents > 0) line += "; more \"steps\" would train what waits";
  return line;
}

}  // namespace longhaul
