// What holds the memory of a step: peaks, timelines, precision, the residual stream, the largest allocations.
#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "report/charts/grouped_bars.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

std::optional<double> peak_of(const Json& row) {
  const auto measured = number_at(row, "measured_peak_bytes");
  return measured ? measured : number_at(row, "predicted_peak_bytes");
}

// What a chart of such peaks is in.
double unit_of(double bytes) { return bytes >= 0x1p32 ? 0x1p30 : 0x1p20; }
std::string name_of_unit(double unit) { return unit == 0x1p30 ? "GiB" : "MiB"; }

std::vector<Json> with_peaks(Rows rows) {
  return rows_where(rows, [](const Json& r) { return peak_of(r).value_or(0) > 0; });
}

std::string list_of_files(const Json& row, std::vector<std::string>& files) {
  const Json* list = row.find("files");
  if (list == nullptr || !list->is_array()) return {};
  std::string page;
  for (const Json& file : *list) {
    if (!file.is_string()) continue;
    if (file.text().ends_with(".svg")) files.push_back(file.text());
    if (file.text().ends_with(".html")) page = file.text();
  }
  return page;
}

Answer timelines(Rows rows) {
  Answer a;
  std::vector<Json> drawn;  // of each phase the last: the files of all are in the rows
  for (const std::string& phase : values_of(rows, "phase")) {
    const std::vector<Json> own = rows_where(rows, [&](const Json& r) {
      std::vector<std::string> files;
      list_of_files(r, files);
      return !files.empty() && word_is(r, "phase", phase);
    });
    if (!own.empty()) drawn.push_back(own.back());
  }
  for (const Json& row : drawn) {
    const std::string page = list_of_files(row, a.files);
    const Json* tags = row.find("predicted_peak_by_tag");
    double most = 0;
    std::string tag;
    if (tags != nullptr && tags->is_object())
      for (const auto& [name, bytes] : tags->items())
        if (bytes.is_number() && bytes.get<double>() > most) most = bytes.get<double>(), tag = name;
    a.sentences.push_back(fmt::format(
        "{}, {}: the peak is {}{}{}.", text_at(row, "size"), text_at(row, "phase"), bytes_text(*peak_of(row)),
        tag.empty() ? "" : fmt::format(", most of it {} ({})", tag, bytes_text(most)),
        page.empty() ? "" : fmt::format("; every allocation is in `{}`", page)));
  }
  return a;
}

// Sizes down, phases across, GiB; as the course asks for it.
Answer peaks(Rows rows) {
  const std::vector<Json> all = with_peaks(rows);
  if (all.empty()) return {};
  Answer a;
  TextTable table = {
      {"size", "precision", "ctx", "preset", "forward", "full training step", "full over forward"}};
  std::vector<double> ratios;
  double most = 0;
  for (const Json& row : all) most = std::max(most, *peak_of(row));
  const double unit = unit_of(most);
  GroupedBars bars{.title = "Peak memory",
                   .below_title = {},
                   .y_label = name_of_unit(unit),
                   .unit = "",
                   .reference = 0,
                   .series = {"forward", "full training step"},
                   .groups = {}};
  for (const std::vector<Json>& group :
       groups_by(all, {"size", "dtype", "ctx", "batch", "preset", "recompute"})) {
    double forward = 0, full = 0;
    for (const Json& row : group)
      (word_is(row, "phase", "full")      ? full
       : word_is(row, "phase", "forward") ? forward
                                          : full) = *peak_of(row);
    const Json& row = group.front();
    table.push_back({text_at(row, "size"), text_at(row, "dtype"), text_at(row, "ctx"), text_at(row, "preset"),
                     forward > 0 ? bytes_text(forward) : "-", full > 0 ? bytes_text(full) : "-",
                     times(forward > 0 ? full / forward : 0)});
    if (forward > 0 && full > 0) ratios.push_back(full / forward);
    constexpr std::size_t kMostGroups = 12;  // as many as have names below them
    if (bars.groups.size() < kMostGroups)
      bars.groups.push_back({name_among(all, row, {"size", "dtype", "ctx", "preset"}),
                             {{forward / unit, 0}, {full / unit, 0}}});
  }
  const std::size_t measured =
      rows_where(all, [](const Json& r) { return number_at(r, "measured_peak_bytes").has_value(); }).size();
  const std::size_t same = rows_where(all, [](const Json& r) { return gate_of(r) == Gate::passed; }).size();
  if (const std::string range = range_of_times(ratios); !range.empty())
    a.sentences.push_back(fmt::format("A full training step holds {} as much as forward alone.", range));
  if (measured > 0)
    a.sentences.push_back(fmt::format("{} of {} were measured; {} of them peak at the predicted byte.",
                                      measured, plural(all.size(), "row"), same));
  else
    a.sentences.push_back(
        fmt::format("All {} are predicted by a run without data.", plural(all.size(), "row")));
  a.tables.push_back({"", std::move(table), 4, false, {}});
  a.charts.push_back({{"peaks", grouped_bars_svg(bars)}, "peak memory of forward and of a full step"});
  for (AnswerChart& c : curve(rows_where(all, [](const Json& r) { return word_is(r, "phase", "full"); }),
                              {.name = "peak-over-ctx",
                               .title = "Peak memory over the context length",
                               .below = "full training step",
                               .x_label = "context",
                               .y_label = name_of_unit(unit),
                               .x = "ctx",
                               .y = "predicted_peak_bytes",
                               .by = {"size", "dtype", "preset"},
                               .y_scale = 1 / unit}))
    a.charts.push_back(std::move(c));
  return a;
}

