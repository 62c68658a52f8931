// kiln convert: a Hugging Face folder to another, in another dtype, other shards, another order of q and k;
// or a fresh model to start from.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "train/run/convert.h"

namespace kiln::cli {
namespace {

TextForm<RopeLayout> rope_form(const char* option) {
  return {[option](const std::string& text) { return parse_rope_layout(text, option); },
          [](const RopeLayout& layout) { return std::string(name_of(layout)); }};
}

TextForm<std::optional<DType>> dtype_form() {
  return {[](const std::string& text) -> std::optional<DType> {
            static constexpr std::string_view kNames[] = {"fp32", "bf16", "fp16"};
            for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
              if (name_of(t) == text) return t;
            }
            const std::string near = nearest_name(text, kNames);
            throw Error(fmt::format("--dtype is '{}'; expected fp32, bf16 or fp16", text),
                        near.empty() ? "" : fmt::format("did you mean '{}'?", near), ErrorKind::usage);
          },
          [](const std::optional<DType>& t) { return t ? std::string(name_of(*t)) : ""; }};
}

TextForm<uint64_t> bytes_form() {
  return {[](const std::string& text) -> uint64_t {
            const uint64_t bytes = parse_bytes(text, "--max-shard").value;
            if (bytes == 0) throw Error("--max-shard is 0; expected at least one byte", {}, ErrorKind::usage);
            return bytes;
          },
          [](const uint64_t& bytes) { return fmt::format("{}", bytes); }};
}

}  // namespace

void add_convert(Command& c, const CommonOptions& common) {
  auto request = std::make_shared<ConvertRequest>();
  ConvertRequest& r = *request;
  c.opt("--from", r.from, "folder with config.json and safetensors").value("DIR");
  c.opt("--to", r.to, "folder to write").value("DIR");
  add_model_options(c.options, r.fresh, /*several=*/false);
  c.options.find("--size")->was("--random");
  c.options.find("--model")->was("--config");
  c.opt("--dtype", r.dtype, dtype_form(), "dtype of the weights: fp32, bf16 or fp16")
      .unset("that of --from; fresh: fp32");
  c.opt("--max-shard", r.save.max_shard_bytes, bytes_form(), "maximum bytes of weights per file")
      .value("SIZE")
      .unset("5GB");
  c.opt("--rope", r.save.from, rope_form("--rope"), "order of q and k in --from: halves or interleaved");
  c.opt("--to-rope", r.save.to, rope_form("--to-rope"),
        "order of q and k in --to: halves, as transformers wants, or interleaved");
  c.opt("--force", r.force, "replace the model that --to already holds");
  c.note = "--size or --model instead of --from make a fresh model.";
  c.run = [request, &c, &common] {
    request->seed = common.seed;
    request->rope_given = !c.options.find("--rope")->given().empty();
    check_request(*request);
    ConvertReport report;
    {
      ProgressBar bar;
      report = convert(*request, [&](uint64_t done, uint64_t all) {
        bar.show("writing", static_cast<double>(done) / static_cast<double>(all),
                 fmt::format("{} of {}", human({done}), human({all})));
      });
    }
    fmt::print("{}", common.json ? convert_json(report).dump(2) + "\n" : convert_text(report));
  };
}

}  // namespace kiln::cli
