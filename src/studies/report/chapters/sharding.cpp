// Optimizer state, gradients and weights shared out among ranks: what it saves and what it sends.
#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

const std::initializer_list<std::string_view> kRun = {"size",      "dtype",      "batch", "ctx",
                                                      "transport", "link_model", "preset"};

const Json* stage_in(const std::vector<Json>& run, std::string_view stage, const std::string& ranks = {}) {
  const Json* found = nullptr;
  for (const Json& row : run)
    if (word_is(row, "stage", stage) && (ranks.empty() || text_at(row, "ranks") == ranks)) found = &row;
  return found;
}

double part(const Json& row, const char* moment, const char* key) {
  const Json* memory = row.find("memory");
  if (memory == nullptr) memory = row.find("predicted_memory");
  const Json* at = memory == nullptr ? nullptr : memory->find(moment);
  return at == nullptr || !at->is_object() ? 0 : number_at(*at, key).value_or(0);
}

// A rank's peak at a moment of the step.
template <const char* const& kMoment>
std::string peak_at(const Json& row) {
  const double bytes = part(row, kMoment, "peak_bytes");
  return bytes > 0 ? bytes_text(bytes) : "-";
}
constexpr const char* kAfterInit = "after_init";
constexpr const char* kBeforeStep = "before_step";
constexpr const char* kAfterStep = "after_step";

Answer memory_of(Rows rows) {
  Answer a;
  for (const std::vector<Json>& run : groups_by(rows, kRun)) {
    for (const Json& row : run) {
      const auto saved = number_at(row, "state_saved");
      if (word_is(row, "stage", "0") || !saved || number_at(row, "ranks").value_or(1) < 2) continue;
      const auto state = number_at(row, "state_bytes"), predicted = number_at(row, "predicted_state_bytes"),
                 theory = number_at(row, "theory_state_bytes");
      const std::optional<double> is = state ? state : predicted;
      if (!is) continue;
      a.sentences.push_back(fmt::format(
          "{}: stage {} on {} ranks keeps {} of state on a rank, {} less than unsharded; by formula {}{}.",
          text_at(row, "size"), text_at(row, "stage"), text_at(row, "ranks"), bytes_text(*is),
          percent_text(*saved), theory ? bytes_text(*theory) : "-", state ? "" : " (predicted, not run)"));
    }
  }
  if (a.empty()) return a;
  a.tables.push_back(facts_table("", rows,
                                 {{"size", "size", Unit::text, Where::table},
                                  {"stage", "stage", Unit::text, Where::table},
                                  {"ranks", "ranks", Unit::text, Where::table},
                                  {"", "after init", Unit::text, Where::table, {}, peak_at<kAfterInit>},
                                  {"", "before step", Unit::text, Where::table, {}, peak_at<kBeforeStep>},
                                  {"", "after step", Unit::text, Where::table, {}, peak_at<kAfterStep>},
                                  {"state_bytes", "state MiB", Unit::bytes, Where::table},
                                  {"predicted_state_bytes", "predicted", Unit::bytes, Where::table},
                                  {"theory_state_bytes", "by formula", Unit::bytes, Where::table},
                                  {"state_saved", "saved", Unit::percent, Where::table}}));
  a.files.emplace_back("zero/memory-over-ranks.svg");
  return a;
}

Answer time_of(Rows rows) {
  Answer a;
  for (const std::vector<Json>& run : groups_by(timed_rows(rows), kRun))
    for (const std::string& ranks : values_of(run, "ranks")) {
      const Json* none = stage_in(run, "0", ranks);
      for (const std::string& stage : values_of(run, "stage")) {
        const Json* own = stage_in(run, stage, ranks);
        if (stage == "0" || none == nullptr || own == nullptr) continue;
        a.sentences.push_back(
            fmt::format("{} on {} ranks: stage {} takes {} a step, stage 0 {} ({}).", text_at(*own, "size"),
                        ranks, stage, ms_text(*number_at(*own, "p50_ms")),
                        ms_text(*number_at(*none, "p50_ms")), times(ratio_at(*none, *own, "p50_ms"))));
      }
    }
  return a;
}

Answer against_paper(Rows rows) {
  Answer a;
  std::vector<Json> shown;
  for (const Json& row : rows) {
    const auto sent = number_at(row, "sent_bytes"), theory = number_at(row, "theory_sent_bytes"),
               volume = number_at(row, "paper_volume");
    if (!theory || !volume || *theory <= 0 || number_at(row, "ranks").value_or(1) < 2) continue;
    shown.push_back(row);
    if (sent)
      a.sentences.push_back(
          fmt::format("{}, stage {} on {} ranks sends {} a step; the paper's {} P (N-1)/N is {}.",
                      text_at(row, "size"), text_at(row, "stage"), text_at(row, "ranks"), bytes_text(*sent),
                      plain(*volume), bytes_text(*theory)));
  }
  if (shown.empty()) return a;
  a.tables.push_back(facts_table("", shown,
                                 {{"stage", "stage", Unit::text, Where::table},
                                  {"ranks", "ranks", Unit::text, Where::table},
                                  {"sent_bytes", "sent MiB", Unit::bytes, Where::table},
                                  {"predicted_sent_bytes", "predicted", Unit::bytes, Where::table},
                                  {"theory_sent_bytes", "by the paper", Unit::bytes, Where::table}}));
  a.files.emplace_back("zero/memory-against-communication.svg");
  return a;
}

