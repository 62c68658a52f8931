// Options shared by the studies of `kiln bench`: the form of the page, and the spelling of values.
#pragma once

#include <string>

#include "autograd/precision.h"
#include "device/device.h"
#include "kiln/command.h"
#include "model/compile_mode.h"
#include "model/recompute.h"
#include "report/tables/study_page.h"
#include "studies/step/step.h"

namespace kiln::cli {

// Of --format table, md, csv, latex or json; --json is the last, and the two exclude each other.
PageFormat read_format(const std::string& format, bool json);
inline constexpr const char* kFormatHelp = "table, md, csv, latex or json (default table)";

// --format: with --json it is one too many.
void add_page_options(Command& command, PageFormat& format);
PageFormat page_format(const Command& command, PageFormat format, const CommonOptions& common);
// On stdout. A terminal gets the columns that fit, unless `wide` asks for all; a pipe or file always gets
// all.
void print_page(const StudyPage& page, PageFormat format, bool wide);

inline constexpr NamedValue<StepMode> kStepModes[] = {
    {"forward", StepMode::forward},
    {"forward-backward", StepMode::forward_backward, "forward_backward"},
    {"full", StepMode::full, "full_step"}};
inline constexpr NamedValue<GraphChoice> kGraphChoices[] = {
    {"auto", GraphChoice::automatic}, {"on", GraphChoice::on}, {"off", GraphChoice::off}};

TextForm<Precision> precision_form(const char* option = "--precision");
TextForm<Recompute> recompute_form(const char* option = "--recompute");
TextForm<CompileMode> compile_form(const char* option = "--compile");
// all, or a number of threads: 0 is all.
NumberRange<int> thread_range();
// What one step is, beside its model: --batch, --ctx, --grad-accum, --precision, --mode, --preset.
struct OneStep {
  int64_t& batch;
  int64_t& context;
  int& micro_steps;
  Precision& precision;
  StepMode& mode;
  std::string& preset;
};
void add_one_step(Options& options, const OneStep& step);
// baseline and optimized; `both` is one after the other.
TextForm<std::vector<std::string>> presets_form();
std::vector<std::string_view> preset_words();

// Error(usage or unavailable) where the device that was requested is not here.
Device device_here(const CommonOptions& common);

}  // namespace kiln::cli
