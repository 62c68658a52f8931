// kiln study: the sweeps of its parts against what the documents ask for, and the runner with parts made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "kiln/command_line.h"
#include "rows/result_log.h"
#include "studies/course/render.h"
#include "support/has.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

const StudyPart& part(const char* study, std::string_view name) {
  for (const StudyPart& p : find_study(study).parts) {
    if (p.name == name) return p;
  }
  throw Error(cat("no part ", name));
}

// The value of an option of a part, at full scale.
std::string value(const StudyPart& p, std::string_view option) {
  const std::vector<std::string> args = args_of(p, StudyScale::full);
  const auto found = std::find(args.begin(), args.end(), option);
  return found == args.end() || found + 1 == args.end() ? "" : *(found + 1);
}

TEST(StudyParts, HaveTheDocumentsSweeps) {
  for (const auto& [study, sizes] :
       {std::pair("2025", "small,medium,large,xl25,2.7b"), {"2026", "small,medium,large,xl26,10b"}}) {
    const StudyPart& step = part(study, "step");
    EXPECT_EQ(step.command, "bench step");
    EXPECT_EQ(value(step, "--size"), sizes);
    EXPECT_EQ(value(step, "--ctx"), "512");
    EXPECT_EQ(value(step, "--batch"), "4");
    EXPECT_EQ(value(step, "--vocab"), "10000");
    EXPECT_EQ(value(step, "--warmup"), "5");
    EXPECT_EQ(value(step, "--steps"), "10");
    EXPECT_EQ(value(step, "--dtype"), "fp32,bf16");
    EXPECT_EQ(value(part(study, "warmup"), "--warmup"), "0,1,2,5");
    const StudyPart& attention = part(study, "attention");
    EXPECT_EQ(value(attention, "--batch"), "8");
    EXPECT_EQ(value(attention, "--heads"), "none");
    EXPECT_EQ(value(attention, "--d"), "16,32,64,128");
    EXPECT_EQ(value(attention, "--seq"), "256,1024,4096,8192,16384");
    EXPECT_EQ(value(attention, "--iters"), "100");
    EXPECT_EQ(value(part(study, "precision-accumulate"), "--count"), "1000");
    EXPECT_EQ(value(part(study, "precision-accumulate"), "--value"), "0.01");
    (void)part(study, "precision-toymodel");
    EXPECT_EQ(value(part(study, "allreduce"), "--bytes"), "1MB,10MB,100MB,1GB");
    EXPECT_EQ(value(part(study, "allreduce"), "--ranks"), "2,4,6");
    EXPECT_EQ(value(part(study, "ddp"), "--form"), "naive,flat,overlap,bucketed");
    EXPECT_EQ(value(part(study, "ddp"), "--bucket-mb"), "1,10,100,1000");
    EXPECT_EQ(value(part(study, "zero"), "--stage"), "0,1,2,3");
    (void)part(study, "fsdp");
  }
  EXPECT_EQ(value(part("2025", "step-ctx"), "--ctx"), "128,256,512");
  EXPECT_EQ(value(part("2025", "step-ctx"), "--size"), "small,medium");
  EXPECT_EQ(value(part("2025", "step-ctx"), "--mode"), "forward,forward-backward");
  EXPECT_EQ(value(part("2025", "profile"), "--size"), "small,medium,large,xl25,2.7b");
  EXPECT_EQ(value(part("2025", "profile"), "--ctx"), "128,256,512,1024");
  EXPECT_EQ(value(part("2025", "memory"), "--size"), "small,medium,large,xl25,2.7b");
  EXPECT_EQ(value(part("2025", "memory"), "--phase"), "forward,full");
  EXPECT_EQ(value(part("2025", "memory-ctx"), "--size"), "2.7b");
  EXPECT_EQ(value(part("2025", "memory-ctx"), "--ctx"), "128,256,512");
  EXPECT_EQ(value(part("2025", "memory-scaling"), "--attention"), "naive,flash");
  EXPECT_EQ(value(part("2025", "flash"), "--seq"), "128..65536");
  EXPECT_EQ(value(part("2025", "flash"), "--d"), "16..128");
  EXPECT_EQ(value(part("2025", "flash"), "--dtype"), "bf16,fp32");
  for (const char* kernels : {"attention", "flash"}) {
    EXPECT_EQ(value(part("2025", kernels), "--variant"), "composed,auto") << kernels;
    EXPECT_EQ(value(part("2025", cat(kernels, "-naive")), "--variant"), "naive,auto") << kernels;
  }
  const StudyPart& board = part("2025", "leaderboard-flash");
  EXPECT_EQ(value(board, "--heads") + " " + value(board, "--seq") + " " + value(board, "--d"), "16 16384 64");
  EXPECT_EQ(value(board, "--warmup") + " " + value(board, "--seconds"), "1 10");

  EXPECT_EQ(value(part("2026", "profile"), "--ctx"), "256,1024,max");
  EXPECT_EQ(value(part("2026", "memory"), "--ctx"), "128,2048");
  EXPECT_EQ(value(part("2026", "residuals-rms-norm"), "--shape"), "4,512,2560");
  EXPECT_EQ(value(part("2026", "residuals-block"), "--ctx"), "2048");
  EXPECT_EQ(value(part("2026", "residuals-block-16-heads"), "--heads"), "16");
  EXPECT_EQ(value(part("2026", "recompute"), "--blocks"), "1,2,4,8,16,32");
  EXPECT_EQ(part("2026", "weighted-sum").command, "bench op weighted_sum");
}

