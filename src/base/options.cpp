#include "base/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

[[noreturn]] void throw_usage(std::string what, std::string hint = {}) {
  throw Error(std::move(what), std::move(hint), ErrorKind::usage);
}

// The whole text as one number, or nothing.
template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

template <class T>
std::string expected_range(T least, T most) {
  const bool open =
      most == std::numeric_limits<T>::max() || most >= static_cast<T>(std::numeric_limits<int>::max());
  const char* const whole = std::is_integral_v<T> ? "whole " : "";
  if (open && least == std::numeric_limits<T>::lowest()) return fmt::format("a {}number", whole);
  if (open) return fmt::format("a {}number of {} or more", whole, least);
  return fmt::format("a {}number from {} to {}", whole, least, most);
}

// What a value of a config would be on the command line.
std::string text_of(const JsonValue& value) {
  const Json& json = value.raw();
  if (json.is_string()) return json.text();
  if (json.is_boolean()) return json.get<bool>() ? "true" : "false";
  if (json.is_number_integer() || json.is_number_unsigned()) return json.dump();
  if (json.is_number()) return number_text(json.get<double>());
  if (json.is_array()) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < json.size(); ++i) words.push_back(text_of(value.at(i)));
    return joined(words);
  }
  value.fail("is an object; expected what the command line takes: a word, a number, true or a list of them");
}

}  // namespace

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  for (;;) {
    const auto comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text = text.substr(comma + 1);
  }
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ",")); }

std::string or_list(std::span<const std::string> words) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return all;
}

std::string number_text(double value) { return fmt::format("{}", value); }

int64_t read_integer_option(const std::string& name, std::string_view text, int64_t least, int64_t most) {
  const auto value = whole_number<int64_t>(text);
  if (!value || *value < least || *value > most)
    throw_usage(fmt::format("{} is '{}'; expected {}", name, text, expected_range(least, most)));
  return *value;
}

double read_number_option(const std::string& name, std::string_view text, double least, double most) {
  const auto value = whole_number<double>(text);
  if (!value || !std::isfinite(*value) || *value < least || *value > most)
    throw_usage(fmt::format("{} is '{}'; expected {}", name, text, expected_range(least, most)));
  return *value;
}

