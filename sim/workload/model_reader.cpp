#include "sim/workload/model_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "sim/core/data_files.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 20;  // elements: hidden, FFN, heads, head size
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxLayers = 1 << 14;

const std::vector<std::string>& known_model_types() {
  static const std::vector<std::string> types = {"llama", "mistral", "qwen2", "qwen3"};
  return types;
}

// A Hugging Face config writes null where a key does not apply.
bool is_set(const Json* value) { return value != nullptr && !value->is_null(); }

void read_sizes(JsonReader& reader, ModelShape& model) {
  model.hidden = reader.required_integer("hidden_size", 1, kMaxWidth).value_or(0);
  model.ffn = reader.required_integer("intermediate_size", 1, kMaxWidth).value_or(0);
  model.q_heads = reader.required_integer("num_attention_heads", 1, kMaxWidth).value_or(0);
  model.layers = reader.required_integer("num_hidden_layers", 1, kMaxLayers).value_or(0);
  model.vocab = reader.required_integer("vocab_size", 2, kMaxVocab).value_or(0);
  // Absent or null: multi-head attention, as transformers reads it.
  model.kv_heads = is_set(reader.find("num_key_value_heads"))
                       ? reader.integer("num_key_value_heads", 1, kMaxWidth).value_or(0)
                       : model.q_heads;
  if (is_set(reader.find("head_dim"))) {
    model.head_dim = reader.integer("head_dim", 1, kMaxWidth).value_or(0);
  } else if (model.q_heads > 0 && model.hidden > 0) {
    model.head_dim = model.hidden / model.q_heads;
    if (model.hidden % model.q_heads != 0) {
      reader.add_error("hidden_size", fmt::format("is {}", model.hidden),
                       fmt::format("a multiple of num_attention_heads ({}), or head_dim given", model.q_heads));
    }
  }
}

void check_heads(JsonReader& reader, const ModelShape& model) {
  if (model.q_heads > 0 && model.kv_heads > 0 && model.q_heads % model.kv_heads != 0) {
    reader.add_error("num_key_value_heads", fmt::format("is {}", model.kv_heads),
                     fmt::format("a divisor of num_attention_heads ({})", model.q_heads));
  }
  if (model.head_dim % 2 != 0) {  // RoPE rotates pairs
    reader.add_error("head_dim", fmt::format("is {}", model.head_dim), "an even number");
  }
}

void read_kind(JsonReader& reader, ModelShape& model) {
  const std::string type = reader.choice("model_type", known_model_types()).value_or("");
  model.qkv_bias = type == "qwen2";  // transformers' Qwen2 has a bias on q, k, v without saying so in the file
  model.qk_norm = type == "qwen3";
  model.tied_embeddings = reader.boolean("tie_word_embeddings").value_or(false);
  reader.choice("hidden_act", {"silu"});
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader.boolean(key).value_or(false)) {
      reader.add_error(key, "is true", "false; biases on the output and FFN projections are not modelled");
    }
  }
}

// What changes the work of a layer and is not scheduled yet must not be read as a plain dense layer.
void refuse_unsupported(JsonReader& reader) {
  for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    const Json* experts = reader.find(key);
    if (is_set(experts) && *experts != 0) {
      reader.add_error(key, fmt::format("is {}", describe(*experts)),
                       "absent; mixture-of-experts layers come with later work");
    }
  }
  const Json* use_window = reader.find("use_sliding_window");
  const Json* window = reader.find("sliding_window");
  if (is_set(window) && !(use_window != nullptr && *use_window == false)) {
    reader.add_error("sliding_window", fmt::format("is {}", describe(*window)),
                     "null, or use_sliding_window false; sliding windows come with later work");
  }
  const Json* types = reader.find("layer_types");
  if (!is_set(types)) return;
  if (!types->is_array()) {
    reader.add_error("layer_types", fmt::format("is {}", describe(*types)), "a list of \"full_attention\"");
    return;
  }
  for (std::size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] == "full_attention") continue;
    reader.add_error(fmt::format("layer_types/{}", i), fmt::format("is {}", describe((*types)[i])),
                     "\"full_attention\"; other layer types come with later work");
    return;  // the other layers of the list say the same
  }
}

}  // namespace

const std::vector<std::string>& model_keys() {
  static const std::vector<std::string> keys = {
      "_name_or_path",       "attention_bias",      "head_dim",           "hidden_act",          "hidden_size",
      "intermediate_size",   "layer_types",         "mlp_bias",           "model_type",          "n_routed_experts",
      "num_attention_heads", "num_experts",         "num_hidden_layers",  "num_key_value_heads", "num_local_experts",
      "sliding_window",      "tie_word_embeddings", "use_sliding_window", "vocab_size"};
  return keys;
}

std::optional<ModelShape> read_model(const Json& config, const std::string& name, const std::string& file,
                                     const std::string& path, Errors& errors) {
  const std::size_t errors_before = errors.size();
  JsonReader reader(config, file, path, errors);
  ModelShape model;
  model.name = name;
  read_sizes(reader, model);
  check_heads(reader, model);
  read_kind(reader, model);
  refuse_unsupported(reader);
  if (errors.size() != errors_before) return std::nullopt;
  return model;
}

std::optional<ModelShape> find_model(const Json& reference, const std::string& file, const std::string& path,
                                     Errors& errors) {
  if (reference.is_object()) {
    const auto name = reference.find("_name_or_path");  // what transformers writes into a saved config
    const bool named = name != reference.end() && name->is_string() && *name != "";
    return read_model(reference, named ? name->get<std::string>() : "inline", file, path, errors);
  }
  if (!reference.is_string()) {
    errors.push_back({file, path, fmt::format("is {}", describe(reference)),
                      "a shipped model's name, the path of a config.json, or an object", ""});
    return std::nullopt;
  }
  const auto text = reference.get<std::string>();
  const std::optional<std::string> model_file = resolve_data_file(DataKind::kModel, text, file, path, errors);
  if (!model_file) return std::nullopt;
  const std::size_t errors_before = errors.size();
  Expected<Json> config = read_json_file(*model_file);
  if (!config) {
    for (InputError& error : config.error()) errors.push_back(std::move(error));
    set_named_at(errors, errors_before, file, path);
    return std::nullopt;
  }
  const std::string name = is_data_path(DataKind::kModel, text) ? std::filesystem::path(text).stem().string() : text;
  std::optional<ModelShape> model = read_model(*config, name, *model_file, "", errors);
  set_named_at(errors, errors_before, file, path);
  return model;
}

}  // namespace longhaul
