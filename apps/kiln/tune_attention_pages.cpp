// The forms in which `kiln tune attention` shows what it measured.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "studies/format.h"
#include "studies/tune/tune_attention.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLeft = 3;  // columns of words

double tflops(const TunedCell& cell, double seconds) {
  return cell.cell.least(AttentionPass::forward).flops / seconds / 1e12;
}

std::string mark(const TunedTiles& t) {
  return fmt::format("{}{}{}", t.chosen ? "chosen" : "", t.chosen && t.candidate.is_default ? ", " : "",
                     t.candidate.is_default ? "default" : "");
}

std::vector<std::string> line_of(const TunedCell& cell, const TunedTiles& t, bool planned) {
  std::vector<std::string> line = {cell.cell.str(), cell.variant, t.candidate.tiles.str(),
                                   fmt::format("{}", t.candidate.shared_bytes / 1024)};
  if (planned) {
    line.push_back(mark(t));
    return line;
  }
  if (t.seconds) {
    line.insert(line.end(), {digits(ms(*t.seconds)), digits(tflops(cell, *t.seconds)),
                             fmt::format("{:.3f}", cell.default_seconds() / *t.seconds), mark(t)});
  } else {
    line.insert(line.end(), {"", "", "", "error"});
  }
  return line;
}

}  // namespace

std::string tune_attention_page(const TuneAttentionReport& r) {
  TextTable table = {{"shape", "variant", "tiles", "shared KiB"}};
  if (!r.planned) table.front().insert(table.front().end(), {"ms", "TFLOP/s", "gain"});
  table.front().emplace_back("");
  std::string notes;
  for (const TunedCell& cell : r.cells) {
    for (const TunedTiles& t : cell.tiles) {
      table.push_back(line_of(cell, t, r.planned));
      if (!t.error.empty())
        notes +=
            fmt::format("{}, {}, {}: {}\n", cell.cell.str(), cell.variant, t.candidate.tiles.str(), t.error);
    }
    if (!cell.reason.empty()) notes += fmt::format("{}: {}\n", cell.cell.str(), cell.reason);
  }
  std::string text = table.size() > 1 ? aligned(table, kLeft) : "";
  text += notes;
  if (!r.planned && r.choices > 0)
    text += fmt::format("{} choices of tiles for {} in {}\n", r.choices, r.gpu, r.file);
  return text;
}

std::string tune_attention_json(const TuneAttentionReport& r) {
  ordered_json shapes = ordered_json::array();
  for (const TunedCell& cell : r.cells) {
    const AttentionCell& c = cell.cell;
    ordered_json tiles = ordered_json::array();
    for (const TunedTiles& t : cell.tiles) {
      ordered_json one = {{"queries", t.candidate.tiles.queries},
                          {"keys", t.candidate.tiles.keys},
                          {"stages", t.candidate.tiles.stages},
                          {"shared_bytes", t.candidate.shared_bytes},
                          {"default", t.candidate.is_default}};
      if (!r.planned) {
        one["chosen"] = t.chosen;
        if (t.seconds) {
          one["ms"] = ms(*t.seconds);
          one["tflop_per_s"] = tflops(cell, *t.seconds);
          one["gain"] = cell.default_seconds() / *t.seconds;
          one["difference"] = t.difference;
        } else {
          one["error"] = t.error;
        }
      }
      tiles.push_back(std::move(one));
    }
    ordered_json shape = {{"batch", c.batch},   {"heads", c.heads},          {"seq", c.seq},
                          {"d", c.d},           {"dtype", name_of(c.dtype)}, {"causal", c.causal},
                          {"packed", c.packed}, {"variant", cell.variant},   {"tiles", std::move(tiles)}};
    if (!cell.reason.empty()) shape["reason"] = cell.reason;
    shapes.push_back(std::move(shape));
  }
  ordered_json page = {{"command", "tune attention"}, {"device", r.device}};
  if (!r.planned) {
    page["gpu"] = r.gpu;
    page["file"] = r.file;
    page["choices"] = r.choices;
  }
  page["shapes"] = std::move(shapes);
  return dump(page, 2) + "\n";
}

}  // namespace kiln::cli
