// kiln completions bash, zsh, fish: what a shell asks to complete a command line. Made of the declarations,
// so a new option is there by itself; former spellings are not offered.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/build_info.h"
#include "kiln/command.h"
#include "kiln/command_line.h"

namespace kiln::cli {
namespace {

enum class Shell { bash, zsh, fish };
constexpr NamedValue<Shell> kShells[] = {{"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}};

struct Offer {
  std::string name, help;
};

// An option that takes a value, by each of its names.
struct ValueOf {
  std::vector<std::string> names;
  std::string offers;  // words, or @file, @dir; empty: nothing can be offered
};

// All that can be typed behind one command, "bench step"; behind the program itself, "".
struct Place {
  std::string path;
  std::vector<Offer> subs, options;
  std::vector<ValueOf> values;
};

bool names_a(const Option& o, std::string_view what) {
  return (o.is_positional() ? o.name() : o.value_name()).find(what) != std::string::npos;
}

std::string offers_of(const Option& o) {
  if (!o.choices().empty()) return fmt::format("{}", fmt::join(o.choices(), " "));
  if (names_a(o, "FILE") || names_a(o, "PATH")) return "@file";
  return names_a(o, "DIR") || names_a(o, "FOLDER") ? "@dir" : "";
}

void list_options(Place& place, const Options& options) {
  for (const Option& o : options.all()) {
    if (o.is_hidden()) continue;
    if (o.is_positional()) {
      place.values.push_back({{"@"}, offers_of(o)});
      continue;
    }
    for (const std::string& name : o.names()) place.options.push_back({name, o.help()});
    if (!o.is_flag()) place.values.push_back({o.names(), offers_of(o)});
  }
}

void list_places(std::vector<Place>& places, const Command& command, const std::string& parent) {
  Place place;
  place.path = parent.empty() ? command.name : parent + " " + command.name;
  for (const Command& sub : command.subs) place.subs.push_back({sub.name, sub.summary});
  list_options(place, command.options);
  if (command.takes_parents_options) list_options(place, command.parent->options);
  places.push_back(place);
  for (const Command& sub : command.subs) list_places(places, sub, place.path);
}

// The program itself comes first; its options are those of every command.
std::vector<Place> all_places() {
  std::vector<Place> places(1);
  for (const DeclaredCommand& d : declared_commands()) {
    if (places.front().options.empty()) list_options(places.front(), d.common_options);
    if (d.hidden) continue;
    places.front().subs.push_back({d.command.name, d.command.summary});
    list_places(places, d.command, "");
  }
  places.front().options.push_back({"--help", "description, options and an example"});
  return places;
}

std::string names_of(const std::vector<Offer>& offers) {
  std::vector<std::string> names;
  for (const Offer& o : offers) names.push_back(o.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// In single quotes, as bash, zsh and fish all read it.
std::string quoted(std::string_view text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

// case "$1 $2" in 'bench step --graph') echo ...: only options that take a value have a line.
std::string value_cases(const std::vector<Place>& places) {
  std::string text = "  case \"$1 $2\" in\n";
  for (const Place& place : places) {
    for (const ValueOf& v : place.values) {
      std::vector<std::string> patterns;
      for (const std::string& name : v.names)
        patterns.push_back(place.path.empty() ? "*" + quoted(" " + name) : quoted(place.path + " " + name));
      text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "),
                          v.offers.empty() ? "true" : "echo " + quoted(v.offers));
    }
  }
  return text + "    *) return 1 ;;\n  esac\n";
}

// Walks over the words before the cursor: which command they name (`at`), and whether the last one is an
// option that wants a value (`pending`). Behind a bare `--` of `kiln run` another command begins.
constexpr const char* kWalk = R"sh(    [[ $word == '=' ]] && continue
    if [[ -n $pending ]]; then pending=; continue; fi
    case $word in
      --) at= ;;
      --*=*) ;;
      -*) _kiln_value "$at" "$word" >/dev/null && pending=$word ;;
      *) case " $(_kiln_subs "$at") " in *" $word "*) at=${at:+$at }$word ;; esac ;;
    esac
)sh";

constexpr const char* kBashMain = R"sh(
_kiln() {
  local cur=${COMP_WORDS[COMP_CWORD]} at= pending= word offers before=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
@WALK@  done
  [[ $cur == '=' ]] && cur=
  COMPREPLY=()
  if [[ -z $pending && $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_kiln_options "$at")" -- "$cur")
    return
  fi
  offers=$(_kiln_value "$at" "${pending:-@}") || true
  [[ -n $pending ]] || offers="$(_kiln_subs "$at") $offers"
  case $offers in
    *@file) compopt -o filenames 2>/dev/null || true; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    *@dir) compopt -o filenames 2>/dev/null || true; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    *)
      [[ $cur == *,* ]] && before=${cur%,*},
      mapfile -t COMPREPLY < <(compgen -P "$before" -W "$offers" -- "${cur##*,}")
      ;;
  esac
}
complete -F _kiln kiln
)sh";

constexpr const char* kZshMain = R"sh(
_kiln() {
  local at= pending= word offers
  local -a reply
  for word in "${(@)words[2,CURRENT-1]}"; do
@WALK@  done
  if [[ -z $pending && $PREFIX == --*=* ]]; then pending=${PREFIX%%=*}; compset -P '*='; fi
  if [[ -z $pending && $PREFIX == -* ]]; then
    _kiln_option_list "$at"
    _describe -o option reply
    return
  fi
  offers=$(_kiln_value "$at" "${pending:-@}") || true
  case $offers in
    @file) _files ;;
    @dir) _files -/ ;;
    ?*) compset -P '*,'; compadd -- ${=offers} ;;
  esac
  [[ -n $pending ]] && return
  _kiln_sub_list "$at"
  (( $#reply )) && _describe command reply
}
if [[ $funcstack[1] == _kiln ]]; then _kiln "$@"; else compdef _kiln kiln; fi
)sh";

