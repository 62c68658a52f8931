// All-reduce on its own, and the four forms of data parallelism that use it.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/plain_number.h"
#include "studies/calc/calc.h"
#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

// What rows of two ranks' steps must share to be compared.
const std::initializer_list<std::string_view> kRun = {"size",      "dtype", "batch",      "ctx",  "ranks",
                                                      "transport", "link",  "link_model", "wire", "preset"};

std::string run_name(const Json& row) {
  return fmt::format(
      "{} on {} ranks ({}{})", text_at(row, "size"), text_at(row, "ranks"), text_at(row, "transport"),
      word_is(row, "link", "modelled") ? fmt::format(", modelled link {}", text_at(row, "link_model")) : "");
}

Answer all_reduce(Rows rows) {
  const std::vector<Json> timed = timed_rows(rows);
  if (timed.empty()) return {};
  Answer a;
  for (const std::vector<Json>& group : groups_by(timed, {"transport", "algorithm", "ranks", "dtype"})) {
    const Json *small = least(group, "bytes"), *large = greatest(group, "bytes");
    if (small == nullptr || small == large) continue;
    a.sentences.push_back(
        fmt::format("{} ranks over {} ({}, {}): from {} in {} to {} in {}, {} GB/s of bus bandwidth at the "
                    "end; bound by {} there.",
                    text_at(*small, "ranks"), text_at(*small, "transport"), text_at(*small, "algorithm"),
                    text_at(*small, "dtype"), text_at(*small, "size"), ms_text(*number_at(*small, "p50_ms")),
                    text_at(*large, "size"), ms_text(*number_at(*large, "p50_ms")),
                    figure_at(*large, "bus_gb_per_s"), text_at(*large, "bound")));
  }
  a.tables.push_back(facts_table("", timed,
                                 {{"transport", "transport", Unit::text, Where::table},
                                  {"algorithm", "algorithm", Unit::text, Where::table},
                                  {"ranks", "ranks", Unit::text, Where::table},
                                  {"size", "size", Unit::text, Where::table},
                                  {"p50_ms", "ms, median", Unit::milliseconds, Where::table},
                                  {"rank_min_ms", "rank min", Unit::milliseconds, Where::table},
                                  {"rank_max_ms", "rank max", Unit::milliseconds, Where::table},
                                  {"algorithm_gb_per_s", "alg GB/s", Unit::number, Where::table},
                                  {"bus_gb_per_s", "bus GB/s", Unit::number, Where::table},
                                  {"bound", "bound by", Unit::text, Where::table}}));
  a.charts = curve(timed, {.name = "allreduce",
                           .title = "All-reduce: time over size",
                           .below = "median of the slowest rank",
                           .x_label = "bytes",
                           .y_label = "ms",
                           .x = "bytes",
                           .y = "p50_ms",
                           .by = {"transport", "algorithm", "ranks"}});
  if (a.sentences.empty())
    a.sentences.push_back(fmt::format("{} were timed.", plural(timed.size(), "all-reduce")));
  return a;
}

std::string over_naive(const Json& row) { return times(number_at(row, "speedup_over_naive").value_or(0)); }

PageTable forms_table(Rows rows) {
  return facts_table("", rows,
                     {{"form", "form", Unit::text, Where::table},
                      {"size", "size", Unit::text, Where::table},
                      {"ranks", "ranks", Unit::text, Where::table},
                      {"link_model", "link", Unit::text, Where::table},
                      {"bucket_mb", "bucket MB", Unit::number, Where::table},
                      {"p50_ms", "step ms", Unit::milliseconds, Where::table},
                      {"speedup_over_naive", "over naive", Unit::text, Where::table, {}, over_naive},
                      {"calls", "calls", Unit::count, Where::table},
                      {"communication_ms", "comm ms", Unit::milliseconds, Where::table},
                      {"communication_share", "of step", Unit::percent, Where::table},
                      {"hidden_share", "hidden", Unit::percent, Where::table},
                      {"exposed_ms", "exposed ms", Unit::milliseconds, Where::table},
                      {"predicted_ms", "predicted ms", Unit::milliseconds, Where::table}});
}

const Json* form_in(const std::vector<Json>& run, std::string_view form) {
  const Json* found = nullptr;
  for (const Json& row : run)
    if (word_is(row, "form", form) &&
        (found == nullptr || number_at(row, "p50_ms") < number_at(*found, "p50_ms")))
      found = &row;
  return found;
}