TEST(StudyParts, EveryCommandLineIsOneThatKilnTakes) {
  const TempFolder folder;
  for (const Study& study : studies()) {
    std::set<std::string_view> names;
    for (const StudyPart& p : study.parts) {
      EXPECT_TRUE(names.insert(p.name).second) << p.name << " twice";
      for (const StudyScale scale : {StudyScale::full, StudyScale::tiny}) {
        std::vector<std::string> args = args_of(p, scale);
        if (p.markdown) args.insert(args.end(), {"--format", "md"});
        args.insert(args.end(), {"--device", "cpu", "--out", folder.path()});
        if (p.command.starts_with("bench")) args.emplace_back("--dry-run");
        Request request;
        EXPECT_NO_THROW(request = parse_command_line(args)) << shell_line(args);
        // The others have no dry run; the whole study at the tiny scale is in tests/cli/study.sh.
        if (!p.command.starts_with("bench")) continue;
        EXPECT_NO_THROW(request.run()) << shell_line(args);
      }
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "results.jsonl")) << "a dry run measures nothing";
}

TEST(StudyParts, TinySaysWhatItTakesAway) {
  const StudyPart p{"x",
                    "",
                    "bench step",
                    "--size small,medium --ctx 512 --split",
                    "--size nano --ctx 512 --split --steps 2",
                    false,
                    false};
  EXPECT_EQ(reduced(p), "--size nano instead of small,medium; --steps 2 instead of the default");
  for (const Study& study : studies()) {
    for (const StudyPart& each : study.parts)
      EXPECT_EQ(each.full == each.tiny, reduced(each).empty()) << each.name;
  }
  EXPECT_TRUE(has(KILN_ERROR_OF(find_study("2024")), "2024"));
  EXPECT_TRUE(has(KILN_ERROR_OF(find_study("")), "there are 2025 and 2026"));
}

TEST(StudyCommandLine, AStudyOfACommandIsItsPartsOfTheStudy) {
  const auto said = [](const std::vector<std::string>& args) {
    return KILN_ERROR_OF(parse_command_line(args).run());
  };
  EXPECT_TRUE(has(said({"train", "--study", "2025"}), "no part of study 2025 is `kiln train`"));
  EXPECT_TRUE(has(said({"bench", "step", "--study=2024", "--list"}), "there is no study '2024'"));
  EXPECT_TRUE(has(said({"study", "2025", "--only", "stepp"}), "did you mean 'step'?"));
  EXPECT_TRUE(has(said({"study", "2025", "--scale", "tinny"}), "did you mean 'tiny'?"));
  EXPECT_TRUE(has(said({"study"}), "kiln study needs the name of a study"));
  testing::internal::CaptureStdout();
  parse_command_line(
      std::vector<std::string>{"memory", "--scale", "tiny", "--study", "2025", "--list", "--device", "meta"})
      .run();
  const std::string list = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(has(list, "\nkiln memory scaling --size nano "));
  EXPECT_TRUE(has(list, "\n# reduced: --size nano,micro,tiny instead of "));
  EXPECT_FALSE(has(list, "kiln profile"));
}

TEST(StudyCommandLine, LinesAreForAShell) {
  EXPECT_EQ(shell_line({"bench", "op", "--shape", "rows=2,cols=3"}), "kiln bench op --shape rows=2,cols=3");
  EXPECT_EQ(shell_line({"memory", "--out", "my runs/it's"}), "kiln memory --out 'my runs/it'\\''s'");
  EXPECT_EQ(shell_line({""}), "kiln ''");
}

constexpr StudyPart kFirst{"first", "one thing", "bench step", "--size small", "--size nano", false, true},
    kSecond{"second", "another", "memory", "--size small", "--size nano", true, false},
    kThird{"third", "a third", "precision toymodel", "", "", true, false};

struct Fixture {
  TempFolder folder;
  StudyRequest request;
  std::vector<std::string> ran;
  std::map<std::string, PartRun> answers;  // by the command's first word; status 0 where there is none
  bool stop = false;

