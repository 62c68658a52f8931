#include "kiln/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <list>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "base/nearest_name.h"

namespace kiln::cli {
namespace {

[[noreturn]] void throw_usage(const std::string& what, std::string hint = {}) {
  throw Error(what, std::move(hint), ErrorKind::usage);
}

// A suggestion says all there is to say; without one, point at the help.
[[noreturn]] void throw_unknown(std::string_view what, std::string_view seen,
                                const std::vector<std::string>& names, std::string_view help_command) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest_name(seen, views);
  throw_usage(
      fmt::format("{} '{}'{}", what, seen, near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
      near.empty() ? fmt::format("see `{} --help`", help_command) : "");
}

// One command as CLI11 has it. What was typed stays text: CLI11's own conversions answer a wrong value
// without saying what was expected.
struct ParsedCommand {
  Command* command = nullptr;
  CLI::App* app = nullptr;
  std::list<std::pair<Option*, CLI::Option*>> bound;  // an option once for each group of its spellings
  std::list<std::string> words;                       // what CLI11 writes to
  std::list<std::vector<std::string>> lists;
  std::list<ParsedCommand> subs;
};

std::string comma_separated(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

CLI::Option* bind(ParsedCommand& p, Option& o, const std::vector<std::string>& names) {
  CLI::Option* bound = nullptr;
  const std::string help = o.help();
  if (o.is_flag()) {
    bound = p.app->add_flag(comma_separated(names), help);
  } else if (o.is_repeated() || (o.is_positional() && o.value_name().ends_with("..."))) {
    bound = p.app->add_option(comma_separated(names), p.lists.emplace_back(), help);
    if (!o.is_positional()) bound->allow_extra_args(false);
  } else {
    bound = p.app->add_option(comma_separated(names), p.words.emplace_back(), help);
  }
  if (!o.is_flag()) bound->type_name(o.is_positional() ? "" : o.value_name());
  if (!o.alone_value().empty()) bound->expected(0, 1);
  // How often it may stand is ours to say: of a former spelling CLI11 does not name any.
  if (!o.is_flag() && !o.is_positional() && !o.is_repeated())
    bound->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  p.bound.emplace_back(&o, bound);
  return bound;
}

// A command's own options go before common ones of the same name (convert's old --config).
void bind_all(ParsedCommand& p, Options& options) {
  for (Option& o : options.all()) {
    if (p.app->get_option_no_throw(o.name()) != nullptr) continue;
    CLI::Option* shown = bind(p, o, o.names());
    if (o.is_hidden()) shown->group("");
    if (o.is_required() && o.is_positional()) shown->required();
    for (const std::string& old_name : o.old_names()) bind(p, o, {old_name})->group("");
  }
}

void bind_tree(ParsedCommand& p, Command& command, CLI::App& app) {
  p.command = &command;
  p.app = &app;
  bind_all(p, command.options);
  if (command.takes_parents_options) bind_all(p, command.parent->options);
  std::string footer = command.note.empty() ? "" : command.note + "\n\n";
  if (command.parent != nullptr)
    footer +=
        "It also takes --json, --wide, --seed, --device, --out and --config, as every command does.\n\n";
  app.footer(fmt::format("{}Example:\n  {}", footer, command.example));
  if (!command.subs.empty()) app.require_subcommand(0, 1);  // so that `bench op attention` means the op
  for (Command& sub : command.subs) {
    CLI::App* sub_app = app.add_subcommand(sub.name, sub.summary);
    sub_app->fallthrough();  // --json and its like belong to every command
    bind_tree(p.subs.emplace_back(), sub, *sub_app);
  }
}

const ParsedCommand& innermost(const ParsedCommand& p) {
  for (const ParsedCommand& sub : p.subs)
    if (sub.app->parsed()) return innermost(sub);
  return p;
}

// The innermost subcommand that was given: its options are the ones the user meant.
const CLI::App& innermost(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.back());
}

// "kiln tune attention": as it was called.
std::string full_name(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app.get_name() : fmt::format("{} {}", app.get_name(), full_name(*given.back()));
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// "kiln bench needs the name of a study: op, step or warmup"
[[noreturn]] void throw_needs_name(const CLI::App& app, const std::string& needs) {
  std::vector<std::string> names = subcommand_names(app);
  const std::string last = names.empty() ? "" : names.back();
  if (!names.empty()) names.pop_back();
  throw_usage(fmt::format("{} needs {}: {}{}{}",
                          app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()), needs,
                          fmt::join(names, ", "), names.empty() ? "" : " or ", last),
              fmt::format("see `{} --help`",
                          app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent())));
}

// The error of the first unexpected argument, if there is one.
void reject_leftover(const CLI::App& app) {
  std::vector<std::string> left = app.remaining(true);
  std::erase(left, "--");
  if (left.empty()) return;
  const CLI::App& inner = innermost(app);
  const std::string seen = left.front().substr(0, left.front().find('='));
  std::vector<std::string> options = option_names(inner);
  if (&inner != &app) {  // the common options work there too
    for (std::string& name : option_names(app)) options.push_back(std::move(name));
  }
  const bool known = std::find(options.begin(), options.end(), seen) != options.end();  // it came after "--"
  if (seen.size() > 1 && seen.front() == '-' && !known)
    throw_unknown("unknown option", seen, options, full_name(app));
  const bool takes_text = std::find(options.begin(), options.end(), "--text") != options.end();
  std::error_code ignored;
  if (takes_text && std::filesystem::exists(left.front(), ignored))
    throw_usage(fmt::format("unexpected argument '{}'", left.front()),
                fmt::format("to read it, say --text {}", left.front()));
  throw_unknown("unexpected argument", left.front(), subcommand_names(inner), full_name(app));
}

// An old spelling is reported once, however often it is used.
void tell_old_names(const ParsedCommand& p) {
  for (const auto& [option, bound] : p.bound) {
    const auto& names = bound->get_lnames();
    if (bound->count() == 0 || names.empty()) continue;
    const auto& was = option->old_names();
    const std::string name = "--" + names.front();
    if (std::find(was.begin(), was.end(), name) != was.end() && p.command->options.tell_old_name)
      p.command->options.tell_old_name(fmt::format("{} is now {}", name, option->name()));
  }
}

std::string spelling(const CLI::Option& bound, const Option& option) {
  return bound.get_lnames().empty() ? option.name() : "--" + bound.get_lnames().front();
}

// An option that takes one value, given twice: by one spelling, or by two.
void reject_twice(const ParsedCommand& p) {
  for (const auto& [option, bound] : p.bound) {
    if (option->is_repeated() || option->is_positional() || bound->count() == 0) continue;
    for (const auto& [other, other_bound] : p.bound)
      if (other == option && other_bound != bound && other_bound->count() > 0)
        throw_usage(fmt::format("{} and {} are both given, and are one option; expected one of them",
                                spelling(*bound, *option), spelling(*other_bound, *option)),
                    fmt::format("leave out {}", spelling(*other_bound, *option)));
    if (bound->count() > 1 && !option->is_flag())
      throw_usage(
          fmt::format("{} is given {} times; expected once", spelling(*bound, *option), bound->count()),
          option->value_name().ends_with(",...") ? "several values are one list, with commas"
                                                 : "leave out all but one");
  }
}

// The error of an option at the end, or before another one, where its value should be.
void reject_without_value(const ParsedCommand& p, std::span<const std::string> args) {
  for (const auto& [option, bound] : p.bound) {
    if (option->is_flag() || option->is_positional() || !option->alone_value().empty()) continue;
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (!args[i].starts_with("--") || !bound->check_name(args[i])) continue;
      if (i + 1 < args.size() && !args[i + 1].starts_with("--")) continue;
      throw_usage(fmt::format("{} has no value; expected {}", args[i], option->value_name()),
                  fmt::format("see `{} --help`", p.command->full_name()));
    }
  }
  for (const ParsedCommand& sub : p.subs)
    if (sub.app->parsed()) reject_without_value(sub, args);
}

