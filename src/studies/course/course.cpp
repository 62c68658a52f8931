#include "studies/course/course.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/json.h"
#include "base/plain_number.h"
#include "rows/result_log.h"
#include "studies/course/render.h"
#include "studies/report/chapters/answered.h"
#include "studies/sweep/sweep.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::string in_folder(const StudyRequest& request, const std::string& name) {
  return (fs::path(request.folder()) / name).string();
}

std::string folder_of(const StudyRequest& request, const PartReport& part) {
  return in_folder(request, std::string(part.part.name));
}

std::string page_of(const StudyRequest& request, const PartReport& part) {
  return in_folder(request, fmt::format("{}.md", part.part.name));
}

// What an earlier run left, by the part's id; empty where there is no such file, or a broken one.
Json earlier_parts(const StudyRequest& request) {
  std::ifstream file(in_folder(request, "study.json"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Json by_id = Json::object();
  Json page;
  try {
    page = Json::parse(text);
  } catch (const Error&) {
    return by_id;
  }
  if (!page.is_object() || !page.contains("parts") || !page["parts"].is_array()) return by_id;
  for (const Json& part : page["parts"]) {
    if (part.is_object() && part.value("id", Json()).is_string()) by_id[part["id"].get<std::string>()] = part;
  }
  return by_id;
}

// What is known of the part from before. Of a part that is to run now only its success counts.
bool take_earlier(const StudyRequest& request, const Json& by_id, PartReport& part) try {
  const Json* found = by_id.find(part.id);
  if (found == nullptr || !fs::exists(page_of(request, part))) return false;
  const RowStatus status = status_of(*found);
  if (part.asked && status != RowStatus::ok) return false;
  part.seconds = found->at("seconds").get<double>();
  part.time = found->at("time").get<std::string>();
  part.reason = found->at("reason").get<std::string>();
  part.rows = found->at("rows").get<std::size_t>();
  part.no_memory = found->at("no_memory").get<std::size_t>();
  part.charts = found->at("pictures").get<std::vector<std::string>>();
  if (const Json* answers = found->find("conclusions"))
    part.answers = answers->get<std::vector<std::string>>();
  part.status = status;
  part.reused = true;
  return true;
} catch (const Error&) {
  return false;  // written by something else; the part runs again
}

std::string why_not(const StudyRequest& request, const PartRun& run) {
  if (run.timed_out) return fmt::format("it took more than {} s", plain(request.timeout, 6));
  if (run.signal == SIGKILL) return "it was killed by a signal: most likely the machine ran out of memory";
  if (run.signal != 0) return fmt::format("it was ended by signal {}", run.signal);
  return run.reason.empty() ? fmt::format("it ended with status {}", run.status) : run.reason;
}

// Every SVG below the part's folder, named from the study's.
std::vector<std::string> charts_in(const StudyRequest& request, const PartReport& part) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder_of(request, part), ignored)) {
    if (entry.path().extension() == ".svg")
      found.push_back(fs::relative(entry.path(), request.folder()).string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The part's rows, each with the study's name, also where rows of all commands are.
void gather_rows(const StudyRequest& request, PartReport& part) {
  std::vector<std::string> lines;
  StoredResults stored = read_results(folder_of(request, part));
  part.answers = answers_of(stored.rows);
  for (Json& row : stored.rows) {
    ++part.rows;
    if (status_of(row) == RowStatus::oom) ++part.no_memory;
    row["study"] = request.study;
    row["part"] = part.part.name;
    lines.push_back(row.dump());
  }
  append_results(request.out, lines);
}

// A clean folder for the part; the choices of `kiln tune` that lie in --out hold in it too.
void make_folder(const StudyRequest& request, const PartReport& part) {
  const fs::path folder = folder_of(request, part);
  std::error_code error;
  fs::remove(page_of(request, part), error);
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  if (error)
    throw Error(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()),
                "name another folder with --out");
  for (const auto& entry : fs::directory_iterator(request.out, error)) {
    if (entry.path().filename().string().starts_with("tune-"))
      fs::create_symlink(fs::absolute(entry.path()), folder / entry.path().filename(), error);
  }
}

void run_part(const StudyRequest& request, const StudyTools& tools, PartReport& part) {
  make_folder(request, part);
  const PartRun run = tools.run(part.args, folder_of(request, part));
  if (run.stopped) return gather_rows(request, part);  // what it had; it begins again next time
  part.seconds = run.seconds;
  part.time = utc_now();
  if (run.status != 0 || run.signal != 0 || run.timed_out) {
    part.status = run.timed_out                        ? RowStatus::timeout
                  : run.status == 3 && run.signal == 0 ? RowStatus::unavailable
                                                       : RowStatus::failed;
    part.reason = why_not(request, run);
  } else {
    part.status = RowStatus::ok;
  }
  gather_rows(request, part);
  part.charts = charts_in(request, part);
  write_file_atomically(page_of(request, part), study_part_page(request, part, run.page));
}

void write_state(const StudyReport& report) {
  write_file_atomically(in_folder(report.request, "study.json"),
                        written(study_page(report), PageFormat::json));
  write_file_atomically(in_folder(report.request, "study.md"), study_markdown(report));
}

bool needs_quotes(const std::string& arg) {
  return arg.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%") !=
         std::string::npos;
}

}  // namespace

