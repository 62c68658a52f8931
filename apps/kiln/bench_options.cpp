#include "kiln/bench_options.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/choice.h"
#include "base/error.h"
#include "device/gpu_info.h"
#include "device/require_gpu.h"
#include "report/tables/terminal_page.h"
#include "train/presets.h"

namespace kiln::cli {

PageFormat read_format(const std::string& format, bool json) {
  if (json && !format.empty())
    throw Error("--format and --json are both given; expected one of them", {}, ErrorKind::usage);
  if (json) return PageFormat::json;
  if (format.empty()) return PageFormat::text;
  constexpr std::array kFormats = {PageFormat::text, PageFormat::markdown, PageFormat::csv, PageFormat::latex,
                                   PageFormat::json};
  return kFormats[index_of("--format", format, {"table", "md", "csv", "latex", "json"})];
}

void add_page_options(Command& command, PageFormat& format) {
  static constexpr NamedValue<PageFormat> kFormats[] = {{"table", PageFormat::text},
                                                        {"md", PageFormat::markdown},
                                                        {"csv", PageFormat::csv},
                                                        {"latex", PageFormat::latex},
                                                        {"json", PageFormat::json}};
  command.opt("--format", format, kFormats, "{}").not_in_config();
}

PageFormat page_format(const Command& command, PageFormat format, const CommonOptions& common) {
  if (!common.json) return format;
  if (!command.options.find("--format")->given().empty())
    throw Error("--format and --json are both given; expected one of them", {}, ErrorKind::usage);
  return PageFormat::json;
}

void print_page(const StudyPage& page, PageFormat format, bool wide) {
  winsize window{};
  const bool fits = format == PageFormat::text && !wide && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 &&
                    window.ws_col > 0;
  const std::string text = fits ? terminal_text(page, window.ws_col) : written(page, format);
  std::fputs(text.c_str(), stdout);
}

TextForm<Precision> precision_form(const char* option) {
  return {[option](const std::string& text) { return parse_precision(option, text); },
          [](const Precision& p) { return std::string(name_of(p)); }};
}

TextForm<Recompute> recompute_form(const char* option) {
  return {[option](const std::string& text) { return parse_recompute(option, text); },
          [](const Recompute& r) { return name_of(r); }};
}

TextForm<CompileMode> compile_form(const char* option) {
  return {[option](const std::string& text) { return parse_compile(option, text); },
          [](const CompileMode& m) { return std::string(name_of(m)); }};
}

NumberRange<int> thread_range() { return {0, 1024}; }

std::vector<std::string_view> preset_words() {
  std::vector<std::string_view> words = preset_names();
  words.emplace_back("both");
  return words;
}

TextForm<std::vector<std::string>> presets_form() {
  return {[](const std::string& text) {
            std::vector<std::string_view> names = preset_names();
            std::reverse(names.begin(), names.end());  // baseline comes first
            std::vector<std::string> presets;
            for (const std::string& word : split_list(text)) {
              which_name("--preset", word, preset_words());
              for (const std::string_view name : names) {
                if ((word == "both" || word == name) &&
                    std::find(presets.begin(), presets.end(), name) == presets.end())
                  presets.emplace_back(name);
              }
            }
            return presets;
          },
          joined};
}

Device device_here(const CommonOptions& common) {
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  return Device::parse(common.device);
}

void add_one_step(Options& o, const OneStep& s) {
  o.opt("--batch", s.batch, between(1, 1 << 20), "micro-batch size");
  o.opt("--ctx,--context", s.context, between(1, 1 << 24), "sequence length");
  o.opt("--grad-accum", s.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  o.opt("--precision,--dtype", s.precision, precision_form(), "fp32, bf16, autocast, pure-bf16 or fp16");
  o.opt("--mode", s.mode, kStepModes, "forward, forward-backward, or full (with the update)");
  o.opt("--preset", s.preset, one_of({"optimized", "baseline"}), "optimized or baseline");
}

}  // namespace kiln::cli