Answer mixed(Rows rows) {
  const std::vector<Json> all = with_peaks(rows);
  Answer a;
  for (const char* phase : {"forward", "full"}) {
    std::vector<double> ratios;
    std::string narrow;
    for (const std::vector<Json>& group :
         groups_by(rows_where(all, [&](const Json& r) { return word_is(r, "phase", phase); }),
                   {"size", "ctx", "batch", "preset", "recompute"})) {
      double wide = 0, less = 0;
      for (const Json& row : group) {
        if (word_is(row, "dtype", "fp32")) wide = *peak_of(row);
        if (!word_is(row, "dtype", "fp32")) less = *peak_of(row), narrow = text_at(row, "dtype");
      }
      if (wide > 0 && less > 0) ratios.push_back(less / wide);
    }
    if (ratios.empty()) continue;
    const double most = *std::max_element(ratios.begin(), ratios.end());
    a.sentences.push_back(
        fmt::format("In {} the peak of {} is {} of that in fp32{}.", narrow,
                    std::string_view(phase) == "full" ? "a full step" : "forward", range_of_shares(ratios),
                    most < 0.9 ? "" : ": hardly less, since the weights' and optimizer's fp32 stays"));
  }
  return a;
}

Answer residual_stream(Rows rows) {
  const std::vector<Json> all =
      rows_where(rows, [](const Json& r) { return number_at(r, "residual_stream_bytes").value_or(0) > 0; });
  Answer a;
  for (const std::vector<Json>& group : groups_by(all, {"size", "ctx", "batch", "dtype"})) {
    const Json& r = group.front();
    constexpr std::size_t kMost = 5;
    if (a.sentences.size() == kMost) break;
    a.sentences.push_back(
        fmt::format("One tensor of the residual stream of {} at batch {}, context {} in {} is {}.",
                    text_at(r, "size"), text_at(r, "batch"), text_at(r, "ctx"), text_at(r, "dtype"),
                    bytes_text(*number_at(r, "residual_stream_bytes"))));
  }
  if (!a.empty())
    a.sentences.emplace_back(
        "It has batch x context x d_model numbers (`kiln calc residual-stream` derives it).");
  return a;
}

