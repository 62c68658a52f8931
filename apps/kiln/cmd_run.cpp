// kiln run: starts the ranks of a command on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "dist/launch/launch.h"
#include "dist/launch/ranks.h"
#include "kiln/bench_options.h"
#include "kiln/cmd.h"
#include "kiln/command_line.h"
#include "base/parse_number.h"
#include "kiln/console/stop_on_signals.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string ranks, transport = "mpi", timeout = "60", hosts;
  std::vector<std::string> command;
};

// Of ranks that fail: the calls they made last, a file each.
std::string flight_folder(const std::string& out) {
  return (std::filesystem::absolute(out) / "flight").string();
}

// In this process: the command itself starts the threads.
void run_threads(const Typed& t, int ranks, const std::string& flight,
                 const std::vector<std::string>& command) {
  ::setenv(kTransportVariable, "threads", 1);
  ::setenv(kRanksVariable, std::to_string(ranks).c_str(), 1);
  ::setenv(kTimeoutVariable, t.timeout.c_str(), 1);
  ::setenv(kFlightVariable, flight.c_str(), 1);
  const Request request = parse_command_line(command);
  if (request.run) {
    request.run();
  } else {
    std::fputs(request.text.c_str(), stdout);
  }
}

// Any other command would run as often as there are ranks, each printing its page into the others'.
void check_command(const std::vector<std::string>& words) {
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const std::string& name = words.front();
  if (name == "run") throw Error("kiln run cannot start kiln run", {}, ErrorKind::usage);
  const bool bench = name == "bench" && (has("allreduce") || has("ddp") || has("zero") || has("fsdp"));
  if (name == "train" || (name == "doctor" && has("--collectives")) || bench || has("--help") || has("-h"))
    return;
  const bool two_words = words.size() > 1 && (name == "bench" || name == "doctor");
  throw Error(fmt::format("kiln {}{} is no command of several ranks", name, two_words ? " " + words[1] : ""),
              "train, doctor --collectives and bench allreduce, ddp, zero and fsdp are", ErrorKind::usage);
}

// What was said before `--` and means the command.
std::vector<std::string> with_common(std::vector<std::string> words, const CommonOptions& common) {
  if (common.json) words.emplace_back("--json");
  if (common.device != "auto") words.insert(words.end(), {"--device", common.device});
  if (common.seed != 0) words.insert(words.end(), {"--seed", std::to_string(common.seed)});
  return words;
}

void run_run(const Typed& t, const CommonOptions& common) {
  const std::string& out = common.out;
  const int ranks = parse_number<int>("--nproc", t.ranks, 1, 1 << 16);
  index_of("--transport", t.transport, {"mpi", "threads", "nccl"});
  const double timeout = parse_number<double>("--comm-timeout", t.timeout, 0.1, 1e6);
  std::vector<std::string> command = t.command;
  if (!command.empty() && command.front() == "kiln") command.erase(command.begin());
  if (command.empty())
    throw Error("kiln run needs a command after `--`", "kiln run --nproc 4 -- doctor --collectives",
                ErrorKind::usage);
  check_command(command);
  command = with_common(std::move(command), common);
  if (std::getenv(kLaunchFolderVariable) != nullptr)
    throw Error("kiln run was started by kiln run", "one of them is enough", ErrorKind::usage);
  if (t.transport == "threads") return run_threads(t, ranks, flight_folder(out), command);
  (void)parse_command_line(command);  // a wrong word is told once, and not by every rank
  LaunchRequest request;
  request.ranks = ranks;
  request.transport = t.transport;
  request.timeout = timeout;
  request.hosts = t.hosts;
  request.flight_folder = flight_folder(out);
  request.command = {std::filesystem::read_symlink(kOwnProgram).string()};
  request.command.insert(request.command.end(), command.begin(), command.end());
  const StopOnSignals signals;
  request.stop = [] { return stop_requested().load(); };
  launch_ranks(request);
}

}  // namespace

CommandBody add_run(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  app.add_option("--nproc,-n", t->ranks, "How many ranks")->type_name("N")->required();
  app.add_option("--transport", t->transport, "mpi (default), threads or nccl")->type_name("NAME");
  app.add_option("--comm-timeout", t->timeout,
                 "Seconds a rank waits for the others in a collective (default 60)")
      ->type_name("S");
  app.add_option("--host", t->hosts, "Machines, as mpirun's --host has them (default this one)")
      ->type_name("A,B");
  app.add_option("--word", t->command, "A word after `--`")->allow_extra_args(false)->group("");
  return [t, &common] { run_run(*t, common); };
}

}  // namespace kiln::cli
