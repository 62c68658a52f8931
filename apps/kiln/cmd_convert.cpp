// kiln convert: a Hugging Face folder to another, in another dtype, other shards, another order of q and k;
// or a fresh model to start from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include "kiln/cmd.h"
#include "train/run/convert.h"
#include "kiln/console/progress.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// As typed.
struct ConvertOptions {
  ConvertRequest request;
  std::string dtype, max_shard, rope, to_rope;
};

DType parse_dtype(const std::string& text) {
  static constexpr std::string_view kNames[] = {"fp32", "bf16", "fp16"};
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
    if (name_of(t) == text) return t;
  }
  const std::string near = nearest_name(text, kNames);
  throw Error(fmt::format("--dtype is '{}'; expected fp32, bf16 or fp16", text),
              near.empty() ? "" : fmt::format("did you mean '{}'?", near), ErrorKind::usage);
}

ConvertRequest read_options(const ConvertOptions& options, const CommonOptions& common) {
  ConvertRequest r = options.request;
  const int sources = (r.from.empty() ? 0 : 1) + (r.random.empty() ? 0 : 1) + (r.config.empty() ? 0 : 1);
  if (sources != 1)
    throw Error(sources == 0 ? "kiln convert needs --from, --random or --config"
                             : "of --from, --random and --config only one can be given",
                "--from DIR reads a model; --random SIZE and --config FILE make a fresh one",
                ErrorKind::usage);
  if (r.to.empty()) throw Error("kiln convert needs --to", "give the folder to write", ErrorKind::usage);
  if (!options.dtype.empty()) r.dtype = parse_dtype(options.dtype);
  if (!options.max_shard.empty()) {
    r.save.max_shard_bytes = parse_bytes(options.max_shard, "--max-shard").value;
    if (r.save.max_shard_bytes == 0)
      throw Error("--max-shard is 0; expected at least one byte", {}, ErrorKind::usage);
  }
  if (!options.rope.empty()) {
    if (r.from.empty())
      throw Error("--rope is given without --from; a fresh model has no order to tell", {}, ErrorKind::usage);
    r.save.from = parse_rope_layout(options.rope, "--rope");
  }
  if (!options.to_rope.empty()) r.save.to = parse_rope_layout(options.to_rope, "--to-rope");
  r.seed = common.seed;
  return r;
}

ordered_json shape_json(const Shape& shape) {
  auto list = ordered_json::array();
  for (int i = 0; i < shape.rank(); ++i) list.push_back(shape[i]);
  return list;
}

std::string to_json(const ConvertReport& r) {
  auto tensors = ordered_json::array();
  for (const SavedTensor& t : r.tensors) {
    tensors.push_back({{"name", t.name},
                       {"shape", shape_json(t.shape)},
                       {"dtype", name_of(r.config.dtype)},
                       {"bytes", t.bytes},
                       {"file", t.file},
                       {"crc32c", fmt::format("{:08x}", t.crc32c)}});
  }
  const ordered_json page = {{"from", r.from.empty() ? ordered_json(nullptr) : ordered_json(r.from)},
                             {"to", r.to},
                             {"parameters", r.parameters},
                             {"dtype", name_of(r.config.dtype)},
                             {"bytes", r.bytes},
                             {"files", r.files},
                             {"source_bytes", r.source_bytes},
                             {"source_files", r.source_files},
                             {"tied", r.config.model.tied},
                             {"copied", r.copied},
                             {"seconds", r.seconds},
                             {"tensors", tensors}};
  return page.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// "model.layers.3.mlp.up_proj.weight" as "model.layers.*.mlp.up_proj.weight": one row for all layers.
std::string without_layer(const std::string& name) {
  static constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return name;
  const auto dot = name.find('.', kPrefix.size());
  return dot == std::string::npos ? name : fmt::format("{}*{}", kPrefix, name.substr(dot));
}

std::string to_text(const ConvertReport& r) {
  struct Row {
    std::string name, shape;
    int count = 0;
    uint64_t bytes = 0;
  };
  std::vector<Row> rows;
  for (const SavedTensor& t : r.tensors) {
    const std::string name = without_layer(t.name);
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& x) { return x.name == name; });
    if (row == rows.end()) row = rows.insert(rows.end(), Row{name, t.shape.str()});
    ++row->count;
    row->bytes += t.bytes;
  }
  constexpr std::string_view kLine = "{:<48} {:>6} {:<16} {:<6} {:>12}\n";
  std::string text = fmt::format(fmt::runtime(kLine), "tensor", "count", "shape", "dtype", "bytes");
  for (const Row& row : rows)
    text += fmt::format(fmt::runtime(kLine), row.name, row.count, row.shape, name_of(r.config.dtype),
                        human({row.bytes}));
  text += fmt::format(fmt::runtime(kLine), "in all", r.tensors.size(), fmt::format("{} params", r.parameters),
                      name_of(r.config.dtype), human({r.bytes}));
  text += "\n";
  if (!r.from.empty())
    text += fmt::format("read     {}: {} file(s), {}\n", r.from, r.source_files, human({r.source_bytes}));
  text += fmt::format("written  {}: {} file(s) of weights, config.json{}, in {:.2f} s\n", r.to, r.files,
                      r.copied.empty() ? "" : fmt::format(", {}", fmt::join(r.copied, ", ")), r.seconds);
  return text;
}

}  // namespace

CommandBody add_convert(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ConvertOptions>();
  ConvertRequest& r = options->request;
  app.add_option("--from", r.from, "A folder with config.json and safetensors")->type_name("DIR");
  app.add_option("--random", r.random, "Instead: a fresh model of a size `kiln sizes` lists")
      ->type_name("SIZE");
  app.add_option("--config", r.config, "Instead: a fresh model of this config.json")->type_name("FILE");
  app.add_option("--to", r.to, "The folder to write")->type_name("DIR");
  app.add_option("--dtype", options->dtype, "fp32, bf16 or fp16 (default: that of the source; fresh: fp32)")
      ->type_name("NAME");
  app.add_option("--max-shard", options->max_shard, "Bytes of weights in one file at most (default 5GB)")
      ->type_name("SIZE");
  app.add_option("--rope", options->rope,
                 "Order of q and k in the source: halves or interleaved (default halves)")
      ->type_name("NAME");
  app.add_option("--to-rope", options->to_rope,
                 "And in what is written (default halves, as transformers wants)")
      ->type_name("NAME");
  app.add_flag("--force", r.force, "Replace the model --to already holds");
  return [options, &common] {
    const ConvertRequest request = read_options(*options, common);
    ConvertReport report;
    {
      ProgressBar bar;
      report = convert(request, [&](uint64_t done, uint64_t all) {
        bar.show("writing", static_cast<double>(done) / static_cast<double>(all),
                 fmt::format("{} of {}", human({done}), human({all})));
      });
    }
    std::fputs((common.json ? to_json(report) : to_text(report)).c_str(), stdout);
  };
}

}  // namespace kiln::cli
