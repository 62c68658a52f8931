// What a command is. To add one: write cmd_<name>.cpp with an add_<name>() and give it a line in
// commands.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace kiln::cli {

// Options every command takes.
struct CommonOptions {
  bool json = false;  // one JSON document on stdout, everything else on stderr
  std::uint64_t seed = 0;
  std::string device = "auto";  // checked: cpu, cuda, cuda:N, meta or auto
  std::string out = "runs";
  bool out_given = false;
};

// The work of a command once its options are read. Throws kiln::Error; stdout belongs to its result.
using CommandBody = std::function<void()>;

struct Command {
  std::string_view name;
  std::string_view summary;  // one line of `kiln --help`
  std::string_view example;  // a whole command line, shown by `kiln <name> --help`
  // Adds the command's own options to `app`; `common` is filled in before the body runs and outlives it.
  CommandBody (*add)(CLI::App& app, const CommonOptions& common);
};

std::span<const Command> commands();

CommandBody add_ablate(CLI::App& app, const CommonOptions& common);
CommandBody add_bench(CLI::App& app, const CommonOptions& common);
CommandBody add_calc(CLI::App& app, const CommonOptions& common);
CommandBody add_convert(CLI::App& app, const CommonOptions& common);
CommandBody add_doctor(CLI::App& app, const CommonOptions& common);
CommandBody add_eval(CLI::App& app, const CommonOptions& common);
CommandBody add_memory(CLI::App& app, const CommonOptions& common);
CommandBody add_ops(CLI::App& app, const CommonOptions& common);
CommandBody add_precision(CLI::App& app, const CommonOptions& common);
CommandBody add_profile(CLI::App& app, const CommonOptions& common);
CommandBody add_report(CLI::App& app, const CommonOptions& common);
CommandBody add_residuals(CLI::App& app, const CommonOptions& common);
CommandBody add_run(CLI::App& app, const CommonOptions& common);
CommandBody add_sample(CLI::App& app, const CommonOptions& common);
CommandBody add_sizes(CLI::App& app, const CommonOptions& common);
CommandBody add_study(CLI::App& app, const CommonOptions& common);
CommandBody add_tokenize(CLI::App& app, const CommonOptions& common);
CommandBody add_train(CLI::App& app, const CommonOptions& common);
CommandBody add_tune(CLI::App& app, const CommonOptions& common);

}  // namespace kiln::cli