std::string with_walk(std::string text) {
  const std::string_view mark = "@WALK@";
  return text.replace(text.find(mark), mark.size(), kWalk);
}

std::string header(std::string_view shell) {
  return fmt::format("# {0} completion of kiln {1}, written by `kiln completions {0}`.\n", shell,
                     build_info().version);
}

// A function that answers for each place; `all`: what it answers everywhere besides.
template <class Line>
std::string function_of(std::string_view name, const std::vector<Place>& places, Line line) {
  std::string text = fmt::format("{}() {{\n  case \"$1\" in\n", name);
  for (const Place& place : places) text += fmt::format("    {}) {} ;;\n", quoted(place.path), line(place));
  return text + "  esac\n}\n";
}

std::string echo_subs(const Place& place) {
  return place.subs.empty() ? "true" : "echo " + quoted(names_of(place.subs));
}

std::string bash_script(const std::vector<Place>& places) {
  const std::vector<Offer>& common = places.front().options;
  const auto options = [&](const Place& place) {
    const std::string own = place.path.empty() ? "--version" : names_of(place.options);
    return "echo " + quoted(fmt::format("{}{}{}", own, own.empty() ? "" : " ", names_of(common)));
  };
  return header("bash") + function_of("_kiln_subs", places, echo_subs) +
         function_of("_kiln_options", places, options) + "_kiln_value() {\n" + value_cases(places) + "}\n" +
         with_walk(kBashMain);
}

// 'name:what it is' for _describe.
std::string described(const std::vector<Offer>& offers) {
  std::string text;
  for (const Offer& o : offers) text += (text.empty() ? "" : " ") + quoted(o.name + ":" + o.help);
  return text;
}

std::string zsh_script(const std::vector<Place>& places) {
  const std::string common = described(places.front().options);
  const auto options = [&](const Place& place) {
    const std::string own = place.path.empty() ? "'--version:version'" : described(place.options);
    return fmt::format("reply=({}{}$common)", own, own.empty() ? "" : " ");
  };
  const auto subs = [](const Place& place) { return "reply=(" + described(place.subs) + ")"; };
  std::string option_list = function_of("_kiln_option_list", places, options);
  option_list.insert(option_list.find('\n') + 1, fmt::format("  local -a common=({})\n", common));
  return "#compdef kiln\n" + header("zsh") + function_of("_kiln_subs", places, echo_subs) +
         function_of("_kiln_sub_list", places, subs) + option_list + "_kiln_value() {\n" +
         value_cases(places) + "}\n" + with_walk(kZshMain);
}

std::string fish_option(std::string_view condition, const Offer& option, const ValueOf* value) {
  const bool is_long = option.name.starts_with("--");
  std::string line = fmt::format("complete -c kiln{} -{} {} -d {}", condition, is_long ? 'l' : 's',
                                 option.name.substr(is_long ? 2 : 1), quoted(option.help));
  if (value == nullptr) return line + "\n";
  if (value->offers == "@file") return line + " -r -F\n";
  if (value->offers == "@dir") return line + " -x -a '(__fish_complete_directories)'\n";
  return line + fmt::format(" -x{}\n", value->offers.empty() ? "" : " -a " + quoted(value->offers));
}

constexpr const char* kFishMain = R"sh(
# Whether the words before the cursor name this command. Behind a bare -- another command begins.
function __kiln_at
    set -l at
    for word in (commandline -opc)[2..]
        switch $word
            case --
                set at
            case '-*'
            case '*'
                if contains -- (string join ' ' $at $word) $__kiln_commands
                    set at $at $word
                end
        end
    end
    test (string join ' ' $at) = $argv[1]
end
complete -c kiln -f
)sh";

std::string fish_script(const std::vector<Place>& places) {
  std::vector<std::string> paths;
  for (const Place& place : places)
    if (!place.path.empty()) paths.push_back(quoted(place.path));
  std::string text = header("fish") + fmt::format("set -g __kiln_commands {}\n", fmt::join(paths, " "));
  text += kFishMain;
  for (const Place& place : places) {
    const std::string here = fmt::format(" -n \"__kiln_at {}\"", quoted(place.path));
    for (const Offer& sub : place.subs)
      text += fmt::format("complete -c kiln{} -a {} -d {}\n", here, sub.name, quoted(sub.help));
    for (const Offer& option : place.options) {
      const auto value = std::find_if(place.values.begin(), place.values.end(), [&](const ValueOf& v) {
        return std::find(v.names.begin(), v.names.end(), option.name) != v.names.end();
      });
      text += fish_option(place.path.empty() ? "" : here, option,
                          value == place.values.end() ? nullptr : &*value);
    }
    for (const ValueOf& v : place.values) {  // positional arguments
      if (v.names.front() != "@" || v.offers.empty()) continue;
      text += fmt::format("complete -c kiln{}{}\n", here,
                          v.offers.starts_with("@") ? " -F" : " -a " + quoted(v.offers));
    }
  }
  return text + "complete -c kiln -n \"__kiln_at ''\" -l version -d 'version'\n";
}

}  // namespace

void add_completions(Command& command, const CommonOptions&) {
  auto shell = std::make_shared<Shell>();
  command.opt("SHELL", *shell, kShells, "bash, zsh or fish").required();
  command.run = [shell] {
    const std::vector<Place> places = all_places();
    const std::string text = *shell == Shell::bash  ? bash_script(places)
                             : *shell == Shell::zsh ? zsh_script(places)
                                                    : fish_script(places);
    std::fputs(text.c_str(), stdout);
  };
}

}  // namespace kiln::cli