Answer fsdp_time(Rows rows) {
  const std::vector<Json> timed = timed_rows(rows);
  Answer a;
  for (const Json& row : timed) {
    const auto gathers = number_at(row, "gathers"), in_time = number_at(row, "gathers_in_time");
    if (!gathers || !in_time) continue;
    a.sentences.push_back(
        fmt::format("{} on {} ranks, prefetch {}: {} of {} gathers arrived before their layer needed them; "
                    "{} of communication, {} of waiting for it.",
                    text_at(row, "size"), text_at(row, "ranks"), text_at(row, "prefetch"),
                    text_at(row, "gathers_in_time"), text_at(row, "gathers"),
                    ms_text(number_at(row, "communication_ms").value_or(0)),
                    ms_text(number_at(row, "gathers_exposed_ms").value_or(0))));
  }
  if (a.empty()) return a;
  a.tables.push_back(facts_table("", timed,
                                 {{"size", "size", Unit::text, Where::table},
                                  {"ranks", "ranks", Unit::text, Where::table},
                                  {"prefetch", "prefetch", Unit::text, Where::table},
                                  {"link_model", "link", Unit::text, Where::table},
                                  {"p50_ms", "step ms", Unit::milliseconds, Where::table},
                                  {"communication_ms", "comm ms", Unit::milliseconds, Where::table},
                                  {"gathers", "gathers", Unit::count, Where::table},
                                  {"gathers_in_time", "in time", Unit::count, Where::table},
                                  {"gathers_exposed_ms", "exposed ms", Unit::milliseconds, Where::table}}));
  a.files.emplace_back("fsdp/overlap.svg");
  return a;
}

Answer fsdp_layers(Rows rows) {
  const std::vector<Json> timed = rows_where(timed_rows(rows), [](const Json& r) {
    const Json* l = r.find("layers");
    return l != nullptr && l->is_array() && !l->empty();
  });
  if (timed.empty()) return {};
  const Json& row = timed.back();
  const Json& list = row.at("layers");
  const std::vector<Json> layers(list.begin(), list.end());
  const Json* late = greatest(layers, "exposed_us");
  Answer a;
  a.sentences.push_back(late == nullptr || number_at(*late, "exposed_us").value_or(0) == 0
                            ? std::string("Every gather was finished before its layer needed it.")
                            : fmt::format("Longest waited for: {} in {}, {} us.", text_at(*late, "layer"),
                                          text_at(*late, "phase"), figure_at(*late, "exposed_us")));
  a.tables.push_back(facts_table(fmt::format("prefetch {}, layer by layer", text_at(row, "prefetch")), layers,
                                 {{"layer", "layer", Unit::text, Where::table},
                                  {"phase", "phase", Unit::text, Where::table},
                                  {"gathers", "gathers", Unit::count, Where::table},
                                  {"in_time", "in time", Unit::count, Where::table},
                                  {"bytes", "MiB", Unit::bytes, Where::table},
                                  {"slack_us", "slack us", Unit::number, Where::table},
                                  {"exposed_us", "exposed us", Unit::number, Where::table}}));
  return a;
}

Answer fsdp_memory(Rows rows) {
  return memory_of(rows_where(rows, [](const Json& r) {
    return word_is(r, "strategy", "fsdp") || word_is(r, "stage", "0") || word_is(r, "stage", "3");
  }));
}

constexpr std::string_view kZero = "kiln bench zero --size micro --ranks 2 --stage 0,1,2,3";
constexpr std::string_view kFsdp =
    "kiln bench fsdp --size micro --ranks 2 --link latency=50us,bandwidth=1GB/s";
constexpr Question kSharding[] = {
    {"3 (a)",
     "optimizer_state_sharding_accounting",
     "Memory with the optimizer's state sharded",
     {"bench zero"},
     memory_of,
     kZero},
    {"3 (b)",
     "optimizer_state_sharding_accounting",
     "Time with the optimizer's state sharded",
     {"bench zero"},
     time_of,
     kZero},
    {"3 (c)",
     "optimizer_state_sharding_accounting",
     "Against the ZeRO paper",
     {"bench zero"},
     against_paper,
     kZero},
};
constexpr Question kQuestions[] = {
    {"", "fsdp_accounting", "Memory with everything sharded", {"bench zero"}, fsdp_memory, kZero},
    {"", "fsdp_accounting", "Were the weights there in time?", {"bench fsdp"}, fsdp_time, kFsdp},
    {"", "fsdp_accounting", "Layer by layer", {"bench fsdp"}, fsdp_layers, kFsdp},
};

}  // namespace

Chapter sharding_chapter() { return {"sharding", "Optimizer state sharding", kSharding, "sharding"}; }
Chapter fsdp_chapter() { return {"fsdp", "Fully sharded data parallelism", kQuestions, "sharding"}; }

}  // namespace kiln