std::string StudyRequest::folder() const {
  return (fs::path(out) / fmt::format("study-{}{}", study, scale == StudyScale::tiny ? "-tiny" : ""))
      .string();
}

std::string StudyRequest::place() const { return fmt::format("{}\n{}", device_name, build_info().build_id); }

std::string_view name_of(StudyScale s) { return s == StudyScale::full ? "full" : "tiny"; }

bool StudyReport::stopped() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const PartReport& p) { return p.asked && p.status == RowStatus::interrupted; });
}

std::size_t StudyReport::count(RowStatus status) const {
  return static_cast<std::size_t>(
      std::count_if(parts.begin(), parts.end(), [&](const PartReport& p) { return p.status == status; }));
}

double StudyReport::seconds() const {
  double sum = 0;
  for (const PartReport& p : parts) sum += p.seconds;
  return sum;
}

std::vector<PartReport> plan_study(const StudyRequest& request) {
  std::vector<PartReport> parts;
  for (const StudyPart& part : request.parts) {
    PartReport p;
    p.part = part;
    p.asked = request.only.empty() ||
              std::find(request.only.begin(), request.only.end(), part.name) != request.only.end();
    if (!p.asked) p.status = RowStatus::skipped;
    p.args = args_of(part, request.scale);
    if (part.markdown) {
      p.args.emplace_back("--format");
      p.args.emplace_back("md");
    }
    for (const auto& [option, value] :
         {std::pair<const char*, std::string>("--seed", request.seed), {"--device", request.device}}) {
      p.args.emplace_back(option);
      p.args.push_back(value);
    }
    SweepRequest decides;
    decides.command = part.command;
    decides.args = p.args;
    decides.place = request.place();
    p.id = cell_id(decides, {});
    p.args.emplace_back("--out");
    p.args.push_back(folder_of(request, p));
    parts.push_back(std::move(p));
  }
  return parts;
}

std::string shell_line(const std::vector<std::string>& args) {
  std::string line = "kiln";
  for (const std::string& arg : args) {
    if (!arg.empty() && !needs_quotes(arg)) {
      line += " " + arg;
      continue;
    }
    line += " '";
    for (const char c : arg) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

StudyReport run_study(const StudyRequest& request, const StudyTools& tools) {
  StudyReport report{request, plan_study(request), {}};
  append_results(request.out, {});  // is there a place for them? Better said now than after minutes
  if (const std::string repaired = repair_results(request.out); !repaired.empty())
    report.notes.push_back(repaired);
  const Json by_id = earlier_parts(request);
  std::size_t reused = 0;
  for (PartReport& part : report.parts) {
    if (part.asked && request.fresh) continue;
    if (take_earlier(request, by_id, part) && part.asked) ++reused;
  }
  for (PartReport& part : report.parts) {
    if (!request.on_meta || part.part.on_meta || !part.asked) continue;
    part.status = RowStatus::unavailable;
    part.reason = "meta runs no kernels, so there is nothing to time";
  }
  for (std::size_t i = 0; i < report.parts.size(); ++i) {
    PartReport& part = report.parts[i];
    if (!part.asked || part.status != RowStatus::interrupted) continue;
    if (tools.stop()) break;
    tools.progress(fmt::format("part {} of {}: {}", i + 1, report.parts.size(), part.part.name));
    run_part(request, tools, part);
    if (part.status == RowStatus::interrupted) break;
    write_state(report);
  }
  tools.progress("");
  if (reused > 0)
    report.notes.push_back(
        fmt::format("{} of {} parts were run before; --fresh runs them again", reused, report.parts.size()));
  if (report.stopped()) report.notes.push_back("stopped before the end; the same command resumes there");
  std::error_code ignored;
  fs::create_directories(request.folder(), ignored);  // of a study whose parts all ran before, or cannot run
  write_state(report);
  return report;
}

}  // namespace kiln