  Fixture() {
    request.study = "2025";
    request.scale = StudyScale::tiny;
    request.parts = {kFirst, kSecond, kThird};
    request.device = "cpu";
    request.device_name = "a machine";
    request.out = folder.path();
  }
  StudyReport run() {
    ran.clear();
    return run_study(request,
                     {[&](const std::vector<std::string>& args, const std::string& into) {
                        ran.push_back(args.front());
                        append_results(into, {R"({"status":"ok","gate":"passed"})", R"({"status":"oom"})"});
                        PartRun r{.seconds = 2, .reason = {}, .page = cat("page of ", args.front(), "\n")};
                        if (answers.contains(args.front())) r = answers[args.front()];
                        stop = stop || r.stopped;
                        return r;
                      },
                      [](const std::string&) {}, [&] { return stop; }});
  }
  Json state() const { return Json::parse(folder.read("study-2025-tiny/study.json")); }
};

TEST(Study, PartsRunOnceAndAreThereAfterwards) {
  Fixture f;
  const StudyReport report = f.run();
  EXPECT_EQ(f.ran, (std::vector<std::string>{"bench", "memory", "precision"}));
  EXPECT_EQ(report.count(RowStatus::ok), 3U);
  EXPECT_EQ(report.seconds(), 6);
  EXPECT_EQ(report.parts[0].rows, 2U);
  EXPECT_EQ(report.parts[0].no_memory, 1U);
  const std::string page = f.folder.read("study-2025-tiny/first.md");
  EXPECT_TRUE(has(page, "$ kiln bench step --size nano --format md --seed 0 --device cpu --out "));
  EXPECT_TRUE(has(page, "\npage of bench\n"));
  EXPECT_TRUE(has(page, "Reduced: --size nano instead of small."));
  EXPECT_TRUE(has(f.folder.read("study-2025-tiny/second.md"), "```\npage of memory\n```"));
  EXPECT_FALSE(has(page, "## Answer")) << "these rows say nothing";
  const std::vector<Json> rows = read_results(f.folder.path()).rows;
  ASSERT_EQ(rows.size(), 6U) << "rows are where those of all commands are, too";
  EXPECT_EQ(rows[2].at("study"), "2025");
  EXPECT_EQ(rows[2].at("part"), "second");

  const StudyReport again = f.run();
  EXPECT_TRUE(f.ran.empty());
  EXPECT_TRUE(again.parts[2].reused);
  EXPECT_EQ(again.seconds(), 6);
  EXPECT_TRUE(has(written(study_page(again), PageFormat::text),
                  "3 of 3 parts were run before; --fresh runs them again"));
  f.request.only = {"second"};
  f.request.fresh = true;
  f.run();
  EXPECT_EQ(f.ran, (std::vector<std::string>{"memory"}));
  EXPECT_EQ(f.state().at("parts").at(0).at("status"), "ok") << "what was not asked for is still known";
  f.request.fresh = false;
  f.request.only.clear();
  f.request.device_name = "another machine";
  f.run();
  EXPECT_EQ(f.ran.size(), 3U);
  f.request.seed = "1";
  f.run();
  EXPECT_EQ(f.ran.size(), 3U);
}

TEST(Study, APartEndsInTheAnswerThatItsRowsGive) {
  Fixture f;
  const auto row = [](const char* form, double ms) {
    return Json{{"command", "bench ddp"}, {"status", "ok"},       {"gate", "passed"}, {"form", form},
                {"size", "nano"},         {"ranks", 2},           {"p50_ms", ms},     {"calls", 3},
                {"transport", "threads"}, {"hidden_share", 0.25}, {"build_id", "b"}}
        .dump();
  };
  const auto run = [&](double ms) {
    f.request.fresh = true;
    return run_study(f.request, {[&](const std::vector<std::string>& args, const std::string& into) {
                                   if (args.front() == "bench")
                                     append_results(into, {row("naive", 8), row("flat", ms)});
                                   return PartRun{.seconds = 1, .reason = {}, .page = "the table\n"};
                                 },
                                 [](const std::string&) {}, [] { return false; }});
  };
  const StudyReport report = run(4);
  EXPECT_TRUE(has(f.folder.read("study-2025-tiny/first.md"), "flat 2.00x as fast as naive"));
  EXPECT_TRUE(has(f.folder.read("study-2025-tiny/study.md"), "flat 2.00x as fast as naive"));
  EXPECT_FALSE(report.parts[0].answers.empty());
  EXPECT_TRUE(report.parts[1].answers.empty()) << "another part's rows are none of its own";
  run(2);
  EXPECT_TRUE(has(f.folder.read("study-2025-tiny/first.md"), "flat 4.00x as fast as naive"));
  f.request.fresh = false;
  f.run();
  EXPECT_TRUE(has(f.folder.read("study-2025-tiny/study.md"), "flat 4.00x"))
      << "a part that was run before keeps it";
}

