#include "studies/sweep/sweep.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "kiln/bench_options.h"
#include "kiln/options.h"
#include "kiln/sweep_options.h"
#include "rows/result_log.h"
#include "studies/sweep/render.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

using Status = RowStatus;

TEST(Grid, AxesAndCells) {
  const std::vector<GridAxis> axes = read_axes({"ctx=128..512,96", "dtype=fp32,bf16,fp32"});
  ASSERT_EQ(axes.size(), 2U);
  EXPECT_EQ(axes[0].values, (std::vector<std::string>{"128", "256", "512", "96"}));
  EXPECT_EQ(axes[1].values, (std::vector<std::string>{"fp32", "bf16"}));
  const std::vector<GridCell> cells = cells_of(axes);
  ASSERT_EQ(cells.size(), 8U);
  EXPECT_EQ(str(cells[0]), "ctx=128 dtype=fp32");
  EXPECT_EQ(str(cells[1]), "ctx=128 dtype=bf16") << "the last axis changes fastest";
  EXPECT_EQ(str(cells[7]), "ctx=96 dtype=bf16");
  EXPECT_EQ(read_axes({"size=2.7b"})[0].values.front(), "2.7b") << "a name with a dot is no range";
  for (const char* wrong : {"ctx", "=1", "ctx=", "ctx=1,,2", "ctx=512..128"})
    EXPECT_NE(KILN_ERROR_OF(read_axes({wrong})), "nothing") << wrong;
  EXPECT_NE(KILN_ERROR_OF(read_axes({"a=1", "a=2"})).find("--grid has a twice"), std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(read_axes({"a=1..1073741824", "b=1..1073741824", "c=1..1073741824"})), "nothing");
}

struct Fixture {
  TempFolder folder;
  SweepRequest request;
  int runs = 0;
  std::function<CellRun(const GridCell&)> answer = [](const GridCell& cell) {
    CellRun run;
    const double ms = std::stod(cell[0].second) / 100;
    run.rows = {Json{{"command", "bench step"},
                     {"status", "ok"},
                     {"gate", "passed"},
                     {"size", "nano"},
                     {"mode", "full"},
                     {"dtype", "fp32"},
                     {"ctx", std::stoi(cell[0].second)},
                     {"p50_ms", ms},
                     {"mean_ms", ms},
                     {"predicted_ms", ms / 2},
                     {"floor_ms", ms / 4},
                     {"raw_samples", {ms, ms, ms, ms}}}};
    return run;
  };
  bool stop = false;

  Fixture() {
    request.command = "bench step";
    request.args = {"bench", "step", "--batch=1"};
    request.axes = read_axes({"ctx=100,200,400"});
    request.place = "here";
    request.out = folder.path();
  }
  SweepReport run() {
    return run_sweep(request, {[&](const GridCell& cell) {
                                 ++runs;
                                 return answer(cell);
                               },
                               [](const std::string&) {}, [&] { return stop; }});
  }
};

TEST(Sweep, EachCellRunsOnceAndIsTakenFromTheFileAfterwards) {
  Fixture f;
  EXPECT_EQ(f.run().rows().size(), 3U);
  EXPECT_EQ(f.runs, 3);
  const SweepReport again = f.run();
  EXPECT_EQ(f.runs, 3);
  EXPECT_TRUE(again.cells[2].reused);
  EXPECT_EQ(again.rows().at(2).at("grid").at("ctx"), "400");
  EXPECT_EQ(read_results(f.folder.path()).rows.size(), 3U);
  f.request.axes = read_axes({"ctx=100,800"});  // one more cell
  f.run();
  EXPECT_EQ(f.runs, 4);
  f.request.place = "another machine";
  f.run();
  EXPECT_EQ(f.runs, 6);
  f.request.fresh = true;
  f.run();
  EXPECT_EQ(f.runs, 8);
}

TEST(Sweep, AnIdIsOfAllThatDecidesAndOfNothingElse) {
  Fixture f;
  const GridCell cell = {{"ctx", "100"}};
  const std::string id = cell_id(f.request, cell);
  EXPECT_EQ(id.size(), 16U);
  SweepRequest other = f.request;
  other.args = {"bench", "--batch=1", "step"};
  EXPECT_EQ(cell_id(other, cell), id);
  other.out = "elsewhere";
  other.timeout = 1;
  EXPECT_EQ(cell_id(other, cell), id);
  other.args.push_back("--clip=1");
  EXPECT_NE(cell_id(other, cell), id);
  EXPECT_NE(cell_id(f.request, {{"ctx", "101"}}), id);
}

