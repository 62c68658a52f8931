// kiln sizes: the models known by name, and what each asks of a machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kiln/cmd.h"
#include "model/size_registry.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kContext = 512;
constexpr double kGiB = 0x1p30;

double state_gib(const ModelSize& s) { return static_cast<double>(param_count(s) * kFp32StateBytes) / kGiB; }

std::string human_count(int64_t n) {
  const double d = static_cast<double>(n);
  return n < 1'000'000 ? fmt::format("{:.4g} K", d / 1e3)
         : n < 100'000'000
             ? fmt::format("{:.4g} M", d / 1e6)
             : fmt::format("{:.{}f} B", d / 1e9, n < 10'000'000'000 ? 4 : (n < 100'000'000'000 ? 3 : 2));
}

std::string or_dash(int64_t n) { return n == 0 ? "-" : std::to_string(n); }

std::string to_text(const std::vector<ModelSize>& sizes) {
  constexpr std::string_view kLine = "{:<13} {:>7} {:>6} {:>6} {:>5} {:>8} {:>7} {:>9} {:>9} {:>11}\n";
  std::string text = fmt::format(fmt::runtime(kLine), "size", "d_model", "d_ff", "layers", "heads",
                                 "head_dim", "vocab", "params", "state GiB", "GFLOP/token");
  for (const ModelSize& s : sizes) {
    const double flops = train_flops_per_token(s, kContext) / 1e9;
    text += fmt::format(fmt::runtime(kLine), s.name, s.d_model, s.d_ff, s.layers, or_dash(s.heads),
                        or_dash(s.head_dim()), or_dash(s.vocab), human_count(param_count(s)),
                        fmt::format("{:.{}f}", state_gib(s), state_gib(s) < 100 ? 2 : 1),
                        fmt::format("{:.4g}", flops));
  }
  text += fmt::format(
      "\nstate: weights, gradients and Adam moments in fp32, {} bytes a parameter. Heads untied, SwiGLU.\n"
      "GFLOP/token: training, 6 x non-embedding parameters + 6 x layers x d_model x context (causal\n"
      "attention, backward twice forward), at context {}.\n",
      kFp32StateBytes, kContext);
  for (const ModelSize& s : sizes) {
    if (s.kind == SizeKind::ffn_only) text += fmt::format("{} is {}: {}.\n", s.name, name_of(s.kind), s.note);
  }
  return text;
}

std::string to_json(const std::vector<ModelSize>& sizes) {
  ordered_json list = ordered_json::array();
  for (const ModelSize& s : sizes) {
    list.push_back({{"name", s.name},
                    {"kind", name_of(s.kind)},
                    {"d_model", s.d_model},
                    {"d_ff", s.d_ff},
                    {"n_layers", s.layers},
                    {"n_heads", s.heads},
                    {"head_dim", s.head_dim()},
                    {"vocab", s.vocab},
                    {"params", param_count(s)},
                    {"fp32_state_bytes", param_count(s) * kFp32StateBytes},
                    {"fp32_state_gib", state_gib(s)},
                    {"train_flops_per_token", train_flops_per_token(s, kContext)},
                    {"tied", false},
                    {"note", s.note}});
  }
  const ordered_json page = {
      {"sizes", list},
      {"flops_convention",
       fmt::format("6 x non-embedding parameters + 6 x n_layers x d_model x context, causal, context {}",
                   kContext)}};
  return page.dump(2) + "\n";
}

}  // namespace

CommandBody add_sizes(CLI::App& app, const CommonOptions& common) {
  auto names = std::make_shared<std::vector<std::string>>();
  app.add_option("NAME", *names, "Only these sizes, in this order (default all)")->type_name("");
  return [names, &common] {
    std::vector<ModelSize> shown;
    for (const std::string& name : *names) shown.push_back(find_model_size(name));
    if (names->empty()) shown.assign(model_sizes().begin(), model_sizes().end());
    std::fputs((common.json ? to_json(shown) : to_text(shown)).c_str(), stdout);
  };
}

}  // namespace kiln::cli