Answer naive_form(Rows rows) {
  Answer a;
  std::vector<Json> shown;
  for (const std::vector<Json>& run : groups_by(timed_rows(rows), kRun))
    if (const Json* naive = form_in(run, "naive")) {
      a.sentences.push_back(
          fmt::format("{}: {} a step, {} of it in {} sums of gradients one after another ({}).",
                      run_name(*naive), ms_text(*number_at(*naive, "p50_ms")),
                      percent_text(number_at(*naive, "communication_share").value_or(0)),
                      text_at(*naive, "calls"), ms_text(number_at(*naive, "communication_ms").value_or(0))));
      shown.push_back(*naive);
    }
  if (!shown.empty()) a.tables.push_back(forms_table(shown));
  return a;
}

// One form against another, wherever both ran alike.
Answer against(Rows rows, std::string_view form, std::string_view other) {
  Answer a;
  std::vector<Json> shown;
  for (const std::vector<Json>& run : groups_by(timed_rows(rows), kRun)) {
    const Json *own = form_in(run, form), *before = form_in(run, other);
    if (own == nullptr || before == nullptr) continue;
    a.sentences.push_back(fmt::format(
        "{}: {} {} as fast as {} (calls: {} in place of {}; {} of communication hidden, {} by {}).",
        run_name(*own), form, times(ratio_at(*before, *own, "p50_ms")), other, text_at(*own, "calls"),
        text_at(*before, "calls"), percent_text(number_at(*own, "hidden_share").value_or(0)),
        percent_text(number_at(*before, "hidden_share").value_or(0)), other));
    shown.push_back(*before);
    shown.push_back(*own);
  }
  if (!shown.empty()) a.tables.push_back(forms_table(shown));
  return a;
}

Answer flat_form(Rows rows) { return against(rows, "flat", "naive"); }
Answer overlap_form(Rows rows) { return against(rows, "overlap", "naive"); }
Answer bucketed_form(Rows rows) { return against(rows, "bucketed", "overlap"); }

Answer overlap_pictures(Rows rows) {
  const std::vector<Json> timed = timed_rows(rows);
  Answer a;
  for (const std::vector<Json>& run : groups_by(timed, kRun)) {
    const Json *naive = form_in(run, "naive"), *overlap = form_in(run, "overlap");
    if (naive == nullptr || overlap == nullptr) continue;
    a.sentences.push_back(fmt::format("{}: exposed communication is {} by naive and {} by overlap.",
                                      run_name(*naive), ms_text(number_at(*naive, "exposed_ms").value_or(0)),
                                      ms_text(number_at(*overlap, "exposed_ms").value_or(0))));
  }
  if (!a.empty()) a.files.emplace_back("ddp/overlap.svg");
  return a;
}

Answer buckets(Rows rows) {
  Answer a;
  for (const std::vector<Json>& run : groups_by(timed_rows(rows), kRun)) {
    const std::vector<Json> own =
        rows_where(run, [](const Json& r) { return word_is(r, "form", "bucketed"); });
    const Json *best = least(own, "p50_ms"), *worst = greatest(own, "p50_ms"),
               *predicted = least(own, "predicted_ms");
    if (best == nullptr || best == worst) continue;
    a.sentences.push_back(fmt::format(
        "{}: of {} bucket sizes {} MB is fastest ({}), {} MB slowest ({}){}.", run_name(*best), own.size(),
        figure_at(*best, "bucket_mb"), ms_text(*number_at(*best, "p50_ms")), figure_at(*worst, "bucket_mb"),
        ms_text(*number_at(*worst, "p50_ms")),
        predicted == nullptr || number_at(*predicted, "predicted_ms") ==
                                    number_at(*greatest(own, "predicted_ms"), "predicted_ms")
            ? "; all were predicted alike"
        : predicted == best ? "; the prediction had said so"
                            : fmt::format("; predicted was {} MB", figure_at(*predicted, "bucket_mb"))));
    a.tables.push_back(forms_table(own));
    for (AnswerChart& c : curve(own, {.name = fmt::format("buckets-{}", a.tables.size()),
                                      .title = "Step time over the bucket size",
                                      .below = run_name(*best),
                                      .x_label = "bucket, MB",
                                      .y_label = "ms",
                                      .x = "bucket_mb",
                                      .y = "p50_ms",
                                      .by = {"form"},
                                      .floor = "predicted_ms",
                                      .floor_name = "predicted"}))
      a.charts.push_back(std::move(c));
  }
  return a;
}

