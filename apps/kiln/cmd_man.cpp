// kiln man: the manual page, made of the declarations of commands and options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "base/build_info.h"
#include "kiln/command.h"
#include "kiln/command_line.h"

namespace kiln::cli {
namespace {

// Text as roff takes it: no character of it is a command, and a dash is one that can be searched for.
std::string roff(std::string_view text) {
  std::string all;
  for (const char c : text) {
    if (c == '\\') {
      all += "\\e";
    } else if (c == '-') {
      all += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (all.empty() || all.back() == '\n')) all += "\\&";
      all += c;
    }
  }
  return all;
}

std::string option_entry(const Option& o) {
  std::vector<std::string> names;
  for (const std::string& name : o.names())
    names.push_back(o.is_positional() ? fmt::format("\\fI{}\\fR", roff(name))
                                      : fmt::format("\\fB{}\\fR", roff(name)));
  std::string entry = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (!o.is_flag() && !o.is_positional()) entry += fmt::format(" \\fI{}\\fR", roff(o.value_name()));
  return fmt::format("{}\n{}\n", entry, roff(o.help()));
}

std::string option_list(const Options& options) {
  std::string text;
  for (const Option& o : options.all())
    if (!o.is_hidden()) text += option_entry(o);
  return text;
}

std::string command_entry(const Command& command) {
  std::string text = fmt::format(".SS \"{}\"\n{}.\n", roff(command.full_name()), roff(command.summary));
  if (!command.note.empty()) text += fmt::format(".PP\n{}\n", roff(command.note));
  text += option_list(command.options);
  text += fmt::format(".PP\nExample:\n.PP\n.RS\n.nf\n{}\n.fi\n.RE\n", roff(command.example));
  for (const Command& sub : command.subs) text += command_entry(sub);
  return text;
}

// No date: the same kiln writes the same page.
constexpr const char* kBegin = R"(.TH KILN 1 "" "kiln @VERSION@" "User Commands"
.SH NAME
kiln \- trains LLaMA\-style transformers and shows why it is fast
.SH SYNOPSIS
.B kiln
.I COMMAND
.RI [ options ]
.br
.B kiln
.I COMMAND
.B \-\-help
.br
.B kiln \-\-version
.SH DESCRIPTION
kiln predicts what a training run will do, does it at full speed, and explains the difference: on one GPU, on
many, or on none.
Every optimization is a named variant next to its naive baseline: checked against it, timed, profiled,
and its memory traced.
)";

constexpr const char* kEnd = R"(.SH EXIT STATUS
0 done, also after Ctrl\-C or SIGTERM, which end a run after its step; 1 failed; 2 wrong usage; 3 not available
on this machine; 130 or 143 after a second signal.
.SH FILES
.TP
.I runs/results.jsonl
Every figure that was measured, a JSON object each; \fBkiln report\fR makes a page of them.
.TP
.I runs/NAME/
A training run: its options (run.json), metrics.jsonl, TensorBoard's files and checkpoints.
.SH SEE ALSO
The documents in the source tree, docs/index.md first.
)";

std::string man_page() {
  std::string text = kBegin;
  const std::string_view mark = "@VERSION@";
  text.replace(text.find(mark), mark.size(), build_info().version);
  const std::list<DeclaredCommand> all = declared_commands();
  text += ".SH OPTIONS OF EVERY COMMAND\n" + option_list(all.front().common_options);
  text += ".TP\n\\fB\\-\\-help\\fR\nWhat the command does, its options and an example.\n.SH COMMANDS\n";
  for (const DeclaredCommand& d : all)
    if (!d.hidden) text += command_entry(d.command);
  return text + kEnd;
}

}  // namespace

void add_man(Command& command, const CommonOptions&) {
  command.run = [] { std::fputs(man_page().c_str(), stdout); };
}

}  // namespace kiln::cli
