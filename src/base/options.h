// The options of a command, each declared once: spelling, field, range and help in one place, and from that
// come the parser of the command line, the text of --help with the field's own default, the keys of a run
// config (--config FILE) and the record of a run's options.
//
//   o.opt("--steps", r.steps, at_least(1), "training steps").was("--updates");
//   o.opt("--size", r.sizes, "model size").value("NAME,...");
//   o.opt("--graph", r.graph, names_of_graph, "capture the step as a CUDA graph");
//
// Nothing here knows who reads the command line (apps/kiln/options.cpp does).
#pragma once

#include <concepts>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/json.h"

namespace kiln {

class JsonValue;

template <class T>
struct NumberRange {
  T least, most;

  // between(1, 64) is a range of int, and good for an option that counts in int64_t. No upper end stays none.
  template <class U>
  constexpr operator NumberRange<U>() const {
    constexpr auto kOpen = std::numeric_limits<T>::max();
    return {static_cast<U>(least), most == kOpen ? std::numeric_limits<U>::max() : static_cast<U>(most)};
  }
};

constexpr double kAnyNumber = std::numeric_limits<double>::max();
template <class T>
constexpr NumberRange<T> at_least(T least) {
  return {least, std::numeric_limits<T>::max()};
}
template <class T>
constexpr NumberRange<T> between(T least, T most) {
  return {least, most};
}

// The words an enum goes by on the command line. `was`: how it was spelled before, still taken, with a
// warning.
template <class E>
struct NamedValue {
  std::string_view name;
  E value;
  std::string_view was = {};
};

class Option {
 public:
  Option(std::string_view names, std::string help);

  // More of the declaration; each returns the option itself.
  Option& was(std::string_view names);  // former spellings, comma-separated: accepted, with one warning
  Option& was_value(std::string_view old_value, std::string_view value);  // alone, or as an item of a list
  // For values with names in them that have a list of former ones elsewhere: what to say of a text.
  Option& was_values(std::function<std::vector<std::string>(std::string_view text)> say);
  Option& value(std::string_view name);                                    // "N" of "--steps N"
  Option& unset(std::string_view text);                                    // shown where there is no default
  Option& alone(std::string_view value) { return alone_ = value, *this; }  // what it means without a value
  Option& no_default();
  Option& repeat() { return repeats_ = true, *this; }            // once for each value
  Option& not_in_config() { return in_config_ = false, *this; }  // how a result is shown, not what is run
  Option& offers(std::vector<std::string> words) { return choices_ = std::move(words), *this; }
  Option& offers(const std::vector<std::string_view>& words) {
    return choices_.assign(words.begin(), words.end()), *this;
  }
  Option& hidden() { return hidden_ = true, *this; }
  // Another option of the command, of which only one may be typed.
  Option& instead_of(std::string_view other) { return instead_of_ = other, *this; }
  Option& required() { return required_ = true, *this; }

  const std::string& name() const { return names_.front(); }        // "--steps", or "NAME" of a position
  const std::vector<std::string>& names() const { return names_; }  // those that help shows
  const std::string& other() const { return instead_of_; }          // that it stands instead of; or empty
  const std::vector<std::string>& old_names() const { return was_; }
  const std::vector<std::pair<std::string, std::string>>& old_values() const { return was_values_; }
  const std::string& value_name() const { return value_name_; }
  const std::string& alone_value() const { return alone_; }  // empty: it needs a value
  // The words a completion offers for its value; it may take others too. Empty: not a matter of words.
  const std::vector<std::string>& choices() const { return choices_; }
  std::string key() const;   // "grad_accum" of "--grad-accum"
  std::string help() const;  // with its words in place of "{}", and with "(default ...)"
  bool is_flag() const { return flag_; }
  bool is_positional() const { return names_.front().front() != '-'; }
  bool is_repeated() const { return repeats_; }
  bool is_hidden() const { return hidden_; }
  bool is_required() const { return required_; }
  bool is_in_config() const { return in_config_ && !is_positional(); }
  bool answers_to(std::string_view name) const;  // one of names() or old_names()

  // What was typed. Throws Error(usage) naming the option, what was seen and what was expected.
  void read(std::string_view text);
  // Where `name` is a former one, says so.
  void tell_former(std::string_view name, std::string_view now) const;
  // What a run config holds for it. `read` words what is wrong, with the file's place before it.
  void read(const JsonValue& json);
  Json json() const { return json_(); }

  const std::vector<std::string>& given() const { return given_; }  // as typed, or as the config has it