// The equation, with w and o fitted to the stored all-reduces.
Answer optimal_bucket(Rows rows) {
  const std::vector<Json> steps = rows_where(timed_rows(rows), [](const Json& r) {
    return word_is(r, "command", "bench ddp") && number_at(r, "gradient_bytes") &&
           !word_is(r, "link", "modelled");
  });
  if (steps.empty()) return {};
  const Json& step = steps.back();
  BucketRequest q;
  q.bytes = *number_at(step, "gradient_bytes");
  q.ranks = static_cast<int>(number_at(step, "ranks").value_or(2));
  q.place = {.folder = "the stored rows",
             .transport = text_at(step, "transport"),
             .device = text_at(step, "device")};
  try {
    const BucketReport report = calc_bucket(q, rows);
    Answer a;
    a.sentences.push_back(
        "A step pays s / (n w) for the bytes that are left after backward and n o for its calls: overhead(n) "
        "= s / (n w) + n o, least at n = sqrt(s / (w o)), with buckets of sqrt(s w o).");
    a.sentences.push_back(
        fmt::format("With w = {} GB/s and o = {} us, {}, the best bucket of {} MB of gradients is {} MB.",
                    plain(report.cost.w / 1e9), plain(1e6 * report.cost.o), report.cost_from,
                    plain(q.bytes / 1e6), plain(report.best.bytes / 1e6)));
    if (const BucketRow* fastest = report.fastest())
      a.sentences.push_back(
          fmt::format("Of the sizes that were measured {} MB was fastest.", plain(fastest->bucket / 1e6)));
    return a;
  } catch (const Error&) {
    return {};  // nothing is known of sums between these ranks
  }
}

Answer accounting(Rows rows) {
  Answer a;
  for (const std::vector<Json>& run : groups_by(timed_rows(rows), {"size", "ranks", "dtype", "wire"})) {
    const Json& row = run.front();
    const auto gradients = number_at(row, "gradient_bytes"), sent = number_at(row, "sent_bytes"),
               ranks = number_at(row, "ranks");
    if (!gradients || !sent || !ranks || *gradients <= 0 || *ranks < 2) continue;
    const double theory = 2 * (*ranks - 1) / *ranks * *gradients;
    a.sentences.push_back(fmt::format(
        "{}: each rank sends {} a step for {} of gradients; a ring's 2 (N-1)/N S is {} ({}).", run_name(row),
        bytes_text(*sent), bytes_text(*gradients), bytes_text(theory),
        std::abs(*sent / theory - 1) < 0.01 ? "the same" : fmt::format("{} of it", times(*sent / theory))));
  }
  return a;
}

constexpr std::string_view kForms =
    "kiln bench ddp --size micro --ranks 2 --form naive,flat,overlap,bucketed";
constexpr Question kCollectives[] = {
    {"2.1",
     "distributed_communication_single_node",
     "All-reduce on one node",
     {"bench allreduce"},
     all_reduce,
     "kiln bench allreduce --bytes 1MB,10MB,100MB --ranks 2,4"},
};
constexpr Question kQuestions[] = {
    {"2.2", "naive_ddp", "Naive data parallelism", {"bench ddp"}, naive_form, kForms},
    {"", "naive_ddp_benchmarking", "What naive data parallelism costs", {"bench ddp"}, accounting, kForms},
    {"2.3.1",
     "minimal_ddp_flat_benchmarking",
     "Fewer calls: flat gradients",
     {"bench ddp"},
     flat_form,
     kForms},
    {"2.3.2",
     "ddp_overlap_individual_parameters",
     "Overlap with backward",
     {"bench ddp"},
     overlap_form,
     kForms},
    {"2.3.2 (b)",
     "ddp_overlap_individual_parameters_benchmarking",
     "Pictures of both",
     {"bench ddp"},
     overlap_pictures,
     kForms},
    {"2.3.3", "ddp_overlap_bucketed", "Buckets of gradients", {"bench ddp"}, bucketed_form, kForms},
    {"2.3.3 (a)",
     "ddp_bucketed_benchmarking",
     "Bucket sizes",
     {"bench ddp"},
     buckets,
     "kiln bench ddp --size micro --ranks 2 --form bucketed --bucket-mb 0.1,1,10"},
    {"2.3.3 (b)",
     "ddp_bucketed_benchmarking",
     "The best bucket, by equation",
     {"bench ddp", "bench allreduce"},
     optimal_bucket,
     "kiln bench allreduce --bytes 1MB,10MB --ranks 2"},
};

}  // namespace

Chapter collectives_chapter() { return {"collectives", "Collectives", kCollectives, "ddp"}; }
Chapter data_parallel_chapter() { return {"data-parallel", "Data parallelism", kQuestions, "ddp"}; }

}  // namespace kiln
