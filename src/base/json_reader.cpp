#include "base/json_reader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

using nlohmann::json;

// Builds the document from the parser's events and stops at the first thing that is not allowed. Nothing here
// recurses, so a deep document is refused, where it would overflow the stack.
class GuardedBuilder final : public json::json_sax_t {
 public:
  GuardedBuilder(const JsonLimits& limits, std::string_view source) : limits_(limits), source_(source) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t& text) override {
    // nlohmann falls back to double for whole numbers it cannot hold; an id or an offset must not be rounded.
    if (text.find_first_of(".eE") == string_t::npos)
      fail(cat("the whole number ", text.substr(0, 40), " does not fit 64 bits"));
    if (!std::isfinite(v)) fail(cat("the number ", text.substr(0, 40), " is out of range"));
    return put(v);
  }
  bool string(string_t& v) override { return put(v); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override {
    check_keys_differ(*stack_.back());
    return close();
  }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    std::string why = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const auto end = why.find("] "); end != std::string::npos) why.erase(0, end + 2);
    fail(cat("not JSON: ", why));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(cat(source_, ": ", what)); }

  Json& place(Json&& value) {
    if (++values_ > limits_.max_values) fail(cat("more than ", limits_.max_values, " JSON values"));
    if (stack_.empty()) return root_ = std::move(value);
    if (stack_.back()->is_array()) return stack_.back()->append(std::move(value));
    return stack_.back()->add(std::move(key_), std::move(value));
  }
  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& container) {
    if (stack_.size() >= static_cast<std::size_t>(limits_.max_depth))
      fail(cat("JSON nested more than ", limits_.max_depth, " deep"));
    stack_.push_back(&place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  // Sorted and not looked up one by one: a vocabulary has a hundred thousand keys.
  void check_keys_differ(const Json& object) const {
    std::vector<const std::string*> keys;
    keys.reserve(object.size());
    for (const auto& [key, value] : object.items()) keys.push_back(&key);
    std::sort(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a < *b; });
    const auto twice =
        std::adjacent_find(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a == *b; });
    if (twice != keys.end()) fail(cat("key '", (*twice)->substr(0, 80), "' appears twice in one object"));
  }

  const JsonLimits& limits_;
  std::string_view source_;
  Json root_;
  std::vector<Json*> stack_;  // the containers that are open; only the innermost grows, so these stay put
  std::string key_;           // of the value that comes next
  std::size_t values_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits, std::string_view source) {
  if (text.size() > limits.max_bytes)
    throw Error(cat(source, ": ", text.size(), " bytes of JSON; at most ", limits.max_bytes, " are read"));
  // The parser takes it for the end, and would not see what is behind it.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    throw Error(cat(source, ": not JSON: byte ", nul, " is 0"));
  GuardedBuilder builder(limits, source);
  json::sax_parse(text.begin(), text.end(), &builder, json::input_format_t::json, /*strict=*/true,
                  limits.comments);
  return builder.take();
}

Json Json::parse(std::string_view text) { return parse_json(text, {}, "JSON"); }

bool JsonValue::has(std::string_view key) const {
  const Json* found = value_->find(key);
  return found != nullptr && !found->is_null();
}

JsonValue JsonValue::child(std::string_view key, const Json& value) const {
  return {value, source_, path_.empty() ? std::string(key) : cat(path_, ".", key)};
}

JsonValue JsonValue::at(std::string_view key) const {
  object();
  const Json* found = value_->find(key);
  if (found == nullptr) fail(cat("lacks '", key, "'"));
  return child(key, *found);
}

JsonValue JsonValue::at(std::size_t index) const {
  const Json::Array& items = array();
  if (index >= items.size()) fail(cat("has ", items.size(), " items; item ", index, " is wanted"));
  return {items[index], source_, cat(path_, "[", index, "]")};
}

JsonValue JsonValue::get(std::string_view key) const {
  static const Json kNull;
  return has(key) ? at(key) : child(key, kNull);
}

const Json::Object& JsonValue::object() const {
  if (!value_->is_object()) expected("an object");
  return value_->items();
}

const Json::Array& JsonValue::array() const {
  if (!value_->is_array()) expected("an array");
  return value_->items_of_array();
}

const std::string& JsonValue::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->text();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

double JsonValue::number() const {
  if (!value_->is_number()) expected("a number");
  return value_->get<double>();
}

int64_t JsonValue::integer(int64_t least, int64_t most) const {
  const bool fits = value_->is_number_unsigned() ? std::in_range<int64_t>(value_->get<uint64_t>())
                                                 : value_->is_number_integer();
  if (!fits || value_->get<int64_t>() < least || value_->get<int64_t>() > most)
    expected(cat("a whole number from ", least, " to ", most));
  return value_->get<int64_t>();
}

uint64_t JsonValue::unsigned_integer(uint64_t most) const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() > most)
    expected(cat("a whole number from 0 to ", most));
  return value_->get<uint64_t>();
}

void JsonValue::check_keys(std::span<const std::string_view> known) const {
  for (const auto& [key, value] : object()) {
    bool found = false;
    for (std::string_view k : known) found = found || k == key;
    if (found) continue;
    const std::string near = nearest_name(key, known);
    fail(cat("unknown key '", key.substr(0, 80), "'"), near.empty() ? "" : cat("did you mean '", near, "'?"));
  }
}

std::string JsonValue::shown() const {
  if (value_->is_object()) return "an object";
  if (value_->is_array()) return "an array";
  std::string text = value_->dump();
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

void JsonValue::expected(std::string_view kind) const {
  throw Error(
      cat(source_, ": ", path_.empty() ? "the document" : path_, " is ", shown(), "; expected ", kind));
}

std::string JsonValue::place() const {
  return path_.empty() ? std::string(source_) : cat(source_, ": ", path_);
}

void JsonValue::fail(std::string_view what, std::string hint) const {
  throw Error(cat(source_, ": ", path_, path_.empty() ? "" : " ", what), std::move(hint));
}

}  // namespace kiln
