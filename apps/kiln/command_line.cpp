#include "kiln/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "device/device.h"
#include "kiln/command.h"
#include "kiln/options.h"

namespace kiln::cli {
namespace {

[[noreturn]] void throw_usage(const std::string& what, std::string hint = {}) {
  throw Error(what, std::move(hint), ErrorKind::usage);
}

[[noreturn]] void throw_unknown(std::string_view what, std::string_view seen,
                                const std::vector<std::string_view>& names) {
  const std::string near = nearest_name(seen, names);
  throw_usage(
      fmt::format("{} '{}'{}", what, seen, near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
      near.empty() ? "see `kiln --help`" : "");
}

std::string program_help() {
  std::string text =
      "kiln trains LLaMA-style transformers and shows why it is fast.\n\nUsage: kiln COMMAND [options]\n\n"
      "Commands:\n";
  for (const CommandEntry& c : commands())
    if (!c.hidden) text += fmt::format("  {:<12}{}\n", c.name, c.summary);
  text +=
      "\nEvery command takes --json, --wide, --seed N, --device cpu|cuda|cuda:N|meta|meta:cuda|auto, --out "
      "DIR,\n"
      "--config FILE and --help. Commands that measure take --study 2025|2026: their own sweeps of kiln "
      "study.\n"
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

TextForm<std::uint64_t> seed_form() {
  return {[](const std::string& text) { return parse_seed(text); },
          [](const std::uint64_t& seed) { return fmt::format("{}", seed); }};
}

TextForm<std::string> device_form() {
  return {[](const std::string& text) {
            std::string name = text;
            if (name == "gpu" || name.starts_with("gpu:")) name.replace(0, 3, "cuda");
            check_device_name(name);
            return name;
          },
          [](const std::string& name) { return name; }};
}

void add_common_options(Options& o, CommonOptions& c) {
  o.opt("--json", c.json, "one JSON document on stdout, everything else on stderr").not_in_config();
  o.opt("--wide", c.wide, "every column of a table").not_in_config();
  o.opt("--seed", c.seed, seed_form(), "seed of all random numbers").value("N");
  o.opt("--device", c.device, device_form(), "cpu, cuda, cuda:N, meta, meta:cuda or auto")
      .offers(one_of({"cpu", "cuda", "meta", "meta:cuda", "auto"}));
  o.opt("--out", c.out, "folder for results").value("DIR");
  o.opt("--config", c.config, "read options from a JSON file; those typed here win")
      .value("FILE")
      .not_in_config();
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

// `kiln run ... -- COMMAND ...`: what follows the dashes is another command's, so it is read word by word as
// values of a separate option.
std::vector<std::string> with_words_after_dashes(std::span<const std::string> args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  std::vector<std::string> all(args.begin(), dashes);
  for (auto a = dashes; a != args.end(); ++a) {
    if (a != dashes) all.push_back(fmt::format("--word={}", *a));
  }
  return all;
}

// `kiln --device cuda train`: an option every command has, in a place where none has it.
void throw_if_after_command(const std::string& typed) {
  CommonOptions fields;
  Options common;
  add_common_options(common, fields);
  const std::string name = typed.substr(0, typed.find('='));
  if (common.find(name) != nullptr)
    throw_usage(fmt::format("{} is before the command", name),
                fmt::format("options follow it: kiln COMMAND {} ...", name));
}

Request parse_command(const CommandEntry& entry, std::span<const std::string> args) {
  auto parsed = std::make_shared<DeclaredCommand>(entry);
  CommonOptions& common = parsed->common;
  const ParsedArguments given = parse_arguments(parsed->command, parsed->common_options, args);
  if (!given.help.empty()) return {.text = given.help, .run = nullptr, .command = nullptr};
  common.out_given = !parsed->common_options.find("--out")->given().empty();
  if (common.out.empty()) throw_usage("--out is empty; expected a folder");
  const Command& chosen = *given.chosen;
  return {.text = {}, .run = [parsed, &chosen] { chosen.run(); }, .command = &chosen};
}

}  // namespace

DeclaredCommand::DeclaredCommand(const CommandEntry& entry)
    : command(std::string(entry.name), std::string(entry.summary), std::string(entry.example)),
      hidden(entry.hidden) {
  add_common_options(common_options, common);
  // A command line may be read several times (a sweep's cells); what is old in it is reported once.
  command.options.tell_old_name = [this](const std::string& line) {
    if (told.insert(line).second) fmt::print(stderr, "kiln: warning: {}\n", line);
  };
  entry.add(command, common);
}

std::list<DeclaredCommand> declared_commands() {
  std::list<DeclaredCommand> all;
  for (const CommandEntry& entry : commands()) all.emplace_back(entry);
  return all;
}

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
  // Who types the bare name asks what there is: an answer, not a mistake, as `kiln --help` is.
  if (args.empty()) return {.text = program_help(), .run = nullptr, .command = nullptr};
  const std::string& first = args.front();
  if (first == "help" && args.size() > 1) {  // kiln help bench op = kiln bench op --help
    std::vector<std::string> turned(args.begin() + 1, args.end());
    turned.emplace_back("--help");
    return parse_command_line(turned);
  }
  if (first == "--help" || first == "-h" || first == "help")
    return {.text = program_help(), .run = nullptr, .command = nullptr};
  if (first == "--version" || first == "-V" || first == "version")
    return {.text = version_text(), .run = nullptr, .command = nullptr};

  const std::vector<std::string> turned = turned_into_study(args);
  if (first != "study" && !turned.empty()) return parse_command_line(turned);

  std::vector<std::string_view> names;
  for (const CommandEntry& entry : commands()) {
    if (entry.name == first && first == "run")
      return parse_command(entry, with_words_after_dashes(args.subspan(1)));
    if (entry.name == first) return parse_command(entry, args.subspan(1));
    names.push_back(entry.name);
  }
  if (first.starts_with('-')) throw_if_after_command(first);
  if (first.starts_with('-')) throw_unknown("unknown option", first, {"--help", "--version"});
  throw_unknown("unknown command", first, names);
}

}  // namespace kiln::cli
