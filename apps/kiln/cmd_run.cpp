// kiln run: starts the ranks of a command on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "dist/launch/launch.h"
#include "dist/launch/rank_limit.h"
#include "dist/launch/ranks.h"
#include "dist/launch/transports.h"
#include "kiln/command.h"
#include "kiln/command_line.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/rank_options.h"

namespace kiln::cli {
namespace {

struct Asked {
  LaunchRequest launch;
  std::vector<std::string> args;  // of the command to start
};

// Of ranks that fail: the calls they made last, a file each.
std::string flight_folder(const std::string& out) {
  return (std::filesystem::absolute(out) / "flight").string();
}

// In this process: the command itself starts the threads.
void run_threads(const LaunchRequest& launch, const std::vector<std::string>& command) {
  ::setenv(kTransportVariable, "threads", 1);
  ::setenv(kRanksVariable, std::to_string(launch.ranks).c_str(), 1);
  ::setenv(kTimeoutVariable, number_text(launch.timeout).c_str(), 1);
  ::setenv(kFlightVariable, launch.flight_folder.c_str(), 1);
  if (launch.oversubscribe) ::setenv(kOversubscribeVariable, "1", 1);
  const Request request = parse_command_line(command);
  if (request.run) {
    request.run();
  } else {
    std::fputs(request.text.c_str(), stdout);
  }
}

// Any other command would run as often as there are ranks, each printing its page into the others'.
void check_command(const std::vector<std::string>& args) {
  const auto has = [&](const char* word) { return std::find(args.begin(), args.end(), word) != args.end(); };
  const std::string& name = args.front();
  if (name == "run") throw Error("kiln run cannot start kiln run", {}, ErrorKind::usage);
  const bool bench = name == "bench" && (has("allreduce") || has("ddp") || has("zero") || has("fsdp"));
  if (name == "train" || (name == "doctor" && has("--collectives")) || bench || has("--help") || has("-h"))
    return;
  const bool two_args = args.size() > 1 && (name == "bench" || name == "doctor");
  throw Error(fmt::format("kiln {}{} is no command of several ranks", name, two_args ? " " + args[1] : ""),
              "train, doctor --collectives and bench allreduce, ddp, zero and fsdp are", ErrorKind::usage);
}

// What was said before `--` and means the command.
std::vector<std::string> with_common(std::vector<std::string> args, const CommonOptions& common) {
  if (common.json) args.emplace_back("--json");
  if (common.wide) args.emplace_back("--wide");
  if (common.device != "auto") args.insert(args.end(), {"--device", common.device});
  if (common.seed != 0) args.insert(args.end(), {"--seed", std::to_string(common.seed)});
  return args;
}

// What the command asks for itself, behind the dashes or in its --config, unless `kiln run` says it.
std::string transport_of(const Command& run, const LaunchRequest& launch, const Command& command) {
  const Option* const option = command.options.find("--transport");
  if (option == nullptr || option->given().size() != 1) return launch.transport;
  const std::string& wanted = option->given().front();
  if (wanted == "auto" || wanted.find(',') != std::string::npos) return launch.transport;
  if (was_given(run, "--transport") && wanted != launch.transport)
    throw Error(fmt::format("--transport is {} before `--` and {} after it", launch.transport, wanted),
                "leave one of them out", ErrorKind::usage);
  return wanted;
}

// A second signal ends this process as well, but first all that it has started.
void start_processes(LaunchRequest& launch, const std::vector<std::string>& command) {
  launch.command = {std::filesystem::read_symlink(kOwnProgram).string()};
  launch.command.insert(launch.command.end(), command.begin(), command.end());
  const StopOnSignals signals(SecondSignal::noted);
  launch.stop = [] { return stop_requested().load(); };
  launch.end_now = [] { return StopOnSignals::second() != 0; };
  try {
    launch_ranks(launch);
  } catch (const Error&) {
    if (const int second = StopOnSignals::second(); second != 0) StopOnSignals::end_by(second);
    throw;
  }
}

void run_run(Asked& asked, const Command& own, const CommonOptions& common) {
  std::vector<std::string> command = asked.args;
  if (!command.empty() && command.front() == "kiln") command.erase(command.begin());
  if (command.empty())
    throw Error("kiln run needs a command after `--`", "kiln run --nproc 4 -- doctor --collectives",
                ErrorKind::usage);
  check_command(command);
  command = with_common(std::move(command), common);
  if (std::getenv(kLaunchFolderVariable) != nullptr)
    throw Error("kiln run was started by kiln run", "one of them is enough", ErrorKind::usage);
  LaunchRequest& launch = asked.launch;
  launch.flight_folder = flight_folder(common.out);
  check_rank_count("--nproc", ranks_of_a_machine(launch.ranks, launch.hosts), launch.oversubscribe);
  const Request request = parse_command_line(command);  // a wrong option is reported once, not by every rank
  if (request.command != nullptr) launch.transport = transport_of(own, launch, *request.command);
  if (!find_transport(launch.transport).processes) return run_threads(launch, command);
  start_processes(launch, command);
}

}  // namespace

void add_run(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  LaunchRequest& r = asked->launch;
  c.opt("--nproc,-n", r.ranks, between(1, 1 << 16), "number of ranks").required().no_default();
  c.opt("--transport", r.transport, transport_names(), transport_list())
      .unset("the command's own, or mpi")
      .no_default();
  c.opt("--comm-timeout", r.timeout, between(0.1, 1e6), "timeout of collectives, seconds").value("S");
  c.opt("--oversubscribe", r.oversubscribe, "more than 4 ranks to a core");
  c.opt("--grace", r.grace, between(0.0, 1e6),
        "after a signal: how long ranks have to finish their step and save, seconds")
      .value("S");
  c.opt("--host", r.hosts, "machines, in the form of mpirun's --host").value("A,B").unset("this one");
  c.opt("--word", asked->args, "argument after `--`").repeat().hidden().not_in_config();
  c.run = [asked, &c, &common] { run_run(*asked, c, common); };
}

}  // namespace kiln::cli
