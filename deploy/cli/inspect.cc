#include <cstdio>
#include <map>
#include <memory>

#include "deploy/cli/answer.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/machine.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "worker/model_file.h"

namespace headrace::cli {

namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string model;
  EngineOptions engine;
  bool json = false;
};

// The fastest that one answer can come on this machine, in tokens per second; 0: not known.
double ceiling(const InspectOptions& options, const ModelCard& card) {
  ProgressBar bar("measuring this machine", false);
  const MachineLimits limits =
      device_limits(state_folder(options.engine.state_dir), options.engine.device,
                    options.engine.threads, [&bar](double share) { bar.show(share); });
  return ceiling_tokens_per_second(limits, card.cost);
}

Json describe(const worker::ModelFile& file, const ModelCard& card) {
  std::map<std::string, uint64_t> types;
  for (const auto& tensor : file.gguf().tensors()) {
    types[std::string(worker::name(tensor.type))] += tensor.bytes;
  }
  return {{"name", card.name},
          {"architecture", card.architecture},
          {"file_bytes", file.gguf().file().size()},
          {"layers", card.layers},
          {"dim", card.dim},
          {"ffn", card.ffn},
          {"heads", card.heads},
          {"kv_heads", card.kv_heads},
          {"head_dim", card.head_dim},
          {"vocab", card.vocab},
          {"context", card.context},
          {"tensor_bytes", types},
          {"tied_output", file.config().tied},
          {"tokenizer", file.tokenizer().pre},
          {"chat", !file.tokenizer().chat_template.empty()},
          {"kv_layout", card.kv_layout},
          {"weight_bytes_a_token", card.cost.weight_bytes},
          {"kv_bytes_a_token", card.cost.kv_token_bytes},
          {"kv_bytes_full_context", card.cost.kv_token_bytes * card.context},
          {"digest", hex(card.weights)},
          {"numerics", card.numerics}};
}

void print_text(const Json& about, const ModelCard& card, double tokens_per_second) {
  const auto line = [](const char* what, const std::string& value) {
    std::printf("%-22s %s\n", what, value.c_str());
  };
  const auto bytes = [](uint64_t n) { return human_bytes(static_cast<double>(n)); };
  line("name", card.name);
  line("architecture", card.architecture + ", " + std::to_string(card.layers) + " layers of " +
                           std::to_string(card.dim) + ", " + std::to_string(card.heads) +
                           " heads (" + std::to_string(card.kv_heads) + " of keys) of " +
                           std::to_string(card.head_dim));
  line("vocabulary", std::to_string(card.vocab) + " tokens, pre-tokenizer " +
                         about["tokenizer"].get<std::string>());
  line("context", std::to_string(card.context) + " tokens");
  line("chat", about["chat"].get<bool>() ? "yes" : "no template in the file");
  std::string types;
  for (const auto& [type, size] : about["tensor_bytes"].items()) {
    types += (types.empty() ? "" : ", ") + type + " " + bytes(size.get<uint64_t>());
  }
  line("file", bytes(about["file_bytes"].get<uint64_t>()) + ": " + types);
  line("read for each token", bytes(card.cost.weight_bytes) + " of weights");
  const std::string type = card.kv_layout.substr(0, card.kv_layout.find(' '));
  line("KV cache", type + ", " + bytes(card.cost.kv_token_bytes) + " a token, " +
                       bytes(card.cost.kv_token_bytes * card.context) + " a full context");
  line("digest", hex(card.weights));
  char text[64] = "not known for this device";
  if (tokens_per_second > 0) std::snprintf(text, sizeof text, "%.0f tok/s", tokens_per_second);
  line("ceiling here", text);
}

int inspect(const InspectOptions& options) {
  auto file = worker::ModelFile::open(options.model);
  if (!file) return fail(file.error());
  const auto device =
      make_device(options.engine.device, 1, options.engine.kv_type, options.engine.prefill_library);
  if (!device) return fail(device.error());
  const ModelCard card =
      (*file)->card(worker::CardOptions::of(**device, options.engine.block_tokens));
  Json about = describe(**file, card);
  const double tokens_per_second = ceiling(options, card);
  if (!options.json) {
    print_text(about, card, tokens_per_second);
    return kExitOk;
  }
  about["ceiling_tokens_per_second"] =
      tokens_per_second > 0 ? Json(tokens_per_second) : Json(nullptr);
  print_json(about);
  return kExitOk;
}

}  // namespace

void add_inspect(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("inspect", "What a model file holds and how fast it can be");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("MODEL", options->model, "GGUF file")->required();
  command->add_flag("--json", options->json, "One JSON object");
  options->engine.add_to(*command);
  command->callback([options, &action] { action = [options] { return inspect(*options); }; });
}

}  // namespace headrace::cli
