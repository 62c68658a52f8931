// kiln precision: what number formats do to sums, to a small model's tensors and to a norm.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/gpu_info.h"
#include "dist/comm/reduce_ranks.h"
#include "kiln/cmd.h"
#include "base/parse_number.h"
#include "kiln/precision_pages.h"
#include "device/require_gpu.h"

namespace kiln::cli {
namespace {

using Study = std::function<bool()>;  // runs it if it was asked for, and says whether it was

constexpr const char* kCommonNote =
    "It also takes --json, --seed, --device and --out, as every command does; it runs on the host.\n\n";
constexpr const char* kDeviceNote =
    "It also takes --json, --seed, --device and --out, as every command does; its ops run on the device, "
    "its\n"
    "loops on the host.\n\n";

CLI::App* add_study(CLI::App& app, const char* name, const char* summary, const char* example,
                    const char* note = kCommonNote) {
  CLI::App* study = app.add_subcommand(name, summary);
  study->fallthrough();  // --json and its like belong to every command
  study->footer(fmt::format("{}Example:\n  {}", note, example));
  return study;
}

// read(request) takes the options, run(request) makes the report, which json(report) or text(report) tells.
template <class Request, class Read, class Run, class Json, class Text>
Study body_of(CLI::App* study, const CommonOptions& common, const Read& read, Run run, Json json, Text text) {
  return [=, &common] {
    if (!study->parsed()) return false;
    Request request;
    read(request);
    request.seed = common.seed;
    const auto report = run(request);
    std::fputs((common.json ? json(report) : text(report)).c_str(), stdout);
    return true;
  };
}

Study add_accumulate(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string count, value, runs;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* study = add_study(app, "accumulate", "One number added many times, in each pair of dtypes",
                              "kiln precision accumulate --count 1000 --value 0.01 --json");
  study->add_option("--count", t->count, "How many additions (default 1000)")->type_name("N");
  study->add_option("--value", t->value, "What is added (default 0.01)")->type_name("X");
  study->add_option("--runs", t->runs, "Of each row with stochastic rounding (default 32)")->type_name("N");
  const auto read = [t](AccumulateRequest& request) {
    read_number<int64_t>("--count", t->count, 1, 1'000'000, request.count);
    read_number<double>("--value", t->value, 1e-7, 65504, request.value);
    read_number<int>("--runs", t->runs, 2, 64, request.runs);
  };
  return body_of<AccumulateRequest>(study, common, read, accumulate_study, accumulate_json, accumulate_text);
}

Study add_toymodel(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string batch, in, classes;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* study = add_study(app, "toymodel", "The dtype of every tensor of a small model under autocast",
                              "kiln precision toymodel --in 20 --classes 5 --json");
  study->add_option("--batch", t->batch, "Examples (default 32)")->type_name("N");
  study->add_option("--in", t->in, "Width of the input (default 20)")->type_name("N");
  study->add_option("--classes", t->classes, "Width of the logits (default 5)")->type_name("N");
  const auto read = [t](ToyModelRequest& request) {
    read_number<int64_t>("--batch", t->batch, 1, 4096, request.batch);
    read_number<int64_t>("--in", t->in, 1, 4096, request.in);
    read_number<int64_t>("--classes", t->classes, 2, 4096, request.classes);
  };
  return body_of<ToyModelRequest>(study, common, read, toy_model_study, toy_model_json, toy_model_text);
}

Study add_layernorm(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string width, rows;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* study =
      add_study(app, "layernorm", "Which part of LayerNorm breaks in 16 bits, and at what scale",
                "kiln precision layernorm --width 768 --json");
  study->add_option("--width", t->width, "Elements of a row (default 768)")->type_name("N");
  study->add_option("--rows", t->rows, "Rows to take the error over (default 8)")->type_name("N");
  const auto read = [t](LayerNormRequest& request) {
    read_number<int64_t>("--width", t->width, 2, 16384, request.width);
    read_number<int64_t>("--rows", t->rows, 1, 64, request.rows);
  };
  return body_of<LayerNormRequest>(study, common, read, layer_norm_study, layer_norm_json, layer_norm_text);
}

Study add_accumulation(CLI::App& app, const CommonOptions& common) {
  struct Texts {
    std::string batch, tokens, ranks, steps, width;
  };
  auto t = std::make_shared<Texts>();
  CLI::App* study = add_study(
      app, "accumulation", "What training's sums lose in each dtype, and what they cost",
      "kiln precision accumulation --tokens 1024 --ranks 16 --steps 1000 --width 4096 --json", kDeviceNote);
  study->add_option("--batch", t->batch, "Rows of a micro-batch (default 16)")->type_name("N");
  study->add_option("--tokens", t->tokens, "That linear-cross-entropy's dW sums over (default 1024)")
      ->type_name("N");
  study->add_option("--ranks", t->ranks, "Of the all-reduce (default 16)")->type_name("N");
  study->add_option("--steps", t->steps, "Of Adam (default 1000)")->type_name("N");
  study->add_option("--width", t->width, "Scores of a softmax (default 4096)")->type_name("N");
  const auto read = [t, &common](AccumulationRequest& request) {
    read_number<int64_t>("--batch", t->batch, 1, 1024, request.batch);
    read_number<int64_t>("--tokens", t->tokens, 2, 16384, request.sums.tokens);
    read_number<int>("--ranks", t->ranks, 2, kMaxThreadRanks, request.sums.ranks);
    read_number<int>("--steps", t->steps, 1, 5000, request.sums.steps);
    read_number<int64_t>("--width", t->width, 2, 65536, request.sums.width);
    std::string why_no_gpu;
    const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
    require_gpu(common.device, gpus, why_no_gpu);
    request.device = Device::parse(common.device);
    if (request.device.is_meta())
      throw Error("kiln precision accumulation needs numbers, and meta has none", "use --device cpu or cuda",
                  ErrorKind::usage);
  };
  return body_of<AccumulationRequest>(study, common, read, accumulation_study, accumulation_json,
                                      accumulation_text);
}

}  // namespace

CommandBody add_precision(CLI::App& app, const CommonOptions& common) {
  app.require_subcommand(0, 1);
  const std::vector<Study> studies = {add_accumulate(app, common), add_toymodel(app, common),
                                      add_layernorm(app, common), add_accumulation(app, common)};
  return [studies] {
    if (!std::any_of(studies.begin(), studies.end(), [](const auto& study) { return study(); }))
      throw Error("kiln precision needs the name of a study: accumulate, toymodel, layernorm or accumulation",
                  "see `kiln precision --help`", ErrorKind::usage);
  };
}

}  // namespace kiln::cli
