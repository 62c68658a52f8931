// Rows as commands store them, each with the figure that a test changes: what the chapters of a report are
// made of.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "rows/row_status.h"

namespace kiln::chapter_rows {

inline Json stored(const char* command, const Json& more) {
  Json row = {{"schema", 2},      {"command", command},
              {"status", "ok"},   {"gate", "passed"},
              {"build_id", "b1"}, {"host", {{"device_name", "Machine"}}},
              {"device", "cpu"},  {"time", "2026-01-02T03:04:05Z"}};
  row.update(more);
  return row;
}

inline Json step(const char* dtype, double ms, double params = 1e6) {
  return stored("bench step", {{"size", params > 1e6 ? "small" : "nano"},
                               {"mode", "full"},
                               {"dtype", dtype},
                               {"batch", 4},
                               {"ctx", 64},
                               {"preset", "baseline"},
                               {"params", params},
                               {"warmups", 5},
                               {"samples", 8},
                               {"p50_ms", ms},
                               {"mean_ms", ms},
                               {"variation", 0.02},
                               {"verdict", "stable"},
                               {"forward_ms", ms / 4},
                               {"backward_ms", ms / 2},
                               {"raw_samples", ablation_rows::samples(ms)},
                               {"phases", {{"forward", {{"mean_ms", ms / 4}, {"std_ms", 0.1}}}}}});
}

inline Json warmup(int warmups, double mean) {
  return stored("bench warmup", {{"size", "nano"},
                                 {"ctx", 64},
                                 {"dtype", "fp32"},
                                 {"warmups", warmups},
                                 {"mean_ms", mean},
                                 {"std_ms", mean / 10},
                                 {"steps_ms", {mean, mean}},
                                 {"raw_samples", {mean, mean}},
                                 {"p50_ms", mean},
                                 {"first_step", {{"excess_ms", 30.0}, {"steady_ms", 10.0}}}});
}

inline Json profile(double ms) {
  const Json kernel = {
      {"name", "linear packed"}, {"group", "matmul"}, {"calls", 9}, {"ms", ms}, {"share", 0.7}};
  const Json other = {
      {"name", "rope fused"}, {"group", "elementwise"}, {"calls", 2}, {"ms", ms / 9}, {"share", 0.05}};
  return stored("profile",
                {{"size", "nano"},
                 {"dtype", "bf16"},
                 {"ctx", 64},
                 {"batch", 1},
                 {"preset", "baseline"},
                 {"traced_ms", ms},
                 {"p50_ms", ms},
                 {"explanation", "Traced and timed agree."},
                 {"top_kernel", {{"forward", kernel}, {"forward_backward", kernel}, {"same", true}}},
                 {"not_matmul", {{"above", 0.01}, {"kernels", Json::array({other})}}},
                 {"matmul_share",
                  {{"forward_alone", {{"total_ms", ms}, {"share", 0.7}}},
                   {"step", {{"total_ms", 3 * ms}, {"share", 0.6}}}}},
                 {"attention",
                  {{"softmax", {{"part", "softmax"}, {"flops", 1e6}, {"bytes", 1e6}, {"of_time", 0.4}}},
                   {"softmax_over_products_time", 0.8},
                   {"softmax_over_products_flops", 0.05}}},
                 {"launches", {{"forward", 21}, {"step", 46}, {"mean_gap_us", 1.5}}},
                 {"dispatch", {{"idle_share", 0.17}, {"host_share", 0.16}, {"verdict", "launch-bound"}}}});
}

inline Json memory(const char* phase, const char* dtype, double mib) {
  return stored("memory", {{"size", "nano"},
                           {"phase", phase},
                           {"dtype", dtype},
                           {"ctx", 64},
                           {"batch", 4},
                           {"preset", "baseline"},
                           {"recompute", "none"},
                           {"measured_peak_bytes", mib * 0x1p20},
                           {"predicted_peak_bytes", mib * 0x1p20},
                           {"predicted_peak_by_tag", {{"param", 0x1p20}, {"activation", 0x1p21}}},
                           {"residual_stream_bytes", 0x1p18},
                           {"largest", Json::array({{{"bytes", mib * 0x1p18},
                                                     {"count", 3},
                                                     {"op", "linear"},
                                                     {"tag", "activation"},
                                                     {"line", "block.cpp:1"}}})},
                           {"files", {"memory/a.svg", "memory/a.html"}}});
}

inline Json cell(const char* variant, int seq, double ms, bool causal = false) {
  return stored("bench attention", {{"dtype", "fp32"},
                                    {"causal", causal},
                                    {"packed", false},
                                    {"batch", 8},
                                    {"heads", 1},
                                    {"seq", seq},
                                    {"d", 64},
                                    {"variant", variant},
                                    {"pass", "forward"},
                                    {"p50_ms", ms},
                                    {"tflops", 1 / ms},
                                    {"of_roofline", 0.5},
                                    {"relative_error", 1e-7},
                                    {"allowed_error", 2e-7},
                                    {"before_backward_bytes", 1.0 * seq * seq}});
}

inline Json ddp(const char* form, double ms, double bucket = 0) {
  Json row = stored("bench ddp", {{"form", form},
                                  {"size", "nano"},
                                  {"ranks", 2},
                                  {"transport", "threads"},
                                  {"link", "none"},
                                  {"dtype", "fp32"},
                                  {"p50_ms", ms},
                                  {"calls", form == std::string("flat") ? 1 : 12},
                                  {"gradient_bytes", 0x1p20},
                                  {"sent_bytes", 0x1p20},
                                  {"communication_ms", ms / 4},
                                  {"communication_share", 0.25},
                                  {"hidden_share", 0.5},
                                  {"exposed_ms", ms / 8},
                                  {"compute_ms", ms / 2},
                                  {"predicted_ms", ms}});
  if (bucket > 0) row["bucket_mb"] = bucket;
  return row;
}

inline Json reduce(const char* size, double bytes, double ms) {
  return stored("bench allreduce", {{"transport", "threads"},
                                    {"algorithm", "direct"},
                                    {"ranks", 2},
                                    {"dtype", "fp32"},
                                    {"size", size},
                                    {"bytes", bytes},
                                    {"p50_ms", ms},
                                    {"bus_gb_per_s", 8.5},
                                    {"bound", "bandwidth"}});
}

inline Json zero(const char* stage, double ms, double state) {
  return stored("bench zero", {{"stage", stage},
                               {"strategy", stage == std::string("3") ? "fsdp" : "zero1"},
                               {"size", "nano"},
                               {"ranks", 2},
                               {"dtype", "fp32"},
                               {"transport", "threads"},
                               {"p50_ms", ms},
                               {"state_bytes", state * 0x1p20},
                               {"theory_state_bytes", state * 0x1p20},
                               {"state_saved", 1 - state / 16},
                               {"sent_bytes", 0x1p20},
                               {"theory_sent_bytes", 0x1p20},
                               {"paper_volume", 2.0}});
}

inline Json fsdp(int in_time) {
  return stored("bench fsdp", {{"size", "nano"},
                               {"ranks", 2},
                               {"prefetch", 1},
                               {"p50_ms", 5.0},
                               {"gathers", 34},
                               {"gathers_in_time", in_time},
                               {"communication_ms", 2.0},
                               {"gathers_exposed_ms", 1.0},
                               {"layers", Json::array({{{"layer", "layers.0"},
                                                        {"phase", "forward"},
                                                        {"gathers", 4},
                                                        {"in_time", 2},
                                                        {"exposed_us", 34.0 - in_time}}})}});
}

inline Json compare(double measured) {
  const Json causes =
      Json::array({{{"name", "dispatch"}, {"ms", 2.0}, {"evidence", "the host was between calls"}}});
  return stored("compare", {{"size", "nano"},
                            {"dtype", "bf16"},
                            {"preset", "optimized"},
                            {"p50_ms", measured},
                            {"roofline_ms", 1.0},
                            {"predicted_ms", 3.0},
                            {"measured_ms", measured},
                            {"gap_ms", measured - 1},
                            {"of_roofline", 1 / measured},
                            {"causes", causes},
                            {"by_op", Json::array({{{"op", "linear"},
                                                    {"variant", "packed"},
                                                    {"pass", "forward"},
                                                    {"gap_ms", measured / 2},
                                                    {"roofline_ms", 1.0},
                                                    {"causes", causes}}})}});
}

inline Json compiled(Json row, const char* how) {
  row["compile"] = how;
  return row;
}

inline Json precision(const char* study, const Json& more) {
  Json row = stored(study, more);
  row["gate"] = "not-verified";
  return row;
}
inline Json sums(double sum) {
  return precision("precision accumulate", {{"count", 1000},
                                            {"value", 0.01},
                                            {"exact", 10.0},
                                            {"rows", Json::array({{{"label", "fp16 += fp16"},
                                                                   {"method", "plain"},
                                                                   {"sum", sum},
                                                                   {"error", sum - 10},
                                                                   {"limited_by", "spacing 0.0078"}}})}});
}
inline Json toy(const char* logits) {
  return precision(
      "precision toymodel",
      {{"runs", Json::array({{{"precision", "autocast"},
                              {"compute", "bf16"},
                              {"tensors", Json::array({{{"name", "logits"}, {"dtype", logits}},
                                                       {{"name", "loss"}, {"dtype", "fp32"}}})}}})}});
}
inline Json norm(const char* answer) {
  return precision(
      "precision layernorm",
      {{"answer_fp16", answer}, {"answer_bf16", "is fp32 still needed under bf16? yes, for digits"}});
}
inline Json micro_batches(double error) {
  return precision(
      "precision accumulation",
      {{"rows",
        Json::array(
            {{{"precision", "autocast"}, {"grad", "fp32"}, {"micro_batches", 1}, {"error", 1e-3}},
             {{"precision", "autocast"}, {"grad", "fp32"}, {"micro_batches", 64}, {"error", error}}})}});
}
inline Json scaling(double exponent) {
  return precision("memory scaling",
                   {{"size", "nano"},
                    {"dtype", "bf16"},
                    {"series", Json::array({{{"attention", "naive"}, {"exponent_at_end", exponent}}})}});
}
inline Json recompute(double mib) {
  return precision(
      "memory recompute-sweep",
      {{"size", "nano"},
       {"ctx", 64},
       {"points",
        Json::array(
            {{{"recompute", "none"}, {"predicted_peak_bytes", 0x1p24}},
             {{"recompute", "block"}, {"predicted_peak_bytes", mib * 0x1p20}, {"flops_ratio", 1.33}}})}});
}
inline Json training(double last) {
  return precision("train", {{"run", "demo"},
                             {"first_loss", 5.5},
                             {"last_loss", last},
                             {"last_step", 60},
                             {"steps", {1, 60}},
                             {"losses", {5.5, last}}});
}
inline Json layout(const char* name, double ms, double predicted) {
  Json row = stored(
      "plan",
      {{"layout", name}, {"ranks", 2}, {"strategy", name}, {"p50_ms", ms}, {"predicted_ms", predicted}});
  row["gate"] = "passed";
  return row;
}

// Rows that answer a question, others that answer it otherwise, and what each sentence must then have.

}  // namespace kiln::chapter_rows