TEST(Sweep, StoppedItKeepsWhatIsDoneAndResumes) {
  Fixture f;
  const auto whole = f.answer;
  f.answer = [&](const GridCell& cell) {
    if (cell[0].second == "200") {
      f.stop = true;
      CellRun run;
      run.stopped = true;
      return run;
    }
    return whole(cell);
  };
  const SweepReport first = f.run();
  EXPECT_TRUE(first.stopped());
  EXPECT_EQ(f.runs, 2);
  EXPECT_EQ(first.cells[0].status, Status::ok);
  EXPECT_EQ(first.cells[1].status, Status::interrupted);
  EXPECT_EQ(read_results(f.folder.path()).rows.size(), 1U);
  EXPECT_NE(written(sweep_page(first), PageFormat::text).find("stopped with 2 of 3 cells not run"),
            std::string::npos);
  f.stop = false;
  f.answer = whole;
  const SweepReport second = f.run();
  EXPECT_FALSE(second.stopped());
  EXPECT_EQ(f.runs, 4) << "the first cell is not measured again";
  EXPECT_EQ(second.rows().size(), 3U);
}

TEST(Sweep, ATimeOutIsARowThatALongerTimeTriesAgain) {
  Fixture f;
  f.request.axes = read_axes({"ctx=100"});
  f.request.timeout = 5;
  f.answer = [](const GridCell&) {
    CellRun run;
    run.timed_out = true;
    run.signal = 9;
    return run;
  };
  const SweepReport report = f.run();
  EXPECT_EQ(report.cells[0].status, Status::timeout);
  EXPECT_EQ(report.cells[0].reason, "it took more than 5 s");
  EXPECT_NE(written(sweep_page(report), PageFormat::text).find("timeout"), std::string::npos);
  f.run();
  EXPECT_EQ(f.runs, 1);
  f.request.timeout = 50;
  f.run();
  EXPECT_EQ(f.runs, 2);
}

TEST(Sweep, CellsThatHaveNoTimesSayWhyInFourWords) {
  Fixture f;
  f.request.axes = read_axes({"ctx=100,200,300,400,500"});
  const auto whole = f.answer;
  f.answer = [&](const GridCell& cell) {
    const std::string& ctx = cell[0].second;
    CellRun run;
    if (ctx == "100") run.rows = {Json{{"status", "oom"}, {"gate", "not-verified"}, {"reason", "9 GiB"}}};
    if (ctx == "200")
      run.rows = {Json{{"status", "unsupported"}, {"gate", "not-verified"}, {"reason", "fp64"}}};
    if (ctx == "300") run.timed_out = true;
    if (ctx == "400") run.status = 1, run.reason = "the loss is nan";
    return ctx == "500" ? whole(cell) : run;
  };
  const SweepReport report = f.run();
  const Json page = Json::parse(written(sweep_page(report), PageFormat::json));
  const char* const words[] = {"oom", "unsupported", "timeout", "failed", "ok"};
  const std::string text = written(sweep_page(report), PageFormat::text);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(page.at("cells").at(i).at("status"), words[i]);
    EXPECT_EQ(page.at("rows").at(i).at("status"), words[i]);
    EXPECT_EQ(page.at("rows").at(i).at("gate"), i == 4 ? "passed" : "not-verified");
  }
  for (const char* word : {"OOM", "unsupported", "timeout", "failed"})
    EXPECT_NE(text.find(cat(" ", word)), std::string::npos) << word << "\n" << text;
}

TEST(Sweep, NoMemoryIsAResultAndAFailureIsTriedAgain) {
  Fixture f;
  f.request.axes = read_axes({"ctx=100"});
  f.answer = [](const GridCell&) {
    CellRun run;
    run.status = 1;
    run.rows = {Json{{"status", "oom"}, {"reason", "it needs 9 GiB"}}};
    return run;
  };
  const SweepReport full = f.run();
  EXPECT_EQ(full.cells[0].status, Status::oom);
  EXPECT_NE(written(sweep_page(full), PageFormat::text).find("OOM"), std::string::npos)
      << written(sweep_page(full), PageFormat::text);
  f.run();
  EXPECT_EQ(f.runs, 1);

  f.request.axes = read_axes({"ctx=200"});
  f.answer = [](const GridCell&) {
    CellRun run;
    run.status = 1;
    run.reason = "the loss is nan";
    return run;
  };
  const SweepReport failed = f.run();
  EXPECT_EQ(failed.cells[0].status, Status::failed);
  EXPECT_EQ(failed.cells[0].reason, "the loss is nan");
  EXPECT_EQ(read_results(f.folder.path()).rows.size(), 1U) << "a failure is not stored";
  f.run();
  EXPECT_EQ(f.runs, 3);
  f.answer = [](const GridCell&) {
    CellRun run;
    run.status = 3;
    run.reason = "there is no GPU";
    return run;
  };
  EXPECT_EQ(f.run().cells[0].status, Status::unavailable);
  EXPECT_EQ(read_results(f.folder.path()).rows.size(), 1U);
  f.answer = [](const GridCell&) {
    CellRun run;
    run.signal = 11;
    return run;
  };
  EXPECT_EQ(f.run().cells[0].reason, "it was ended by signal 11");
}

