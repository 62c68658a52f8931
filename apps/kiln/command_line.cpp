#include "kiln/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "device/device.h"
#include "kiln/cmd.h"

namespace kiln::cli {
namespace {

// The option text is kept apart from the options themselves: CLI11's own conversions answer a wrong value
// without saying what was expected.
struct ParsedCommand {
  explicit ParsedCommand(const Command& command)
      : app(std::string(command.summary), fmt::format("kiln {}", command.name)) {}

  CLI::App app;
  CommonOptions common;
  std::string seed = "0";
  CommandBody body;
};

[[noreturn]] void throw_usage(const std::string& what, std::string hint = {}) {
  throw Error(what, std::move(hint), ErrorKind::usage);
}

// "; did you mean 'x'?" or nothing.
std::string suggestion(std::string_view wanted, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest_name(wanted, views);
  return near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
}

// A suggestion says all there is to say; without one, point at the help.
[[noreturn]] void throw_unknown(std::string_view what, std::string_view seen,
                                const std::vector<std::string>& names, std::string_view help_command) {
  const std::string near = suggestion(seen, names);
  throw_usage(fmt::format("{} '{}'{}", what, seen, near),
              near.empty() ? fmt::format("see `{} --help`", help_command) : "");
}

std::string program_help() {
  std::string text =
      "kiln trains LLaMA-style transformers and shows why it is fast.\n\nUsage: kiln COMMAND [options]\n\n"
      "Commands:\n";
  for (const Command& c : commands()) text += fmt::format("  {:<12}{}\n", c.name, c.summary);
  text +=
      "\nEvery command takes --json, --seed N, --device cpu|cuda|cuda:N|meta|meta:cuda|auto, --out DIR and "
      "--help.\n"
      "Commands that measure take --study 2025|2026: their own sweeps of kiln study.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not available on this machine.\n\n"
      "Example:\n  kiln doctor\n";
  return text;
}

std::string version_text() {
  const BuildInfo& b = build_info();
  return fmt::format("kiln {} ({}, {}, {}{}{})\n", b.version, b.build_id, b.build_type,
                     b.cuda ? "with CUDA" : "without CUDA", *b.sanitizers != '\0' ? ", sanitizers " : "",
                     b.sanitizers);
}

void add_common_options(ParsedCommand& c) {
  c.app.add_flag("--json", c.common.json, "One JSON document on stdout; everything else on stderr");
  c.app.add_option("--seed", c.seed, "Seed of all random numbers (default 0)")->type_name("N");
  c.app.add_option("--device", c.common.device, "cpu, cuda, cuda:N, meta, meta:cuda or auto (default auto)")
      ->type_name("NAME");
  c.app.add_option("--out", c.common.out, "Folder for results (default runs)")->type_name("DIR");
}

// The innermost subcommand that was given: its options are the ones the user meant.
const CLI::App& innermost(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.back());
}

// `kiln bench step --study 2025 --scale tiny` is `kiln study 2025 --command 'bench step' --scale tiny`;
// nothing where there is no --study.
std::vector<std::string> turned_into_study(std::span<const std::string> args) {
  const auto is_study = [](const std::string& a) { return a == "--study" || a.starts_with("--study="); };
  const auto at = std::find_if(args.begin(), args.end(), is_study);
  if (at == args.end() || std::find(args.begin(), at, "--") != at) return {};
  const auto options =
      std::find_if(args.begin(), args.end(), [](const auto& a) { return a.starts_with('-'); });
  std::vector<std::string> turned = {"study"};
  const bool joined = at->size() > std::string_view("--study").size();
  if (joined) turned.push_back(at->substr(std::string_view("--study=").size()));
  if (options != args.begin()) {
    turned.emplace_back("--command");
    turned.push_back(fmt::format("{}", fmt::join(args.begin(), options, " ")));
  }
  for (auto a = options; a != args.end(); ++a) {
    if (a != at) turned.push_back(*a);
  }
  return turned;
}

// `kiln run ... -- COMMAND ...`: what follows the dashes is another command's, so CLI11 gets it word by word
// as values of an option of its own.
std::vector<std::string> with_words_after_dashes(std::span<const std::string> args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  std::vector<std::string> all(args.begin(), dashes);
  for (auto a = dashes; a != args.end(); ++a) {
    if (a != dashes) all.push_back(fmt::format("--word={}", *a));
  }
  return all;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// "kiln tune attention": as it was called.
std::string full_name(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app.get_name() : fmt::format("{} {}", app.get_name(), full_name(*given.back()));
}

// Says what is wrong with the first argument nobody wanted, if there is one.
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
  const bool known =
      std::find(options.begin(), options.end(), seen) != options.end();  // it stood behind "--"
  if (seen.size() > 1 && seen.front() == '-' && !known) {
    throw_unknown("unknown option", seen, options, full_name(app));
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : inner.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  throw_unknown("unexpected argument", left.front(), names, full_name(app));
}

Request parse_command(const Command& command, std::span<const std::string> args) {
  auto parsed = std::make_shared<ParsedCommand>(command);
  CLI::App& app = parsed->app;
  app.footer(fmt::format("Example:\n  {}", command.example));
  app.allow_extras();  // so that we, not CLI11, word the complaint about them
  add_common_options(*parsed);
  parsed->body = command.add(app, parsed->common);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 wants the last one first
  } catch (const CLI::CallForHelp&) {
    return {.text = app.help(), .run = nullptr};
  } catch (const CLI::CallForAllHelp&) {
    return {.text = app.help("", CLI::AppFormatMode::All), .run = nullptr};
  } catch (const CLI::ParseError& error) {
    reject_leftover(app);  // a mistyped option is the likelier cause of a required one being absent
    throw_usage(error.what(), fmt::format("see `{} --help`", full_name(app)));
  }
  reject_leftover(app);
  parsed->common.seed = parse_seed(parsed->seed);
  check_device_name(parsed->common.device);
  parsed->common.out_given = app.count("--out") > 0;
  if (parsed->common.out.empty()) throw_usage("--out is empty; expected a folder");
  return {.text = {}, .run = [parsed] { parsed->body(); }};
}

}  // namespace

std::uint64_t parse_seed(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw_usage(fmt::format("--seed is '{}'; expected a whole number from 0 to 18446744073709551615", text));
  }
  return value;
}

void check_device_name(std::string_view text) {
  if (text != "auto") (void)Device::parse(text);  // asking for auto would start CUDA just to check a spelling
}

Request parse_command_line(std::span<const std::string> args) {
  if (args.empty()) throw_usage("no command given", "`kiln --help` lists the commands");
  const std::string& first = args.front();
  if (first == "help" && args.size() > 1) {  // kiln help ops = kiln ops --help
    const std::vector<std::string> turned = {args[1], "--help"};
    return parse_command_line(turned);
  }
  if (first == "--help" || first == "-h" || first == "help") return {.text = program_help(), .run = nullptr};
  if (first == "--version") return {.text = version_text(), .run = nullptr};

  const std::vector<std::string> turned = turned_into_study(args);
  if (first != "study" && !turned.empty()) return parse_command_line(turned);

  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == first && first == "run")
      return parse_command(command, with_words_after_dashes(args.subspan(1)));
    if (command.name == first) return parse_command(command, args.subspan(1));
    names.emplace_back(command.name);
  }
  if (first.starts_with('-')) throw_unknown("unknown option", first, {"--help", "--version"}, "kiln");
  throw_unknown("unknown command", first, names, "kiln");
}

}  // namespace kiln::cli