const std::string* typed(const ParsedCommand& p, std::string_view name) {
  for (const auto& [option, bound] : p.bound)
    if (option->name() == name && bound->count() > 0) return &bound->results().back();
  return nullptr;
}

void reject_either_or(const ParsedCommand& p) {
  for (const auto& [option, bound] : p.bound) {
    if (bound->count() == 0 || option->other().empty() || typed(p, option->other()) == nullptr) continue;
    throw_usage(
        fmt::format("{} and {} are both given; expected one of them", option->other(), option->name()),
        fmt::format("leave out {}", option->other()));
  }
}

void read_texts(const ParsedCommand& p) {
  reject_twice(p);
  reject_either_or(p);
  for (const auto& [option, bound] : p.bound) {
    if (bound->count() == 0) continue;
    // CLI11 has no word where an option that may stand alone does.
    const bool alone =
        !option->alone_value().empty() && (bound->results().empty() || bound->results().front().empty());
    if (alone) option->read(option->alone_value());
    for (std::size_t i = 0; i < bound->results().size() && !alone; ++i) option->read(bound->results()[i]);
  }
  tell_old_names(p);
  for (const ParsedCommand& sub : p.subs)
    if (sub.app->parsed()) read_texts(sub);
}

// The options of a run config are those of the commands that were named, and the common ones; of two with the
// same key the inner command's.
void read_config(const ParsedCommand& root, Options& common, const std::string& path) {
  const std::string text = read_small_file(path, std::size_t{1} << 20, "a run config");
  const Json document = parse_json(text, {.max_values = 10'000, .comments = true}, path);
  const JsonValue config(document, path);
  std::vector<Options*> known = {&common};
  for (const ParsedCommand* p = &root;;) {
    if (&p->command->options != &common) known.push_back(&p->command->options);
    const auto next = std::find_if(p->subs.begin(), p->subs.end(),
                                   [](const ParsedCommand& sub) { return sub.app->parsed(); });
    if (next == p->subs.end()) break;
    p = &*next;
  }
  std::reverse(known.begin(), known.end());
  try {
    read_options(known, config);
  } catch (const Error& error) {  // a wrong word, whether it was typed here or into a file
    throw Error(error.what(), error.hint(), ErrorKind::usage);
  }
}

}  // namespace

ParsedArguments parse_arguments(Command& command, Options& common, std::span<const std::string> args) {
  CLI::App app(command.summary, command.full_name());
  app.allow_extras();  // so that we, not CLI11, word the complaint about them
  ParsedCommand root;
  root.app = &app;
  root.command = &command;
  bind_tree(root, command, app);
  bind_all(root, common);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 wants the last one first
  } catch (const CLI::CallForHelp&) {
    return {app.help(), nullptr};
  } catch (const CLI::CallForAllHelp&) {
    return {app.help("", CLI::AppFormatMode::All), nullptr};
  } catch (const CLI::ParseError& error) {
    reject_leftover(app);  // a mistyped option is the likelier cause of a required one being absent
    reject_without_value(root, args);
    throw_usage(error.what(), fmt::format("see `{} --help`", full_name(app)));
  }
  reject_leftover(app);
  if (const std::string* path = typed(root, "--config")) read_config(root, common, *path);
  read_texts(root);
  const ParsedCommand& inner = innermost(root);
  if (!inner.command->run) throw_needs_name(*inner.app, inner.command->needs);
  for (const auto& [option, bound] : inner.bound) {
    if (option->is_required() && option->given().empty())
      throw_usage(fmt::format("{} is required", option->name()),
                  fmt::format("see `{} --help`", inner.command->full_name()));
  }
  return {{}, inner.command};
}

}  // namespace kiln::cli