TEST(Sweep, ATornLineCostsItsCellAndIsSaid) {
  Fixture f;
  f.run();
  const std::string text = f.folder.read("results.jsonl");
  f.folder.write("results.jsonl", text.substr(0, text.size() - 20));
  const SweepReport report = f.run();
  EXPECT_EQ(f.runs, 4);
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes[0].find("cut off"), std::string::npos);
  EXPECT_EQ(report.rows().size(), 3U);
  EXPECT_EQ(read_results(f.folder.path()).rows.size(), 3U);
}

TEST(Sweep, AFolderThatCannotBeWrittenIsSaidBeforeAnythingRuns) {
  Fixture f;
  f.request.out = "/dev/null/x";
  EXPECT_NE(KILN_ERROR_OF(f.run()).find("cannot write /dev/null/x"), std::string::npos);
  EXPECT_EQ(f.runs, 0);
}

TEST(Sweep, PagesFollowTheRows) {
  Fixture f;
  const SweepReport report = f.run();
  const Json page = Json::parse(written(sweep_page(report), PageFormat::json));
  EXPECT_EQ(page.at("command"), "bench step");
  EXPECT_EQ(page.at("grid").at("ctx"), Json({"100", "200", "400"}));
  EXPECT_EQ(page.at("cells").size(), 3U);
  EXPECT_EQ(page.at("cells").at(1).at("status"), "ok");
  EXPECT_EQ(page.at("rows").at(1).at("mean_ms"), 2.0);
  EXPECT_FALSE(page.at("stopped").get<bool>());
  ASSERT_EQ(page.at("scaling").size(), 1U);
  EXPECT_NEAR(page.at("scaling").at(0).at("exponent").get<double>(), 1, 1e-9);
  EXPECT_NE(written(sweep_page(report), PageFormat::csv).find("ctx,size,mode,"), std::string::npos);
  EXPECT_NE(
      written(sweep_page(report), PageFormat::markdown).find("| ctx | size | precision | gate | ms p50 |"),
      std::string::npos);
  EXPECT_NE(written(sweep_page(report), PageFormat::latex)
                .find("\\toprule\nctx & size & precision & gate & ms p50"),
            std::string::npos);
}

TEST(Sweep, WordsOfACellAreThoseThatWereTyped) {
  CommonOptions common;
  Options no_common;
  Command bench("bench", "", "");
  Command& step = bench.sub("step", "", "");
  std::string size, ctx;
  PageFormat format = PageFormat::text;
  std::vector<std::string> shapes;
  bool split = false;
  SweepOptions sweep;
  step.opt("--size", size, "");
  step.opt("--ctx,--context", ctx, "").was("--length");
  step.opt("--shape", shapes, "").repeat();
  step.opt("--split", split, "");
  add_page_options(step, format);
  add_sweep_options(step, sweep);
  const std::vector<std::string> typed = {"step",   "--size",  "small",   "--split", "--format", "md",
                                          "--grid", "ctx=1,2", "--shape", "a=1,c=3", "--shape",  "b=2"};
  step.run = [] {};
  parse_arguments(bench, no_common, typed);
  EXPECT_EQ(sweep.grid, std::vector<std::string>{"ctx=1,2"});
  common.device = "cpu";
  const SweptCommand command = swept(step, common);
  EXPECT_EQ(command.args, (std::vector<std::string>{"bench", "step", "--size=small", "--shape=a=1,c=3",
                                                    "--shape=b=2", "--split", "--seed=0", "--device=cpu"}));
  EXPECT_EQ(cell_args(command, {{"ctx", "1"}}, {}), (std::vector<std::string>{"--ctx=1"}));
  EXPECT_EQ(cell_args(command, {{"length", "1"}}, {}), (std::vector<std::string>{"--length=1"}));
  EXPECT_EQ(cell_args(command, {{"split", "on"}, {"rows", "4"}, {"cols", "5"}}, {"rows", "cols"}),
            (std::vector<std::string>{"--split", "--shape=rows=4,cols=5"}));
  EXPECT_TRUE(cell_args(command, {{"split", "off"}}, {}).empty());
}

}  // namespace
}  // namespace kiln::cli
