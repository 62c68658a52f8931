// usage: kiln_logits FOLDER TOKEN_ID...
// Prints, as JSON, the logits a Hugging Face folder's model gives for the tokens, computed in fp32 on the
// CPU. For tools/check_hf.py, which holds them to transformers'.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string_view>
#include <vector>

#include "autograd/tape.h"
#include "base/error.h"
#include "model/hf_folder.h"
#include "model/llama.h"

namespace {

using namespace kiln;

int32_t parse_id(std::string_view text, int64_t vocab) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size() || id < 0 || id >= vocab)
    throw Error(fmt::format("'{}' is not a token id from 0 to {}", text, vocab - 1), {}, ErrorKind::usage);
  return id;
}

void print_logits(const std::vector<std::string_view>& args) {
  if (args.size() < 2) throw Error("usage: kiln_logits FOLDER TOKEN_ID...", {}, ErrorKind::usage);
  HfFolder folder{std::string(args[0])};
  const ModelConfig& config = folder.config().model;
  std::vector<int32_t> tokens;
  for (std::size_t i = 1; i < args.size(); ++i) tokens.push_back(parse_id(args[i], config.vocab));

  RankContext ctx;
  Llama model(config);
  model.params().materialize(ctx);
  load_weights(folder, config, RopeLayout::halves, ctx, model.params());
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor ids = ctx.empty({1, static_cast<int64_t>(tokens.size())}, DType::i32);
  ctx.upload(ids, tokens.data());
  const Tensor logits = model.logits(ctx, ids);  // [1, T, V]
  std::vector<float> values(static_cast<std::size_t>(logits.numel()));
  ctx.download(values.data(), logits);

  fmt::print("{{\"tokens\": [{}], \"logits\": [", fmt::join(tokens, ", "));
  const auto V = static_cast<std::size_t>(config.vocab);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto row = std::span(values).subspan(t * V, V);
    fmt::print("{}[{:.9g}]", t == 0 ? "\n  " : ",\n  ", fmt::join(row, ", "));
  }
  fmt::print("]}}\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    print_logits({argv + (argc > 0 ? 1 : 0), argv + argc});
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "kiln_logits: {}\n", error.what());
    return error.kind() == ErrorKind::usage ? 2 : 1;
  }
}
