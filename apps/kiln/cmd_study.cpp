// kiln study: the sweeps of a whole course, one after another, into one folder.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "base/child_process.h"
#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_options.h"
#include "studies/place.h"
#include "kiln/cmd.h"
#include "base/one_line.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "studies/course/render.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string study, scale = "auto", command, timeout = "600";
  std::optional<std::string> only;
  bool list = false, fresh = false;
};

// Asked in a copy of this process: one that has started CUDA holds memory its parts may want.
void find_device(const CommonOptions& common, StudyRequest& r) {
  const std::string found = in_a_copy([&] {
    std::string why_no_gpu;
    const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
    require_gpu(common.device, gpus, why_no_gpu);
    const Device device = Device::parse(common.device);
    return fmt::format("{}\n{}", device.str(), device_name(device));
  });
  r.device = found.substr(0, found.find('\n'));
  r.device_name = found.substr(found.find('\n') + 1);
  r.on_meta = r.device.starts_with("meta");
}

std::vector<std::string> read_only(const Typed& t, const Study& study) {
  std::vector<std::string> names;
  std::vector<std::string_view> known;
  for (const StudyPart& part : study.parts) known.push_back(part.name);
  if (t.only) {
    names = read_list<std::string>(*t.only, [&](const std::string& word) {
      index_of("--only", word, known);
      return word;
    });
  }
  if (t.command.empty()) return names;
  std::vector<std::string> these;
  for (const StudyPart& part : study.parts) {
    const bool wanted = names.empty() || std::find(names.begin(), names.end(), part.name) != names.end();
    if (wanted && fmt::format("{} ", part.command).starts_with(fmt::format("{} ", t.command)))
      these.emplace_back(part.name);
  }
  if (these.empty())
    throw Error(fmt::format("no part of study {} is `kiln {}`", study.name, t.command),
                fmt::format("its parts are {}", fmt::join(known, ", ")), ErrorKind::usage);
  return these;
}

StudyRequest read_request(const Typed& t, const CommonOptions& common) {
  StudyRequest r;
  const Study& study = find_study(t.study);
  r.study = study.name;
  r.parts = {study.parts.begin(), study.parts.end()};
  r.only = read_only(t, study);
  r.fresh = t.fresh;
  r.out = common.out;
  r.seed = fmt::format("{}", common.seed);
  read_number<double>("--part-timeout", t.timeout, 0.001, 1e7, r.timeout);
  const std::size_t scale = index_of("--scale", t.scale, {"auto", "full", "tiny"});
  find_device(common, r);
  r.scale = scale == 2 || (scale == 0 && r.device.starts_with("cpu")) ? StudyScale::tiny : StudyScale::full;
  return r;
}

constexpr double kGrace = 20;  // seconds for a part that is ended to store its rows: a large step is long

PartRun run_part(const std::vector<std::string>& words, const std::string& folder, double timeout) {
  std::vector<std::string> all = {kOwnProgram};
  all.insert(all.end(), words.begin(), words.end());
  const std::string printed = (std::filesystem::path(folder) / "page.txt").string();
  const ChildResult child = run_child(all, {.seconds = timeout,
                                            .stop = [] { return stop_requested().load(); },
                                            .grace = kGrace,
                                            .output = printed});
  PartRun run{
      child.status, child.signal, child.timed_out, child.stopped, child.seconds, last_word(child.errors), {}};
  std::ifstream file(printed, std::ios::binary);
  run.page.assign(std::istreambuf_iterator<char>(file), {});
  file.close();
  std::error_code ignored;
  std::filesystem::remove(printed, ignored);
  return run;
}

void run(const Typed& t, const CommonOptions& common) {
  const StudyRequest request = read_request(t, common);
  if (t.list) {
    std::fputs((common.json ? study_list_json(request) : study_list_text(request)).c_str(), stdout);
    return;
  }
  StudyReport report;
  {
    const StopOnSignals signals;
    report = run_study(request, {[&](const std::vector<std::string>& words, const std::string& folder) {
                                   return run_part(words, folder, request.timeout);
                                 },
                                 [](const std::string& line) {
                                   if (!line.empty()) fmt::print(stderr, "{}\n", line);
                                 },
                                 [] { return stop_requested().load(); }});
  }
  std::fputs((common.json ? study_json(report) : study_text(report)).c_str(), stdout);
  using Status = PartReport::Status;
  const bool any_done = std::any_of(report.parts.begin(), report.parts.end(),
                                    [](const PartReport& p) { return p.asked && p.status == Status::done; });
  for (const PartReport& p : report.parts) {
    if (!p.asked) continue;
    if (p.status == Status::failed || p.status == Status::timed_out)
      throw Error(fmt::format("{}: {}", p.part.name, p.reason), "the other parts are kept; run it again");
    if (p.status == Status::unavailable && !any_done)
      throw Error(fmt::format("{}: {}", p.part.name, p.reason), {}, ErrorKind::unavailable);
  }
}

}  // namespace

CommandBody add_study(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  app.add_option("NAME", t->study, "2025 or 2026")->type_name("");
  app.add_option("--scale", t->scale,
                 "full, tiny: smaller models and fewer steps, or auto (default): tiny on the CPU")
      ->type_name("NAME");
  app.add_flag("--list", t->list, "Show the command lines, run nothing");
  app.add_option("--only", t->only, "These parts alone")->type_name("PART,...");
  app.add_option("--command", t->command,
                 "The parts of one command alone; `kiln bench step --study 2025` means this too")
      ->type_name("'bench step'");
  app.add_option("--part-timeout", t->timeout, "Seconds until a part is given up (default 600)")
      ->type_name("X");
  app.add_flag("--fresh", t->fresh, "Run parts again that are done");
  return [t, &common] { run(*t, common); };
}

}  // namespace kiln::cli
