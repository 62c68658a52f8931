#include "train/checkpoint/train_state.h"

#include <cmath>
#include <limits>

#include "base/json_reader.h"
#include "train/checkpoint/checkpoint_format.h"

namespace kiln {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// A step that a loss scale made overflow leaves sums that are not finite, which JSON cannot hold; the next
// step does not read them.
double kept(double value) { return std::isfinite(value) ? value : 0; }

Json to_json(const StepScalars& s) {
  return {{"attempt", s.attempt},
          {"lr", s.lr},
          {"step", s.step},
          {"bad_attempt", s.bad_attempt},
          {"beta1_power", s.rate1_power},
          {"beta2_power", s.rate2_power},
          {"loss", kept(s.loss)},
          {"square_sum", kept(s.square_sum)},
          {"grad_norm", kept(s.grad_norm)},
          {"clip", kept(s.clip)},
          {"loss_scale", s.loss_scale},
          {"good_steps", s.good_steps},
          {"skipped", s.skipped},
          {"skip", s.skip},
          {"unscale", s.unscale}};
}

StepScalars step_scalars(const JsonValue& json) {
  StepScalars s;
  s.attempt = json.at("attempt").integer(0, kMost);
  s.lr = json.at("lr").number();
  s.step = json.at("step").integer(0, kMost);
  s.bad_attempt = json.at("bad_attempt").integer(0, 0);  // a bad step is never saved
  s.rate1_power = json.at("beta1_power").number();
  s.rate2_power = json.at("beta2_power").number();
  s.loss = json.at("loss").number();
  s.square_sum = json.at("square_sum").number();
  s.grad_norm = json.at("grad_norm").number();
  s.clip = json.at("clip").number();
  s.loss_scale = json.at("loss_scale").number();
  s.good_steps = json.at("good_steps").integer(0, kMost);
  s.skipped = json.at("skipped").integer(0, kMost);
  s.skip = json.at("skip").integer(0, 1);
  s.unscale = json.at("unscale").number();
  return s;
}

// Runs from before there was a choice say nothing of AdamW, and those of today write the same bytes.
Json to_json(const RunIdentity& identity) {
  Json json = {{"precision", identity.precision}, {"tokenizer", identity.tokenizer}};
  if (identity.optimizer != RunIdentity().optimizer) json["optimizer"] = identity.optimizer;
  return json;
}

RunIdentity run_identity(const JsonValue& json) {
  RunIdentity identity{json.at("precision").string(), json.at("tokenizer").string()};
  if (json.has("optimizer")) identity.optimizer = json.at("optimizer").string();
  return identity;
}

}  // namespace

std::string train_state_json(const TrainState& s) {
  Json page = {{"format", kCheckpointFormat},
               {"scalars", to_json(s.scalars)},
               {"loader", to_json(s.loader)},
               {"identity", to_json(s.identity)},
               {"totals",
                {{"first_loss", s.totals.first_loss},
                 {"last_loss", s.totals.last_loss},
                 {"seconds", s.totals.seconds},
                 {"tokens", s.totals.tokens}}}};
  if (s.recompute != TrainState().recompute) page["recompute"] = s.recompute;
  return page.dump(2) + "\n";
}

TrainState parse_train_state(std::string_view text, std::string_view source) {
  Json document = parse_json(text, {.max_bytes = kMostBytes, .max_values = 1000}, source);
  migrate(document, CheckpointPart::state, source);
  const JsonValue root(document, source);
  TrainState s;
  s.scalars = step_scalars(root.at("scalars"));
  s.loader = loader_state(root.at("loader"));
  s.identity = run_identity(root.at("identity"));
  const JsonValue totals = root.at("totals");
  s.totals = {totals.at("first_loss").number(), totals.at("last_loss").number(),
              totals.at("seconds").number(), totals.at("tokens").integer(0, kMost)};
  if (root.has("recompute")) s.recompute = root.at("recompute").string();
  return s;
}

}  // namespace kiln
