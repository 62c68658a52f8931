// What a rank does about faults: those that --inject asks for, and those that are noticed.
#include <filesystem>

#include "base/error.h"
#include "dist/launch/rank_agreement.h"
#include "dist/launch/transports.h"
#include "train/run/bad_step_dump.h"
#include "train/run/train_options.h"
#include "train/run/training_rank.h"

namespace kiln {

void TrainingRank::inject_faults() {
  if (request_.inject.empty()) return;
  const std::vector<Injection> all = parse_injections(request_.inject);
  const bool threads = comm_.world() > 1 && !find_transport(comm_.transport()).processes;
  for (const Injection& i : all) {
    if (first_) view_.on_warning(cat("FAULT INJECTION IS ON, because --inject asks for it: ", i.text));
    if (threads && i.kind == FaultKind::stall && i.seconds == 0)
      throw Error(cat("--inject ", i.text, ": ranks that are threads cannot be stopped one by one"),
                  "say how long with seconds=N, or start processes: kiln run --nproc N -- train ...",
                  ErrorKind::usage);
  }
  injector_ = std::make_shared<Injector>(all, ctx_);
  injector_->at(FaultPoint::init);
}

// Not on several ranks in one file.
void TrainingRank::watch_memory() {
  if (request_.oom_snapshot == "off") return;
  namespace fs = std::filesystem;
  fs::path path = fs::path(request_.run) / cat("out-of-memory-rank-", comm_.rank(), ".pickle");
  if (!request_.oom_snapshot.empty()) {
    path = request_.oom_snapshot;
    if (comm_.world() > 1)
      path.replace_filename(cat(path.stem().string(), "-rank-", comm_.rank(), path.extension().string()));
  }
  memory_watch_.emplace(ctx_, path.string());
}

void TrainingRank::on_bad_step(const BadStep& bad) {
  if (bad.skipped && first_)
    view_.on_warning(cat("STEP ", bad.step, " WAS SKIPPED, its update left out: it was not finite: ",
                         bad.what, "; ", bad.in_row, " in a row, --max-skips is ", request_.max_skips));
  if (request_.on_non_finite != OnNonFinite::dump) return;
  try {
    const std::string folder = dump_bad_step(request_.run, comm_.rank(), bad);
    view_.on_warning(cat("what step ", bad.step, " was made of is in ", folder));
  } catch (const Error& e) {  // the step itself must be reported
    view_.on_warning(cat("step ", bad.step, " could not be dumped: ", e.what()));
  }
}

void TrainingRank::report_injections() {
  if (!injector_) return;
  injector_->at(FaultPoint::finalize);
  std::string mine;
  for (const std::string& text : injector_->not_happened()) mine += cat(mine.empty() ? "" : " ", text);
  for (const std::string& text : all_gather_text(ctx_, comm_, mine, "faults that did not happen")) {
    if (first_ && !text.empty()) view_.on_warning(cat("injected faults that did not happen: ", text));
  }
}

void TrainingRank::add_hooks(RunOptions& options) {
  if (injector_) options.hooks.push_back(injector_.get());
  // The first rank traces; the others only wait for the same steps, so that all pause alike.
  if (request_.trace.first > 0) {
    TraceHook::Deliver deliver;
    if (first_) deliver = [this](const RunTrace& trace) { view_.on_trace(trace); };
    options.hooks.push_back(&trace_.emplace(ctx_, comm_.world() > 1 ? &place_->data() : nullptr,
                                            request_.trace, std::move(deliver)));
  }
  if (request_.check_replicas > 0)
    options.hooks.push_back(&replicas_.emplace(ctx_, place_->data(),
                                               replicated_tensors(model_->params(), step_->optimizer()),
                                               request_.check_replicas, options.save_every));
  // A GPU's host does not wait for its steps, and would measure nothing.
  if (comm_.world() > 1 && ctx_.device().type == DeviceType::cpu) {
    std::vector<const Communicator*> calls = {&place_->data()};
    if (place_->tensor() != nullptr) calls.push_back(place_->tensor());
    options.hooks.push_back(&stragglers_.emplace(ctx_, comm_, calls, warn_));
  }
}

SaveOptions TrainingRank::save_options() const {
  return {request_.keep, request_.stop_on_save_error, injector_.get(), request_.async_save};
}

}  // namespace kiln