 private:
  friend class Options;
  std::vector<std::string> names_, was_, choices_;
  std::vector<std::pair<std::string, std::string>> was_values_;
  std::function<std::vector<std::string>(std::string_view)> say_former_;
  std::string help_, value_name_ = "NAME", unset_, instead_of_, alone_;
  bool flag_ = false, repeats_ = false, hidden_ = false, in_config_ = true, required_ = false,
       shows_default_ = true;
  std::string default_;                           // as text, when it was declared
  std::function<void(const std::string&)> read_;  // one value, into the field
  std::function<void()> clear_;                   // of a repeated one: before the first
  std::function<Json()> json_;
  std::vector<std::string> given_;
  std::function<void(const std::string&)> tell_;  // a former spelling was used
};

// For an option that is one of a few words: opt("--export", r.charts, one_of({"svg", "none"}), "...").
inline std::vector<std::string_view> one_of(std::initializer_list<std::string_view> list) { return list; }

// How a custom type is read and written: --recompute every:4, --size small,medium.
template <class T>
struct TextForm {
  std::function<T(const std::string& text)> read;
  std::function<std::string(const T&)> write;
};

// A text that `check` takes: what it throws of another one is the error.
TextForm<std::string> checked_text(std::function<void(const std::string&)> check);

// "a,b": each once, in the order given.
template <class T>
TextForm<std::vector<T>> list_form(TextForm<T> one);

class Options {
 public:
  Options() = default;
  Options(const Options&) =
      delete;  // options hold references to fields, and others hold references to options
  Options& operator=(const Options&) = delete;

  // `names`: "--ctx" or "--ctx,--context", or "NAME" for a positional argument.
  Option& opt(std::string_view names, bool& field, std::string help);
  Option& opt(std::string_view names, std::string& field, std::string help);
  Option& opt(std::string_view names, std::vector<std::string>& field, std::string help);  // comma-separated
  template <class T>
    requires std::is_arithmetic_v<T>
  Option& opt(std::string_view names, T& field, NumberRange<std::type_identity_t<T>> range, std::string help);
  // Empty: not given. Give the option an unset("...") that says what happens then.
  template <class T>
    requires std::is_arithmetic_v<T>
  Option& opt(std::string_view names, std::optional<T>& field, NumberRange<std::type_identity_t<T>> range,
              std::string help);
  template <class T>
    requires std::is_arithmetic_v<T>
  Option& opt(std::string_view names, std::vector<T>& field, NumberRange<std::type_identity_t<T>> range,
              std::string help);
  template <class E, std::size_t N>
    requires std::is_enum_v<E>
  Option& opt(std::string_view names, E& field, const NamedValue<E> (&known)[N], std::string help);
  template <class E, std::size_t N>
    requires std::is_enum_v<E>
  Option& opt(std::string_view names, std::vector<E>& field, const NamedValue<E> (&known)[N],
              std::string help);
  // One of these words.
  Option& opt(std::string_view names, std::string& field, std::vector<std::string_view> known,
              std::string help);
  template <class T>
  Option& opt(std::string_view names, T& field, TextForm<std::type_identity_t<T>> form, std::string help);

  // Every option by a name, the former ones too; null where there is none.
  Option* find(std::string_view name);
  const Option* find(std::string_view name) const;
  const std::deque<Option>& all() const { return options_; }
  std::deque<Option>& all() { return options_; }

  // A run config: every option by its key.
  Json json() const;
  // Takes the options of a run config. An unknown key is an Error with the nearest known one.
  void read(const JsonValue& config);

  // Reads every field again, of a request that did not come from a command line: Error(usage) for one that
  // its declaration does not allow.
  void check();

  // Called once for each former spelling that was used, with the sentence to say.
  std::function<void(const std::string&)> tell_old_name;

 private:
  Option& add(std::string_view names, std::string help);

  std::deque<Option> options_;  // declared options are referred to: they stay where they are
};

// Takes a run config whose keys are those of several tables: a command's own, and the common ones.
void read_options(std::span<Options* const> all, const JsonValue& config);

// ---- how values of each kind are read and written

int64_t read_integer_option(const std::string& name, std::string_view text, int64_t least, int64_t most);
double read_number_option(const std::string& name, std::string_view text, double least, double most);
std::string number_text(double value);
inline std::string number_text(int64_t value) { return std::to_string(value); }
std::size_t which_name(const std::string& name, std::string_view text,
                       std::span<const std::string_view> known);
std::vector<std::string> split_list(std::string_view text);
std::string joined(const std::vector<std::string>& words);
std::string or_list(std::span<const std::string> words);  // "a, b or c"

template <class T>
T read_number_as(const std::string& name, std::string_view text, NumberRange<T> range) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(read_number_option(name, text, range.least, range.most));
  } else {
    static_assert(sizeof(T) < 8 || std::is_signed_v<T>, "an int64_t carries every option's whole number");
    return static_cast<T>(read_integer_option(name, text, range.least, range.most));
  }
}

template <class T>
std::string number_text_of(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return number_text(static_cast<double>(value));
  else
    return number_text(static_cast<int64_t>(value));
}

template <class T>
  requires std::is_arithmetic_v<T>
Option& Options::opt(std::string_view names, T& field, NumberRange<std::type_identity_t<T>> range,
                     std::string help) {
  Option& o = add(names, std::move(help)).value(std::is_floating_point_v<T> ? "X" : "N");
  o.default_ = number_text_of(field);
  o.read_ = [&field, range, name = o.name()](const std::string& text) {
    field = read_number_as<T>(name, text, range);
  };
  o.json_ = [&field] { return Json(field); };
  return o;
}

