#include "kiln/sweep_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/build_info.h"
#include "base/child_process.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/nearest_name.h"
#include "base/one_line.h"
#include "device/require_gpu.h"
#include "kiln/bench_options.h"
#include "kiln/command_line.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/place.h"
#include "studies/shared_ceilings.h"
#include "studies/sweep/render.h"
#include "studies/sweep/sweep.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

const SweptOption* find_option(const SweptCommand& command, const std::string& key) {
  for (const SweptOption& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), key) != option.names.end()) return &option;
  }
  return nullptr;
}

bool read_switch(const std::string& key, const std::string& value) {
  if (value == "true" || value == "on" || value == "yes" || value == "1") return true;
  if (value == "false" || value == "off" || value == "no" || value == "0") return false;
  throw Error(fmt::format("--grid {} is '{}'; expected on or off", key, value), {}, ErrorKind::usage);
}

void check_keys(const SweptCommand& command, const std::vector<GridAxis>& axes,
                const std::vector<std::string>& sizes) {
  for (const GridAxis& axis : axes) {
    if (std::find(sizes.begin(), sizes.end(), axis.key) != sizes.end()) continue;
    const SweptOption* option = find_option(command, axis.key);
    if (option == nullptr) {
      std::vector<std::string> names = sizes;
      for (const SweptOption& o : command.options) names.push_back(o.names.front());
      const std::vector<std::string_view> views(names.begin(), names.end());
      const std::string near = nearest_name(axis.key, views);
      throw Error(fmt::format("--grid has the key '{}', which is no option of this command", axis.key),
                  near.empty() ? fmt::format("it takes {}", fmt::join(names, ", "))
                               : fmt::format("did you mean '{}'?", near),
                  ErrorKind::usage);
    }
    if (option->given)
      throw Error(fmt::format("{} is in --grid and given as --{} too", axis.key, axis.key), {},
                  ErrorKind::usage);
  }
}

