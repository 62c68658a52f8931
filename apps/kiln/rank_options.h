// Options shared by studies of several ranks, the spelling of links and tensor sizes, and
// running such a study.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "model/model_options.h"
#include "studies/ranks/rank_steps.h"

namespace kiln::cli {

// latency=50us,bandwidth=1GB/s; nothing is no link.
TextForm<std::optional<LinkModel>> link_form(const char* option = "--link");
// 100MB, 1GiB, 4096: at least a byte.
TextForm<Bytes> bytes_form(const char* option);
// One of these words: of a list of them, list_form(word_form(...)).
TextForm<std::string> one_of_form(const char* option, std::vector<std::string_view> known);
TextForm<bool> on_off_form(const char* option);
// In 10^6 bytes; `automatic`, which is a number no bucket has, for auto.
TextForm<double> bucket_form(double least, double automatic);

// What a study is asked apart from its request.
struct RanksAsked {
  ModelOptions model = {.sizes = {"micro"}};
  std::string charts = "none";
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

bool was_given(const Command& command, std::string_view option);

// The model, --transport, --link, --ctx, --precision, --warmup, --steps and --threads. `least_warmups`: some
// studies learn from the first steps.
void add_ranks_options(Command& command, RanksStudy& study, RanksAsked& asked, int least_warmups);
// --batch and --batch-per-rank, of studies with several numbers of ranks; and that not both are given.
void add_batch_options(Command& command, RanksStudy& study);
void check_batch_options(const Command& command);
// --export, `drawn` being what, and those of every bench: --format and --grid's.
void add_ranks_page_options(Command& command, RanksAsked& asked, const char* drawn);
// The model, the seed, and the transport of the processes that were started, if any were.
void finish_ranks_study(const Command& command, const CommonOptions& common, const RanksAsked& asked,
                        RanksStudy& study);

// Runs a study that can be stopped, with its progress in the terminal.
template <class Request, class Report>
Report watched(Request& request,
               Report (*study)(const Request&, const std::function<void(const std::string&)>&)) {
  const StopOnSignals signals;
  const BenchProgress progress;
  request.stop = [] { return stop_requested().load(); };
  return study(request, [&](const std::string& text) { progress(text); });
}

}  // namespace kiln::cli
