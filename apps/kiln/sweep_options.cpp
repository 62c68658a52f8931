#include "kiln/sweep_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/build_info.h"
#include "base/child_process.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "kiln/bench_charts.h"
#include "kiln/bench_options.h"
#include "studies/place.h"
#include "kiln/command_line.h"
#include "base/one_line.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "studies/sweep/sweep.h"
#include "kiln/sweep_pages.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

// What a cell does not inherit: the sweep itself, how its page is written, where its rows go.
bool belongs_to_the_sweep(const std::string& name) {
  constexpr std::array kOwn = {"grid", "cell-timeout", "fresh", "dry-run", "format", "export", "help"};
  return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

std::string long_name(const CLI::Option& option) {
  return option.get_lnames().empty() ? std::string() : option.get_lnames().front();
}

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

const CLI::Option* find_option(const CLI::App& command, const std::string& key) {
  for (const CLI::Option* option : command.get_options()) {
    const auto& names = option->get_lnames();
    if (std::find(names.begin(), names.end(), key) != names.end() &&
        !belongs_to_the_sweep(long_name(*option)))
      return option;
  }
  return nullptr;
}

bool read_switch(const std::string& key, const std::string& value) {
  if (value == "true" || value == "on" || value == "yes" || value == "1") return true;
  if (value == "false" || value == "off" || value == "no" || value == "0") return false;
  throw Error(fmt::format("--grid {} is '{}'; expected on or off", key, value), {}, ErrorKind::usage);
}

void check_keys(const CLI::App& command, const std::vector<GridAxis>& axes,
                const std::vector<std::string>& sizes) {
  for (const GridAxis& axis : axes) {
    if (std::find(sizes.begin(), sizes.end(), axis.key) != sizes.end()) continue;
    const CLI::Option* option = find_option(command, axis.key);
    if (option == nullptr) {
      std::vector<std::string> names = sizes;
      for (const CLI::Option* o : command.get_options()) {
        if (!long_name(*o).empty() && !belongs_to_the_sweep(long_name(*o))) names.push_back(long_name(*o));
      }
      const std::vector<std::string_view> views(names.begin(), names.end());
      const std::string near = nearest_name(axis.key, views);
      throw Error(fmt::format("--grid has the key '{}', which is no option of this command", axis.key),
                  near.empty() ? fmt::format("it takes {}", fmt::join(names, ", "))
                               : fmt::format("did you mean '{}'?", near),
                  ErrorKind::usage);
    }
    if (option->count() > 0)
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
  ~CellFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  CellFolder(const CellFolder&) = delete;
  CellFolder& operator=(const CellFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

CellRun run_cell(const std::vector<std::string>& words, const std::string& out, double timeout,
                 const std::function<bool()>& stop) {
  const CellFolder folder(out);
  std::vector<std::string> all = {kOwnProgram};
  all.insert(all.end(), words.begin(), words.end());
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

// In a copy of this process: what a check starts (CUDA, above all) would stand in the cells' way.
std::string check_cells(const std::vector<std::vector<std::string>>& cells, const std::string& device) {
  return in_a_copy([&] {
    for (std::vector<std::string> words : cells) {
      words.emplace_back("--dry-run");
      try {
        const Request request = parse_command_line(words);
        if (request.run) request.run();
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::usage) throw;  // the others are results of their cells
      }
    }
    std::string why_no_gpu;
    const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
    require_gpu(device, gpus, why_no_gpu);
    const Device where = Device::parse(device);
    if (where.is_meta())
      throw Error("meta runs no kernels, so a sweep has no rows there", "use --device cpu or cuda",
                  ErrorKind::usage);
    return device_name(where);
  });
}

}  // namespace

std::shared_ptr<SweepOptions> add_sweep_options(CLI::App* command) {
  auto o = std::make_shared<SweepOptions>();
  command
      ->add_option("--grid", o->grid,
                   "Sweep an option over values, each cell in a process; once for each key")
      ->type_name("KEY=A,B,...")
      ->allow_extra_args(false);
  command
      ->add_option("--cell-timeout", o->timeout,
                   "Seconds until a cell of the sweep is given up (default 600)")
      ->type_name("X");
  command->add_flag("--fresh", o->fresh, "Measure cells again that an earlier sweep has stored");
  command->add_flag("--dry-run", o->dry_run, "Check the command line, measure nothing");
  return o;
}

std::vector<std::string> shared_words(const CLI::App& command, const CommonOptions& common) {
  std::vector<std::string> words;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    const std::string& name = app->get_name();  // the outermost is "kiln bench"
    words.insert(words.begin(), name.substr(name.find(' ') + 1));
  }
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = long_name(*option);
    if (option->count() == 0 || belongs_to_the_sweep(name)) continue;
    if (is_flag(*option)) {
      words.push_back("--" + name);
      continue;
    }
    for (const std::string& value : option->results())
      words.push_back(name.empty() ? value : fmt::format("--{}={}", name, value));
  }
  words.push_back(fmt::format("--seed={}", common.seed));
  words.push_back(fmt::format("--device={}", common.device));
  return words;
}

std::vector<std::string> cell_words(const CLI::App& command, const GridCell& cell,
                                    const std::vector<std::string>& sizes) {
  std::vector<std::string> words;
  std::string shape;
  for (const auto& [key, value] : cell) {
    if (std::find(sizes.begin(), sizes.end(), key) != sizes.end()) {
      shape += fmt::format("{}{}={}", shape.empty() ? "" : ",", key, value);
      continue;
    }
    const CLI::Option* option = find_option(command, key);
    if (option != nullptr && is_flag(*option)) {
      if (read_switch(key, value)) words.push_back("--" + key);
    } else {
      words.push_back(fmt::format("--{}={}", key, value));
    }
  }
  if (!shape.empty()) words.push_back("--shape=" + shape);
  return words;
}

void run_bench_sweep(const SweepOptions& options, const CLI::App& command, const CommonOptions& common,
                     PageFormat format, const std::vector<std::string>& sizes,
                     const std::vector<GridAxis>& own) {
  SweepRequest request;
  request.axes = read_axes(options.grid);
  check_keys(command, request.axes, sizes);
  request.words = shared_words(command, common);
  for (const GridAxis& axis : own) {
    std::erase_if(request.words,
                  [&](const std::string& w) { return w.starts_with(fmt::format("--{}=", axis.key)); });
    request.axes.push_back(axis);
  }
  for (const std::string& word : request.words) {
    if (word.starts_with("-")) break;
    request.command += (request.command.empty() ? "" : " ") + word;
  }
  request.out = common.out;
  request.fresh = options.fresh;
  read_number<double>("--cell-timeout", options.timeout, 0.001, 1e7, request.timeout);
  auto words_of = [&](const GridCell& cell) {
    std::vector<std::string> words = request.words;
    for (std::string& word : cell_words(command, cell, sizes)) {
      auto is_shape = [](const std::string& w) { return w.starts_with("--shape="); };
      const auto typed = std::find_if(words.begin(), words.end(), is_shape);
      if (!is_shape(word) || typed == words.end()) {
        words.push_back(std::move(word));
        continue;
      }
      if (std::count_if(words.begin(), words.end(), is_shape) > 1)
        throw Error("--grid has sizes, and --shape is given several times; expected one of them", {},
                    ErrorKind::usage);
      *typed += "," + word.substr(std::string("--shape=").size());  // the sizes the grid leaves alone
    }
    return words;
  };
  std::vector<std::vector<std::string>> all;
  for (const GridCell& cell : cells_of(request.axes)) all.push_back(words_of(cell));
  request.place = fmt::format("{}\n{}", check_cells(all, common.device), build_info().build_id);
  if (options.dry_run) return;

  SweepReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    auto stop = [] { return stop_requested().load(); };
    report = run_sweep(request, {[&](const GridCell& cell) {
                                   return run_cell(words_of(cell), common.out, request.timeout, stop);
                                 },
                                 [&](const std::string& text) { progress(text); }, stop});
  }
  std::fputs(sweep_page(report, format).c_str(), stdout);
  const CLI::Option* pictures = command.get_option_no_throw("--export");
  if (pictures != nullptr && pictures->count() > 0 && read_chart_export(pictures->results().front()))
    write_step_charts(common.out, report.rows());
  if (format == PageFormat::csv || format == PageFormat::json) {
    for (const std::string& line : report.remarks) fmt::print(stderr, "{}\n", line);
  }
  for (const SweepCell& cell : report.cells) {
    if (cell.status == SweepCell::Status::unavailable && !report.any_done())
      throw Error(fmt::format("{}: {}", str(cell.values), cell.reason), {}, ErrorKind::unavailable);
    if (cell.status == SweepCell::Status::failed)
      throw Error(fmt::format("{}: {}", str(cell.values), cell.reason),
                  "the other cells are kept; run it again");
  }
  const auto missed = std::find_if(report.cells.begin(), report.cells.end(), [](const SweepCell& cell) {
    return cell.status == SweepCell::Status::timed_out || cell.status == SweepCell::Status::no_memory;
  });
  if (!report.any_done() && !report.stopped() && missed != report.cells.end())
    throw Error(fmt::format("no cell was measured; {}: {}", str(missed->values), missed->reason));
}

}  // namespace kiln::cli
