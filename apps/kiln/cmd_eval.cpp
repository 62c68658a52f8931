// kiln eval: how well a model predicts a text.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "train/run/eval.h"

namespace kiln::cli {
namespace {

TextForm<int64_t> batches_form() {
  return {[](const std::string& text) {
            if (text == "all") return kAllBatches;
            try {
              return read_integer_option("--batches", text, 1, int64_t{1} << 40);
            } catch (const Error&) {
              throw Error(fmt::format("--batches is '{}'; expected a number from 1 on, or all", text), {},
                          ErrorKind::usage);
            }
          },
          [](const int64_t& n) { return n == kAllBatches ? "all" : number_text(n); }};
}

}  // namespace

void add_eval(Command& c, const CommonOptions& common) {
  auto request = std::make_shared<EvalRequest>();
  EvalRequest& r = *request;
  add_loaded_model_options(c.options, r.model);
  c.opt("--text", r.text, "text file, folder of text files, or output of kiln tokenize").value("PATH");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "window length, tokens")
      .unset("the model's, at most 1024");
  c.opt("--batch", r.batch, between(1, 1 << 20), "batch size, windows");
  c.opt("--batches", r.batches, batches_form(), "number of batches, or all").value("N|all");
  c.run = [request, &common] {
    request->seed = common.seed;
    request->model.device = common.device;
    EvalReport report;
    {
      ProgressBar bar;
      report = evaluate_text(*request, [&](const char* what, double done, const std::string& detail) {
        bar.show(what, done, detail);
      });
    }
    fmt::print("{}", common.json ? eval_json(*request, report).dump(2) + "\n" : eval_text(report));
  };
}

}  // namespace kiln::cli
