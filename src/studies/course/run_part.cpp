// What a study runs, and a part of it as a process.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/child_process.h"
#include "base/choice.h"
#include "base/error.h"
#include "base/one_line.h"
#include "device/gpu_info.h"
#include "device/require_gpu.h"
#include "studies/course/course.h"
#include "studies/place.h"

namespace kiln {

void choose_parts(const StudyChoice& c, StudyRequest& r) {
  const Study& study = find_study(c.study);
  r.study = study.name;
  r.parts = {study.parts.begin(), study.parts.end()};
  std::vector<std::string_view> known;
  for (const StudyPart& part : study.parts) known.push_back(part.name);
  for (const std::string& name : c.only) index_of("--only", name, known);
  r.only = c.only;
  if (c.command.empty()) return;
  r.only.clear();
  for (const StudyPart& part : study.parts) {
    const bool wanted = c.only.empty() || std::find(c.only.begin(), c.only.end(), part.name) != c.only.end();
    if (wanted && fmt::format("{} ", part.command).starts_with(fmt::format("{} ", c.command)))
      r.only.emplace_back(part.name);
  }
  if (r.only.empty())
    throw Error(fmt::format("no part of study {} is `kiln {}`", study.name, c.command),
                fmt::format("its parts are {}", fmt::join(known, ", ")), ErrorKind::usage);
}

void choose_place(const StudyChoice& c, const std::string& device, StudyRequest& r) {
  const std::string found = in_a_copy([&] {
    std::string why_no_gpu;
    const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
    require_gpu(device, gpus, why_no_gpu);
    const Device here = Device::parse(device);
    return fmt::format("{}\n{}", here.str(), device_name(here));
  });
  r.device = found.substr(0, found.find('\n'));
  r.device_name = found.substr(found.find('\n') + 1);
  r.on_meta = r.device.starts_with("meta");
  const bool small =
      c.scale == ScaleChoice::tiny || (c.scale == ScaleChoice::automatic && r.device.starts_with("cpu"));
  r.scale = small ? StudyScale::tiny : StudyScale::full;
}

PartRun run_part(const std::vector<std::string>& args, const std::string& folder, double timeout,
                 const std::function<bool()>& stop) {
  constexpr double kGrace = 20;  // seconds for one that is ended to store its rows: a large step is long
  std::vector<std::string> all = {kOwnProgram};
  all.insert(all.end(), args.begin(), args.end());
  const std::string printed = (std::filesystem::path(folder) / "page.txt").string();
  const ChildResult child =
      run_child(all, {.seconds = timeout, .stop = stop, .grace = kGrace, .output = printed});
  PartRun run{
      child.status, child.signal, child.timed_out, child.stopped, child.seconds, last_word(child.errors), {}};
  std::ifstream file(printed, std::ios::binary);
  run.page.assign(std::istreambuf_iterator<char>(file), {});
  file.close();
  std::error_code ignored;
  std::filesystem::remove(printed, ignored);
  return run;
}

}  // namespace kiln
