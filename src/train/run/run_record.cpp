#include "train/run/run_record.h"

#include "base/build_info.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "train/run/run_choice.h"
#include "train/run/train_options.h"

namespace kiln {
namespace {

// Keys of run.json that are older than the options' present names: files keep theirs.
struct OlderKey {
  std::string_view option, key;
};
constexpr OlderKey kOlderKeys[] = {
    {"train_bpe", "vocab"},  {"grad_accum", "accumulate"}, {"ctx", "context"},  {"weight_decay", "decay"},
    {"adam_beta1", "beta1"}, {"adam_beta2", "beta2"},      {"adam_eps", "eps"}, {"val_fraction", "held_out"},
    {"variant", "variants"}, {"grad_comm_dtype", "wire"}};
// How a run is computed, not which: they may differ from one part of a run to the next, and between ranks.
constexpr std::string_view kNotOfTheRun[] = {"threads", "tune"};

// Of the shape run.json has its own section, and a run with another one is refused.
constexpr std::string_view kShape[] = {"layers", "d_model", "d_ff", "heads", "kv_heads", "tie_embeddings"};

Json declared_json(const TrainRequest& r) {
  Options declared;
  TrainRequest copy = r;
  add_train_options(declared, copy);
  return declared.json();
}

// Every option that was declared, with what an unset one comes to.
Json options_json(const TrainRequest& r) {
  Json page = declared_json(r);
  for (const std::string_view key : kNotOfTheRun) page.erase(key);
  for (const auto& [option, key] : kOlderKeys) {
    const Json value = page.at(option);
    page.erase(option);
    page[key] = value;
  }
  const TextOptions text = text_of(r);
  const LrSchedule lr = schedule_of(r);
  page["tokenizer"] = text.tokenizer;
  page["vocab"] = text.train_vocab;
  page["model"] = model_text(r);
  page.erase("size");
  page["min_lr"] = lr.floor;
  page["warmup"] = lr.warmup;
  page["save_every"] = save_every_of(r);
  page["on_save_error"] = r.stop_on_save_error ? "stop" : "go-on";
  page["bucket_mb"] = r.bucket_auto ? Json("auto") : Json(r.bucket_mb);
  page["fsdp_prefetch"] = r.prefetch_auto ? Json("auto") : Json(r.fsdp_prefetch);
  page["canonical"] = chunks_of(r);
  page.erase("chunks");
  page["seed"] = r.seed;
  return page;
}

}  // namespace

std::string options_text(const TrainRequest& r) {
  return cat(options_json(r).dump(), " ", Json(r.inject).dump());
}

std::string run_config(const TrainRequest& r) {
  Json config = declared_json(r);
  config["seed"] = r.seed;
  config["device"] = r.device.str();
  return config.dump(2) + "\n";
}

std::string run_record(const TrainRequest& r, const TrainSetup& s, uint64_t generation) {
  const ModelConfig& m = s.model;
  Json options = options_json(r);
  for (const std::string_view key : kShape) options.erase(key);
  Json page = {
      {"options", options},
      {"model",
       {{"vocab", m.vocab},
        {"d_model", m.d_model},
        {"d_ff", m.d_ff},
        {"layers", m.layers},
        {"heads", m.heads},
        {"kv_heads", m.kv_heads},
        {"tied", m.tied},
        {"recompute", name_of(m.recompute)},
        {"compile", std::string(name_of(m.compile))},
        {"parameters", s.parameters}}},
      {"data", {{"train_tokens", s.train_tokens}, {"validation_tokens", s.validation_tokens}}},
      {"machine",
       {{"device", r.device.str()}, {"isa", s.isa}, {"threads", s.threads}, {"peak_flops", s.peak_flops}}},
      {"products", s.products.empty() ? Json() : Json("gemm.json")},
      {"build", {{"version", build_info().version}, {"id", build_info().build_id}}},
      {"choice", s.choice ? choice_json(r, *s.choice) : Json()},
      {"predicted_step_ms", s.predicted_step ? Json(1e3 * *s.predicted_step) : Json()},
      {"predicted_peak_bytes", s.memory.peak_total},
      {"tokens_per_step", s.tokens_per_step},
      {"step_flops", s.step_flops},
      {"generation", generation},
      {"first_step", s.first_step}};
  if (s.began > 0) page["began"] = s.began;
  if (!r.inject.empty()) page["inject"] = r.inject;
  return page.dump(2) + "\n";
}

double began_of(const std::string& record) {
  try {
    const Json page =
        parse_json(record, {.max_bytes = std::size_t{1} << 20, .max_values = 10'000}, "run.json");
    const JsonValue root(page, "run.json");
    return root.has("began") ? root.at("began").number() : 0;
  } catch (const Error&) {  // the checkpoints have what counts
    return 0;
  }
}

std::vector<std::string> changed_options(const std::string& before, const std::string& now) {
  std::vector<std::string> changes;
  const JsonLimits limits{.max_bytes = std::size_t{1} << 20, .max_values = 10'000};
  const Json old_page = parse_json(before, limits, "run.json"), page = parse_json(now, limits, "run.json");
  const JsonValue old_root(old_page, "run.json"), root(page, "run.json");
  if (!old_root.has("options")) return changes;
  const JsonValue options = root.at("options"), old_options = old_root.at("options");
  const Json otherwise = options_json(TrainRequest());  // of an option that is younger than that run
  for (const auto& [key, value] : options.object()) {
    const Json old =
        old_options.raw().contains(key) ? old_options.get(key).raw() : otherwise.value(key, Json());
    if (old != value) changes.push_back(cat(key, " was ", old.dump(), ", is ", value.dump()));
  }
  return changes;
}

}  // namespace kiln