// A folder for one cell's rows, gone when the cell is done.
class CellFolder {
 public:
  explicit CellFolder(const std::string& out) {
    std::string name = (fs::path(out) / "cell-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(fmt::format("cannot make a folder in {}", out), "name another folder with --out");
    path_ = name;
    std::error_code ignored;  // without its choices the cell runs with the defaults, and says so in `tuned`
    for (const auto& entry : fs::directory_iterator(out, ignored)) {
      if (entry.path().filename().string().starts_with("tune-"))
        fs::create_symlink(fs::absolute(entry.path()), path_ / entry.path().filename(), ignored);
    }
  }
  ~CellFolder() { remove_tree(path_.native()); }
  CellFolder(const CellFolder&) = delete;
  CellFolder& operator=(const CellFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

CellRun run_cell(const std::vector<std::string>& args, const std::string& out, double timeout,
                 const std::function<bool()>& stop) {
  const CellFolder folder(out);
  std::vector<std::string> all = {kOwnProgram};
  all.insert(all.end(), args.begin(), args.end());
  all.push_back("--out=" + folder.path());
  const ChildResult child = run_child(all, {.seconds = timeout, .stop = stop});
  CellRun run;
  run.rows = read_results(folder.path()).rows;
  run.status = child.status;
  run.signal = child.signal;
  run.timed_out = child.timed_out;
  run.stopped = child.stopped;
  run.seconds = child.seconds;
  run.reason = last_word(child.errors);
  if (run.timed_out || run.signal != 0) run.rows.clear();  // whole or not at all
  return run;
}

// In a copy of this process: what a check starts (CUDA, above all) would break the cells.
std::string check_cells(const std::vector<std::vector<std::string>>& cells, const std::string& device,
                        bool meta_too) {
  return in_a_copy([&] {
    for (std::vector<std::string> args : cells) {
      args.emplace_back("--dry-run");
      try {
        const Request request = parse_command_line(args);
        if (request.run) request.run();
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::usage) throw;  // the others are results of their cells
      }
    }
    std::string why_no_gpu;
    const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
    require_gpu(device, gpus, why_no_gpu);
    const Device where = Device::parse(device);
    if (where.is_meta() && !meta_too)
      throw Error("meta runs no kernels, so a sweep has no rows there", "use --device cpu or cuda",
                  ErrorKind::usage);
    return device_name(where);
  });
}

}  // namespace

bool belongs_to_the_sweep(std::string_view name) {
  constexpr std::array<std::string_view, 7> kOwn = {"grid",   "cell-timeout", "fresh", "dry-run",
                                                    "format", "export",       "help"};
  return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

void add_sweep_options(Command& command, SweepOptions& sweep) {
  command.opt("--grid", sweep.grid, "sweep an option over values, one process per cell; repeat for more keys")
      .value("KEY=A,B,...")
      .repeat()
      .not_in_config();
  command.opt("--cell-timeout", sweep.timeout, between(0.001, 1e7), "time limit of a cell, seconds")
      .not_in_config();
  if (command.options.find("--fresh") == nullptr)
    command.opt("--fresh", sweep.fresh, "measure stored cells again").not_in_config();
  command.opt("--dry-run", sweep.dry_run, "check the command line and measure nothing").not_in_config();
}

SweptCommand swept(const Command& command, const CommonOptions& common) {
  SweptCommand c;
  for (const Command* at = &command; at != nullptr; at = at->parent) c.args.insert(c.args.begin(), at->name);
  for (const Option& o : command.options.all()) {
    const std::string name = o.is_positional() ? "" : o.name().substr(2);
    if (name == "export" && !o.given().empty()) c.exported = o.given().back();
    if (belongs_to_the_sweep(name)) continue;
    if (!name.empty()) {
      SweptOption swept{{}, o.is_flag(), !o.given().empty()};
      for (const auto* names : {&o.names(), &o.old_names()})
        for (const std::string& n : *names) swept.names.push_back(n.substr(n.find_first_not_of('-')));
      c.options.push_back(std::move(swept));
    }
    for (const std::string& value : o.given())
      c.args.push_back(name.empty()                     ? value
                       : o.is_flag() && value == "true" ? "--" + name
                                                        : fmt::format("--{}={}", name, value));
  }
  c.args.push_back(fmt::format("--seed={}", common.seed));
  c.args.push_back(fmt::format("--device={}", common.device));
  return c;
}

std::vector<std::string> cell_args(const SweptCommand& command, const GridCell& cell,
                                   const std::vector<std::string>& sizes) {
  std::vector<std::string> args;
  std::string shape;
  for (const auto& [key, value] : cell) {
    if (std::find(sizes.begin(), sizes.end(), key) != sizes.end()) {
      shape += fmt::format("{}{}={}", shape.empty() ? "" : ",", key, value);
      continue;
    }
    const SweptOption* option = find_option(command, key);
    if (option != nullptr && option->flag) {
      if (read_switch(key, value)) args.push_back("--" + key);
    } else {
      args.push_back(fmt::format("--{}={}", key, value));
    }
  }
  if (!shape.empty()) args.push_back("--shape=" + shape);
  return args;
}

namespace {

// A cell's command line: the grid's sizes go into the --shape that was typed, if one was.
std::vector<std::string> whole_command(const SweptCommand& command, const SweepRequest& request,
                                       const GridCell& cell, const std::vector<std::string>& sizes) {
  std::vector<std::string> args = request.args;
  const auto is_shape = [](const std::string& w) { return w.starts_with("--shape="); };
  for (std::string& arg : cell_args(command, cell, sizes)) {
    const auto typed = std::find_if(args.begin(), args.end(), is_shape);
    if (!is_shape(arg) || typed == args.end()) {
      args.push_back(std::move(arg));
      continue;
    }
    if (std::count_if(args.begin(), args.end(), is_shape) > 1)
      throw Error("--grid has sizes, and --shape is given several times; expected one of them", {},
                  ErrorKind::usage);
    *typed += "," + arg.substr(std::string("--shape=").size());  // the sizes the grid leaves alone
  }
  return args;
}

SweepRequest sweep_request(const SweepOptions& options, const SweptCommand& command,
                           const CommonOptions& common, const std::vector<std::string>& sizes,
                           const std::vector<GridAxis>& own) {
  SweepRequest request;
  request.axes = read_axes(options.grid);
  check_keys(command, request.axes, sizes);
  request.args = command.args;
  for (const GridAxis& axis : own) {
    std::erase_if(request.args,
                  [&](const std::string& w) { return w.starts_with(fmt::format("--{}=", axis.key)); });
    request.axes.push_back(axis);
  }
  for (const std::string& arg : request.args) {
    if (arg.starts_with("-")) break;
    request.command += (request.command.empty() ? "" : " ") + arg;
  }
  request.out = common.out;
  request.fresh = options.fresh;
  request.timeout = options.timeout;
  return request;
}

// The pages are out; what failed makes the command's exit code.
void throw_if_failed(const SweepReport& report) {
  for (const SweepCell& cell : report.cells) {
    if (cell.status == RowStatus::unavailable && !report.any_done())
      throw Error(fmt::format("{}: {}", str(cell.values), cell.reason), {}, ErrorKind::unavailable);
    if (cell.status == RowStatus::failed)
      throw Error(fmt::format("{}: {}", str(cell.values), cell.reason),
                  "the other cells are kept; run it again");
  }
  const auto missed = std::find_if(report.cells.begin(), report.cells.end(), [](const SweepCell& cell) {
    return cell.status == RowStatus::timeout || cell.status == RowStatus::oom ||
           cell.status == RowStatus::unsupported;
  });
  if (!report.any_done() && !report.stopped() && missed != report.cells.end())
    throw Error(fmt::format("no cell was measured; {}: {}", str(missed->values), missed->reason));
}

}  // namespace

void run_bench_sweep(const SweepOptions& options, const SweptCommand& command, const CommonOptions& common,
                     PageFormat format, const std::vector<std::string>& sizes,
                     const std::vector<GridAxis>& own) {
  SweepRequest request = sweep_request(options, command, common, sizes, own);
  const auto args_of = [&](const GridCell& cell) { return whole_command(command, request, cell, sizes); };
  std::vector<std::vector<std::string>> all;
  for (const GridCell& cell : cells_of(request.axes)) all.push_back(args_of(cell));
  request.place =
      fmt::format("{}\n{}", check_cells(all, common.device, options.meta_too), build_info().build_id);
  if (options.dry_run) return;

  SweepReport report;
  {
    const SharedCeilings shared;
    const StopOnSignals signals;
    const BenchProgress progress;
    auto stop = [] { return stop_requested().load(); };
    report = run_sweep(request, {[&](const GridCell& cell) {
                                   return run_cell(args_of(cell), common.out, request.timeout, stop);
                                 },
                                 [&](const std::string& text) { progress(text); }, stop});
  }
  print_page(sweep_page(report, common.wide), format, common.wide);
  if (!command.exported.empty() && read_chart_export(command.exported))
    write_step_charts(common.out, report.rows());
  if (format == PageFormat::csv || format == PageFormat::json) {
    for (const std::string& line : report.notes) fmt::print(stderr, "{}\n", line);
  }
  throw_if_failed(report);
}

}  // namespace kiln::cli