std::size_t which_name(const std::string& name, std::string_view text,
                       std::span<const std::string_view> known) {
  const auto found = std::find(known.begin(), known.end(), text);
  if (found != known.end()) return static_cast<std::size_t>(found - known.begin());
  const std::string near = nearest_name(text, known);
  throw_usage(fmt::format("{} is '{}'; expected one of: {}", name, text, fmt::join(known, ", ")),
              near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

TextForm<std::string> checked_text(std::function<void(const std::string&)> check) {
  return {[check = std::move(check)](const std::string& text) {
            check(text);
            return text;
          },
          [](const std::string& text) { return text; }};
}

Option::Option(std::string_view names, std::string help)
    : names_(split_list(names)), help_(std::move(help)) {}

Option& Option::was(std::string_view names) {
  for (std::string& name : split_list(names)) was_.push_back(std::move(name));
  return *this;
}

Option& Option::was_value(std::string_view old_value, std::string_view value) {
  was_values_.emplace_back(old_value, value);
  return *this;
}

Option& Option::was_values(std::function<std::vector<std::string>(std::string_view text)> say) {
  say_former_ = std::move(say);
  return *this;
}

Option& Option::value(std::string_view name) {
  value_name_ = std::string(name);
  return *this;
}

Option& Option::unset(std::string_view text) {
  unset_ = std::string(text);
  return *this;
}

Option& Option::no_default() {
  shows_default_ = false;
  return *this;
}

std::string Option::key() const {
  std::string key = name().substr(name().find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string Option::help() const {
  std::string text = help_;
  if (const auto at = text.find("{}"); at != std::string::npos) text.replace(at, 2, or_list(choices_));
  const std::string& value = unset_.empty() ? default_ : unset_;
  if (flag_ || !shows_default_ || value.empty()) return text;
  return fmt::format("{} (default {})", text, value);
}

bool Option::answers_to(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end() ||
         std::find(was_.begin(), was_.end(), name) != was_.end();
}

void Option::read(std::string_view typed) {
  std::string text(typed);
  if (!was_values_.empty()) {
    std::vector<std::string> words = split_list(typed);
    for (std::string& word : words) {
      const auto known = std::find_if(was_values_.begin(), was_values_.end(),
                                      [&](const auto& was) { return was.first == word; });
      if (known == was_values_.end()) continue;
      if (tell_) tell_(fmt::format("{} {} is now {} {}", name(), word, name(), known->second));
      word = known->second;
    }
    text = joined(words);
  }
  if (say_former_ && tell_)
    for (const std::string& line : say_former_(typed)) tell_(line);
  if (repeats_ && given_.empty() && clear_) clear_();
  read_(text);
  given_.emplace_back(typed);
}

void Option::tell_former(std::string_view name, std::string_view now) const {
  if (tell_ && std::find(was_.begin(), was_.end(), "--" + std::string(name)) != was_.end())
    tell_(fmt::format("{} is now {}", name, now));
}

void Option::read(const JsonValue& json) {
  try {
    const bool each = repeats_ && json.raw().is_array();
    for (std::size_t i = 0; each && i < json.raw().size(); ++i) read(text_of(json.at(i)));
    if (!each) read(text_of(json));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", json.place(), error.what()), error.hint(), error.kind());
  }
}

Option& Options::add(std::string_view names, std::string help) {
  Option& o = options_.emplace_back(names, std::move(help));
  o.tell_ = [this](const std::string& line) {
    if (tell_old_name) tell_old_name(line);
  };
  return o;
}

Option& Options::opt(std::string_view names, bool& field, std::string help) {
  Option& o = add(names, std::move(help));
  o.flag_ = true;
  o.read_ = [&field, name = o.name()](const std::string& text) {
    constexpr std::string_view kWords[] = {"true", "false", "on", "off", "yes", "no", "1", "0"};
    field = which_name(name, text, kWords) % 2 == 0;
  };
  o.json_ = [&field] { return Json(field); };
  return o;
}

Option& Options::opt(std::string_view names, std::string& field, std::string help) {
  Option& o = add(names, std::move(help));
  o.default_ = field;
  o.read_ = [&field](const std::string& text) { field = text; };
  o.json_ = [&field] { return Json(field); };
  return o;
}

Option& Options::opt(std::string_view names, std::vector<std::string>& field, std::string help) {
  Option& o = add(names, std::move(help)).value("NAME,...");
  o.default_ = joined(field);
  o.clear_ = [&field] { field.clear(); };
  o.read_ = [&field, &o](const std::string& text) {
    if (o.repeats_) {
      field.push_back(text);
    } else {
      field = split_list(text);
    }
  };
  o.json_ = [&field] { return Json(field); };
  return o;
}

Option& Options::opt(std::string_view names, std::string& field, std::vector<std::string_view> known,
                     std::string help) {
  Option& o = opt(names, field, std::move(help));
  o.choices_.assign(known.begin(), known.end());
  o.read_ = [&field, known = std::move(known), name = o.name()](const std::string& text) {
    field = known[which_name(name, text, known)];
  };
  return o;
}

const Option* Options::find(std::string_view name) const {
  for (const Option& o : options_)
    if (o.answers_to(name)) return &o;
  return nullptr;
}

Option* Options::find(std::string_view name) { return const_cast<Option*>(std::as_const(*this).find(name)); }

Json Options::json() const {
  Json page = Json::object();
  for (const Option& o : options_)
    if (o.is_in_config()) page[o.key()] = o.json();
  return page;
}

void Options::read(const JsonValue& config) {
  Options* const only[] = {this};
  read_options(only, config);
}

void Options::check() {
  for (Option& o : options_) {
    const Json json = o.json();
    if (o.repeats_ || json.is_null() || (json.is_string() && json.text().empty())) continue;
    o.read_(text_of(JsonValue(json, o.name())));
  }
}

void read_options(std::span<Options* const> all, const JsonValue& config) {
  std::vector<std::string> keys;
  for (const Options* options : all) {
    for (const Option& o : options->all())
      if (o.is_in_config()) keys.push_back(o.key());
  }
  for (const auto& [key, value] : config.object()) {
    std::string name = "--" + key;
    std::replace(name.begin(), name.end(), '_', '-');
    Option* found = nullptr;
    for (Options* options : all) {
      Option* o = options->find(name);
      if (found == nullptr && o != nullptr && o->is_in_config()) found = o;
    }
    if (found == nullptr) config.check_keys(std::vector<std::string_view>(keys.begin(), keys.end()));
    if (found == nullptr) continue;
    found->tell_former(name.substr(2), found->key());
    if (!value.is_null()) found->read(config.child(key, value));
  }
}

}  // namespace kiln
