#include "studies/course/everything.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/child_process.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "base/one_line.h"
#include "base/plain_number.h"
#include "base/units.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnv = "/usr/bin/env";  // finds a program on PATH

std::string state_file(const EverythingRequest& r) { return (fs::path(r.out) / "all.json").string(); }

// The program's folder, where that is a build tree with tests.
std::optional<std::string> build_tree() {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink(kOwnProgram, ignored).parent_path();
  if (folder.empty() || !fs::exists(folder / "CTestTestfile.cmake", ignored)) return {};
  return folder.string();
}

void identify(EverythingStep& step) {
  step.id = fmt::format("{} | {}", build_info().build_id, fmt::join(step.words, " "));
}

std::vector<std::string> earlier_ids(const EverythingRequest& r) {
  std::vector<std::string> ids;
  if (r.fresh) return ids;
  try {
    const Json page = parse_json(read_small_file(state_file(r), std::size_t{1} << 20, "an all.json"),
                                 {.max_values = 10'000}, "all.json");
    for (const Json& step : page.at("steps").items_of_array())
      if (step.at("outcome") == "done" || step.at("outcome") == "reused") ids.push_back(step.at("id").text());
  } catch (const Error&) {  // none, or a broken one: everything is to be done
  }
  return ids;
}

// What follows from the others is made again whenever one of them was.
bool follows(const EverythingStep& step) { return step.name == "report" || step.name == "bundle"; }

void run_step(const EverythingRequest& r, EverythingStep& step) {
  step.page = (fs::path(r.out) / fmt::format("all-{}.txt", step.name)).string();
  const ChildResult child =
      run_child(step.words, {.seconds = r.timeout, .stop = r.stop, .grace = 20, .output = step.page});
  step.seconds = child.seconds;
  if (child.stopped) {
    step.outcome = StepOutcome::stopped;
  } else if (child.done() && !child.timed_out) {
    step.outcome = StepOutcome::done;
  } else {
    step.outcome = child.status == 3 && child.signal == 0 && !child.timed_out ? StepOutcome::missed
                                                                              : StepOutcome::failed;
    step.reason = child.timed_out     ? fmt::format("it took more than {} s", plain(r.timeout, 6))
                  : child.signal != 0 ? fmt::format("it was ended by signal {}", child.signal)
                                      : last_word(child.errors);
    if (step.reason.empty()) step.reason = fmt::format("it ended with status {}", child.status);
  }
}

}  // namespace

std::string_view name_of(StepOutcome outcome) {
  constexpr std::array<std::string_view, 5> kNames = {"done", "reused", "failed", "unavailable", "stopped"};
  return kNames[static_cast<std::size_t>(outcome)];
}

std::string bundle_of(const EverythingRequest& r) {
  fs::path folder = fs::absolute(r.out).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.string() + ".tar.gz";
}

std::vector<EverythingStep> plan_everything(const EverythingRequest& r) {
  std::vector<EverythingStep> steps;
  const auto add = [&](const char* name, std::string what, std::vector<std::string> words) {
    steps.push_back({name, std::move(what), std::move(words), {}, StepOutcome::stopped, 0, {}, {}});
  };
  const auto kiln = [&](std::vector<std::string> words) {
    words.insert(words.begin(), kOwnProgram);
    for (const std::string& word : {"--device=" + r.device, "--seed=" + r.seed, "--out=" + r.out})
      words.push_back(word);
    return words;
  };
  add("check", "every variant of every op against its definition", kiln({"ops", "--check"}));
  if (const auto tree = build_tree(); tree && !r.quick)
    add("tests", "the tests of the build tree", {kEnv, "ctest", "--test-dir", *tree, "--output-on-failure"});
  for (const char* study : {"2025", "2026"}) {
    std::vector<std::string> words = {"study", study};
    if (r.quick) words.insert(words.end(), {"--scale", "tiny"});
    add(study[3] == '5' ? "study-2025" : "study-2026", fmt::format("all sweeps of the {} course", study),
        kiln(std::move(words)));
    if (r.quick) break;
  }
  add("ablate", "the optimizations one by one and combined",
      kiln(r.quick ? std::vector<std::string>{"ablate", "--quick"} : std::vector<std::string>{"ablate"}));
  add("quality", "loss curves of baseline and optimized step over hundreds of steps",
      kiln({"ablate", "quality", "--steps", r.quick ? "200" : "500"}));
  add("report", "everything stored as a report", kiln({"report"}));
  const fs::path folder = fs::absolute(r.out).lexically_normal();
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  // Checkpoints are large, and no figures.
  add("bundle", "the folder as one file",
      {kEnv, "tar", "-czf", bundle_of(r), "--exclude=checkpoints", "-C", named.parent_path().string(),
       named.filename().string()});
  for (EverythingStep& step : steps) identify(step);
  return steps;
}

std::vector<EverythingStep> do_everything(const EverythingRequest& r,
                                          const std::function<void(const std::string&)>& say) {
  std::error_code error;
  fs::create_directories(r.out, error);
  if (error)
    throw Error(fmt::format("cannot make the folder {}: {}", r.out, error.message()),
                "name another folder with --out");
  const std::vector<std::string> done = earlier_ids(r);
  std::vector<EverythingStep> steps = plan_everything(r);
  bool any = false;  // was done now
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EverythingStep& step = steps[i];
    if (r.stop && r.stop()) break;
    const bool known = std::find(done.begin(), done.end(), step.id) != done.end();
    if (known && !(follows(step) && any)) {
      step.outcome = StepOutcome::reused;
    } else {
      say(fmt::format("{} of {}  {}: {}", i + 1, steps.size(), step.name, step.what));
      run_step(r, step);
      any = any || step.outcome == StepOutcome::done;
    }
    say(fmt::format("{} of {}  {}: {}{}{}", i + 1, steps.size(), step.name, name_of(step.outcome),
                    step.outcome == StepOutcome::done ? fmt::format(" in {} s", plain(step.seconds, 3)) : "",
                    step.reason.empty() ? "" : ": " + step.reason));
    write_file_atomically(state_file(r), everything_json(r, steps).dump(2) + "\n");
    if (step.outcome == StepOutcome::stopped) break;
  }
  return steps;
}

