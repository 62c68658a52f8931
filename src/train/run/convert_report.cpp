// What `kiln convert` says of what it wrote.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "train/run/convert.h"

namespace kiln {
namespace {

Json shape_json(const Shape& shape) {
  auto list = Json::array();
  for (int i = 0; i < shape.rank(); ++i) list.push_back(shape[i]);
  return list;
}

// "model.layers.3.mlp.up_proj.weight" as "model.layers.*.mlp.up_proj.weight": one row for all layers.
std::string without_layer(const std::string& name) {
  static constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return name;
  const auto dot = name.find('.', kPrefix.size());
  return dot == std::string::npos ? name : fmt::format("{}*{}", kPrefix, name.substr(dot));
}

}  // namespace

Json convert_json(const ConvertReport& r) {
  auto tensors = Json::array();
  for (const SavedTensor& t : r.tensors) {
    tensors.push_back({{"name", t.name},
                       {"shape", shape_json(t.shape)},
                       {"dtype", name_of(r.config.dtype)},
                       {"bytes", t.bytes},
                       {"file", t.file},
                       {"crc32c", fmt::format("{:08x}", t.crc32c)}});
  }
  return {{"command", "convert"},
          {"from", r.from.empty() ? Json(nullptr) : Json(r.from)},
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
}

std::string convert_text(const ConvertReport& r) {
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
  text += fmt::format(fmt::runtime(kLine), "total", r.tensors.size(), fmt::format("{} params", r.parameters),
                      name_of(r.config.dtype), human({r.bytes}));
  text += "\n";
  if (!r.from.empty())
    text += fmt::format("read     {}: {} file(s), {}\n", r.from, r.source_files, human({r.source_bytes}));
  text += fmt::format("written  {}: {} file(s) of weights, config.json{}, in {:.2f} s\n", r.to, r.files,
                      r.copied.empty() ? "" : fmt::format(", {}", fmt::join(r.copied, ", ")), r.seconds);
  return text;
}

}  // namespace kiln