Answer largest(Rows rows) {
  Answer a;
  for (const Json& row : rows) {
    const Json* list = row.find("largest");
    if (list == nullptr || !list->is_array() || list->empty()) continue;
    const Json& first = list->front();
    constexpr std::size_t kMost = 5;
    if (a.sentences.size() == kMost) a.sentences.erase(a.sentences.begin());
    a.sentences.push_back(fmt::format(
        "{}, {} ({}): the largest are {} of {}, allocated by `{}` ({}).", text_at(row, "size"),
        text_at(row, "phase"), text_at(row, "dtype"), text_at(first, "count"),
        bytes_text(number_at(first, "bytes").value_or(0)), text_at(first, "op"), text_at(first, "tag")));
    std::vector<Json> lines(list->begin(), list->end());
    a.tables = {facts_table(fmt::format("{}, {}", text_at(row, "size"), text_at(row, "phase")), lines,
                            {{"op", "allocated by", Unit::text, Where::table},
                             {"tag", "tag", Unit::text, Where::table},
                             {"line", "line", Unit::text, Where::table},
                             {"bytes", "MiB each", Unit::mebibytes, Where::table},
                             {"count", "times", Unit::count, Where::table}})};
  }
  return a;
}

Answer growth(Rows rows) {
  Answer a;
  for (const Json& row : rows) {
    const Json* series = row.find("series");
    if (series == nullptr || !series->is_array()) continue;
    for (const Json& s : *series)
      if (const auto exponent = number_at(s, "exponent_at_end"))
        a.sentences.push_back(fmt::format(
            "{}, {}: activations with {} attention grow with the context to the power of {:.2f} at the end.",
            text_at(row, "size"), text_at(row, "dtype"), text_at(s, "attention"), *exponent));
    if (const Json* files = row.find("files"); files != nullptr && files->is_array())
      for (const Json& file : *files)
        if (file.is_string()) a.files.push_back(file.text());
  }
  return a;
}

Answer recomputation(Rows rows) {
  Answer a;
  for (const Json& row : rows) {
    const Json* list = row.find("points");
    if (list == nullptr || !list->is_array() || list->empty()) continue;
    const std::vector<Json> points(list->begin(), list->end());
    const Json& none = points.front();
    const Json* smallest = least(points, "predicted_peak_bytes");
    if (smallest == nullptr || smallest == &none) continue;
    a.sentences.push_back(
        fmt::format("{} at context {}: recompute {} peaks at {} in place of {}, for {} the operations.",
                    text_at(row, "size"), text_at(row, "ctx"), text_at(*smallest, "recompute"),
                    bytes_text(*number_at(*smallest, "predicted_peak_bytes")),
                    bytes_text(number_at(none, "predicted_peak_bytes").value_or(0)),
                    times(number_at(*smallest, "flops_ratio").value_or(0))));
    a.tables = {facts_table("", points,
                            {{"recompute", "recompute", Unit::text, Where::table},
                             {"predicted_peak_bytes", "predicted MiB", Unit::mebibytes, Where::table},
                             {"measured_peak_bytes", "measured MiB", Unit::mebibytes, Where::table},
                             {"flops_ratio", "FLOPs", Unit::times, Where::table},
                             {"step_ms", "step ms", Unit::milliseconds, Where::table},
                             {"time_ratio", "time", Unit::times, Where::table}})};
  }
  return a;
}

constexpr std::string_view kFill =
    "kiln memory --size small,medium,large --ctx 512 --dtype fp32,bf16 --preset baseline --phase "
    "forward,full";
constexpr Question kQuestions[] = {
    {"1.1.6 (a)",
     "memory_profiling",
     "Memory timelines of forward and of a full step",
     {"memory"},
     timelines,
     kFill},
    {"1.1.6 (b)", "memory_profiling", "Peak memory of each size", {"memory"}, peaks, kFill},
    {"1.1.6 (c)", "memory_profiling", "What mixed precision changes", {"memory"}, mixed, kFill},
    {"1.1.6 (d)", "memory_profiling", "A tensor of the residual stream", {"memory"}, residual_stream, kFill},
    {"1.1.6 (e)", "memory_profiling", "The largest allocations", {"memory"}, largest, kFill},
    {"",
     "memory_profiling",
     "Growth with the context",
     {"memory scaling"},
     growth,
     "kiln memory scaling --size small --ctx 128..2048 --device meta"},
    {"",
     "gradient_checkpointing",
     "Recomputation in place of memory",
     {"memory recompute-sweep"},
     recomputation,
     "kiln memory recompute-sweep --size small --ctx 512 --device meta"},
};

}  // namespace

Chapter memory_chapter() { return {"memory", "Memory", kQuestions, "profiling"}; }

}  // namespace kiln