Json everything_json(const EverythingRequest& r, const std::vector<EverythingStep>& steps) {
  Json list = Json::array();
  for (const EverythingStep& s : steps) {
    Json step = {{"name", s.name},
                 {"outcome", name_of(s.outcome)},
                 {"seconds", s.seconds},
                 {"reason", s.reason},
                 {"page", s.page},
                 {"words", s.words},
                 {"id", s.id}};
    list.push_back(std::move(step));
  }
  return {{"command", "all"}, {"quick", r.quick}, {"out", r.out}, {"bundle", bundle_of(r)}, {"steps", list}};
}

std::string plan_text(const std::vector<EverythingStep>& steps) {
  std::string text;
  for (const EverythingStep& s : steps) {
    std::vector<std::string> words = s.words;
    if (words.front() == kOwnProgram) words.front() = "kiln";
    text += fmt::format("{:<11} {}\n            {}\n", s.name, s.what, fmt::join(words, " "));
  }
  return text;
}

std::string everything_text(const EverythingRequest& r, const std::vector<EverythingStep>& steps) {
  std::string text;
  for (const EverythingStep& s : steps)
    text += fmt::format("{:<11} {:<12}{:>9}  {}\n", s.name, name_of(s.outcome),
                        s.outcome == StepOutcome::done ? plain(s.seconds, 3) + " s" : "",
                        s.reason.empty() ? s.page : s.reason);
  const auto bundled =
      std::find_if(steps.begin(), steps.end(), [](const auto& s) { return s.name == "bundle"; });
  std::error_code error;
  const auto bytes = fs::file_size(bundle_of(r), error);
  if (bundled != steps.end() && !error &&
      (bundled->outcome == StepOutcome::done || bundled->outcome == StepOutcome::reused))
    text +=
        fmt::format("report      {}/report.md\nbundle      {} ({})\n", r.out, bundle_of(r), human({bytes}));
  return text;
}

}  // namespace kiln
