// A command, apart from its parsing: its options, its sub-commands, its work. To add
// one: write cmd_<name>.cpp with an add_<name>() and give it a line in commands.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace kiln::cli {

// Options every command takes.
struct CommonOptions {
  bool json = false;  // one JSON document on stdout, everything else on stderr
  bool wide = false;  // every column
  std::uint64_t seed = 0;
  std::string device = "auto";  // checked: cpu, cuda, cuda:N, meta or auto
  std::string out = "runs";
  bool out_given = false;
  std::string config;  // the file the options were read from first; empty: none
};

class Command {
 public:
  Command(std::string name, std::string summary, std::string example)
      : name(std::move(name)), summary(std::move(summary)), example(std::move(example)) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // A sub-command: `kiln bench step`.
  Command& sub(std::string_view sub_name, std::string_view sub_summary, std::string_view sub_example);
  std::string full_name() const;  // "kiln bench step"

  template <class... Args>
  Option& opt(Args&&... args) {
    return options.opt(std::forward<Args>(args)...);
  }

  std::string name, summary, example;
  std::string note;  // above the example in --help
  Options options;
  std::function<void()> run;  // throws kiln::Error; stdout belongs to the result
  std::string needs;          // of one that only has sub-commands: "the name of a study"
  std::list<Command> subs;    // commands stay where they are: options refer to them
  Command* parent = nullptr;
  bool takes_parents_options = false;  // a sub-command of one that does work of its own
};

struct CommandEntry {
  std::string_view name, summary, example;
  // Adds options, sub-commands and run(); `common` is filled in before run() is called and outlives it.
  void (*add)(Command& command, const CommonOptions& common);
  bool hidden = false;  // for who builds or packages kiln: not in `kiln --help`
};

std::span<const CommandEntry> commands();

}  // namespace kiln::cli