TEST(Study, APartThatFailsIsNamedAndTheRestContinues) {
  Fixture f;
  f.answers["bench"] = {
      .status = 1, .seconds = 1, .reason = "nothing could be timed", .page = "half a table\n"};
  f.answers["memory"] = {.signal = 9, .timed_out = true, .seconds = 600, .reason = {}, .page = {}};
  StudyReport report = f.run();
  EXPECT_EQ(f.ran.size(), 3U);
  EXPECT_EQ(report.parts[0].status, RowStatus::failed);
  EXPECT_EQ(report.parts[1].status, RowStatus::timeout);
  EXPECT_EQ(report.parts[2].status, RowStatus::ok);
  const std::string text = written(study_page(report), PageFormat::text);
  EXPECT_TRUE(has(text, "failed: first: nothing could be timed\n"));
  EXPECT_TRUE(has(text, "timeout: second: it took more than 600 s\n"));
  EXPECT_TRUE(has(text, "1 of 3 parts done"));
  EXPECT_TRUE(has(f.folder.read("study-2025-tiny/first.md"), "half a table")) << "what it printed is kept";
  f.answers["bench"] = {.status = 3, .seconds = 0, .reason = "no such device", .page = {}};
  f.answers.erase("memory");
  report = f.run();
  EXPECT_EQ(f.ran, (std::vector<std::string>{"bench", "memory"})) << "what failed is tried again";
  EXPECT_EQ(report.parts[0].status, RowStatus::unavailable);
  f.answers["bench"] = {.signal = 11, .reason = {}, .page = {}};
  EXPECT_EQ(f.run().parts[0].reason, "it was ended by signal 11");
}

TEST(Study, StoppedItKeepsWhatIsDoneAndResumes) {
  Fixture f;
  f.answers["memory"] = {.stopped = true, .reason = {}, .page = {}};
  StudyReport report = f.run();
  EXPECT_TRUE(report.stopped());
  EXPECT_TRUE(has(written(study_page(report), PageFormat::text),
                  "stopped before the end; the same command resumes there"));
  EXPECT_EQ(f.state().at("parts").at(0).at("status"), "ok");
  EXPECT_EQ(f.state().at("parts").at(1).at("status"), "interrupted");
  EXPECT_EQ(f.state().at("stopped"), true);
  f.answers.clear();
  f.stop = false;
  report = f.run();
  EXPECT_EQ(f.ran, (std::vector<std::string>{"memory", "precision"}));
  EXPECT_FALSE(report.stopped());
  f.folder.write("study-2025-tiny/study.json", R"({"parts":[{"id":7},{"id":)");  // torn
  EXPECT_NO_THROW(f.run());
  EXPECT_EQ(f.ran.size(), 3U);
}

TEST(Study, OnMetaTimesAreNotAvailableAndTheRestIs) {
  Fixture f;
  f.request.on_meta = true;
  const StudyReport report = f.run();
  EXPECT_EQ(f.ran, (std::vector<std::string>{"memory", "precision"}));
  EXPECT_EQ(report.parts[0].status, RowStatus::unavailable);
  EXPECT_FALSE(report.stopped());
}

TEST(Study, PagesFollowTheParts) {
  Fixture f;
  StudyReport report = f.run();
  report.parts[1].seconds = 77.25;
  report.parts[1].charts = {"second/memory/a.svg"};
  const std::string page = study_markdown(report);
  EXPECT_TRUE(has(page, "| second | another | ok | [second.md](second.md) | 77.2 | 2 (1 OOM) | 1 |"));
  EXPECT_TRUE(has(page, "kiln precision toymodel --seed 0 --device cpu"));
  EXPECT_TRUE(has(page, "- third: as at full scale\n"));
  EXPECT_TRUE(has(study_part_page(report.request, report.parts[1], "words\n"), "![second/memory/a.svg]"));
  report.request.scale = StudyScale::full;
  EXPECT_FALSE(has(study_markdown(report), "Reduced"));
  const Json state = study_page(report).json;
  EXPECT_EQ(state.at("parts").at(1).at("seconds"), 77.25);
  EXPECT_EQ(state.at("parts").at(1).at("page"), "second.md");
  const Json list = Json::parse(study_list_json(f.request));
  EXPECT_EQ(list.at("parts").at(0).at("reduced"), "--size nano instead of small");
}

TEST(Study, AnUnwritableFolderIsSaidBeforeAnythingRuns) {
  Fixture f;
  f.request.out = "/dev/null/runs";
  EXPECT_TRUE(has(KILN_ERROR_OF(f.run()), "/dev/null/runs"));
  EXPECT_TRUE(f.ran.empty());
}

}  // namespace
}  // namespace kiln::cli
