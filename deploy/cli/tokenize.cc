#include <cstdio>
#include <memory>

#include "coordinator/tokenizer.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"
#include "worker/model_file.h"

namespace headrace::cli {

namespace {

struct TokenizeOptions {
  std::string model;
  bool special = false;
  bool json = false;
};

int tokenize(const TokenizeOptions& options) {
  auto file = worker::ModelFile::open(options.model);
  if (!file) return fail(file.error());
  auto tokenizer = coordinator::Tokenizer::make((*file)->tokenizer());
  if (!tokenizer) return fail(tokenizer.error());
  auto text = read_stdin(coordinator::Tokenizer::kTextBytesMax);
  if (!text) return fail(text.error());
  const auto ids = tokenizer->encode(*text, options.special);
  if (!ids) return fail(ids.error());
  if (options.json) {
    print_json({{"ids", *ids}});
    return kExitOk;
  }
  std::string line;
  for (const Token id : *ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  std::printf("%s\n", line.c_str());
  return kExitOk;
}

}  // namespace

void add_tokenize(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("tokenize", "Token ids of the text on stdin, taken byte for byte");
  const auto options = std::make_shared<TokenizeOptions>();
  command->add_option("MODEL", options->model, "GGUF file")->required();
  command->add_flag("--special", options->special,
                    "Recognise control names (otherwise they are letters)");
  command->add_flag("--json", options->json, "One JSON object: {\"ids\": [...]}");
  command->callback([options, &action] { action = [options] { return tokenize(*options); }; });
}

}  // namespace headrace::cli