template <class T>
  requires std::is_arithmetic_v<T>
Option& Options::opt(std::string_view names, std::optional<T>& field,
                     NumberRange<std::type_identity_t<T>> range, std::string help) {
  Option& o = add(names, std::move(help)).value(std::is_floating_point_v<T> ? "X" : "N");
  if (field) o.default_ = number_text_of(*field);
  o.read_ = [&field, range, name = o.name()](const std::string& text) {
    field = read_number_as<T>(name, text, range);
  };
  o.json_ = [&field] { return field ? Json(*field) : Json(); };
  return o;
}

template <class T>
  requires std::is_arithmetic_v<T>
Option& Options::opt(std::string_view names, std::vector<T>& field,
                     NumberRange<std::type_identity_t<T>> range, std::string help) {
  Option& o = add(names, std::move(help)).value(std::is_floating_point_v<T> ? "X,..." : "N,...");
  std::vector<std::string> words;
  for (const T& value : field) words.push_back(number_text_of(value));
  o.default_ = joined(words);
  o.read_ = [&field, range, name = o.name()](const std::string& text) {
    std::vector<T> values;
    for (const std::string& word : split_list(text)) {
      const T value = read_number_as<T>(name, word, range);
      bool there = false;
      for (const T& other : values) there = there || other == value;
      if (!there) values.push_back(value);
    }
    field = std::move(values);
  };
  o.json_ = [&field] { return Json(field); };
  return o;
}

// The words of a NamedValue table, and which of them a text means.
template <class E>
std::size_t which_value(const std::string& name, std::string_view text,
                        std::span<const NamedValue<E>> known) {
  std::vector<std::string_view> words;
  for (const NamedValue<E>& k : known) words.push_back(k.name);
  return which_name(name, text, words);
}

template <class E>
std::string_view name_of_value(E value, std::span<const NamedValue<E>> known) {
  for (const NamedValue<E>& k : known)
    if (k.value == value) return k.name;
  return {};
}

template <class E, std::size_t N>
  requires std::is_enum_v<E>
Option& Options::opt(std::string_view names, E& field, const NamedValue<E> (&known)[N], std::string help) {
  Option& o = add(names, std::move(help));
  const std::span<const NamedValue<E>> values(known);
  for (const NamedValue<E>& v : values) {
    o.choices_.emplace_back(v.name);
    if (!v.was.empty()) o.was_value(v.was, v.name);
  }
  o.default_ = std::string(name_of_value(field, values));
  o.read_ = [&field, values, name = o.name()](const std::string& text) {
    field = values[which_value(name, text, values)].value;
  };
  o.json_ = [&field, values] { return Json(name_of_value(field, values)); };
  return o;
}

template <class E, std::size_t N>
  requires std::is_enum_v<E>
Option& Options::opt(std::string_view names, std::vector<E>& field, const NamedValue<E> (&known)[N],
                     std::string help) {
  Option& o = add(names, std::move(help)).value("NAME,...");
  const std::span<const NamedValue<E>> values(known);
  for (const NamedValue<E>& v : values) {
    o.choices_.emplace_back(v.name);
    if (!v.was.empty()) o.was_value(v.was, v.name);
  }
  std::vector<std::string> words;
  for (const E& value : field) words.emplace_back(name_of_value(value, values));
  o.default_ = joined(words);
  o.read_ = [&field, values, name = o.name()](const std::string& text) {
    std::vector<E> chosen;
    for (const std::string& word : split_list(text)) {
      const E value = values[which_value(name, word, values)].value;
      bool there = false;
      for (const E& other : chosen) there = there || other == value;
      if (!there) chosen.push_back(value);
    }
    field = std::move(chosen);
  };
  o.json_ = [&field, values] {
    Json list = Json::array();
    for (const E& value : field) list.push_back(name_of_value(value, values));
    return list;
  };
  return o;
}

template <class T>
TextForm<std::vector<T>> list_form(TextForm<T> one) {
  return {[read = one.read](const std::string& text) {
            std::vector<T> items;
            for (const std::string& word : split_list(text)) {
              const T item = read(word);
              bool there = false;
              for (const T& other : items) there = there || other == item;
              if (!there) items.push_back(item);
            }
            return items;
          },
          [write = one.write](const std::vector<T>& items) {
            std::vector<std::string> words;
            for (const T& item : items) words.push_back(write(item));
            return joined(words);
          }};
}

template <class T>
Option& Options::opt(std::string_view names, T& field, TextForm<std::type_identity_t<T>> form,
                     std::string help) {
  Option& o = add(names, std::move(help));
  o.default_ = form.write(field);
  o.read_ = [&field, read = form.read](const std::string& text) { field = read(text); };
  o.json_ = [&field, write = form.write] { return Json(write(field)); };
  return o;
}

}  // namespace kiln
