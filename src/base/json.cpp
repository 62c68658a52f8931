#include "base/json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

using nlohmann::json;

// Builds the document from the parser's events and stops at the first thing that is not allowed. Nothing here
// recurses, so a deep document is refused and not met by a stack overflow.
class GuardedBuilder final : public json::json_sax_t {
 public:
  GuardedBuilder(const JsonLimits& limits, std::string_view source) : limits_(limits), source_(source) {}

  json take() { return std::move(root_); }

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
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto [place, fresh] = stack_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    if (!fresh) fail(cat("key '", place->first.substr(0, 80), "' stands twice in one object"));
    slot_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    std::string why = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const auto end = why.find("] "); end != std::string::npos) why.erase(0, end + 2);
    fail(cat("not JSON: ", why));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(cat(source_, ": ", what)); }

  json& place(json&& value) {
    if (++values_ > limits_.max_values) fail(cat("more than ", limits_.max_values, " JSON values"));
    if (stack_.empty()) return root_ = std::move(value);
    if (stack_.back()->is_array()) {
      auto& items = stack_.back()->get_ref<json::array_t&>();
      items.push_back(std::move(value));
      return items.back();
    }
    return *slot_ = std::move(value);
  }
  bool put(json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(json&& container) {
    if (stack_.size() >= static_cast<std::size_t>(limits_.max_depth))
      fail(cat("JSON nested more than ", limits_.max_depth, " deep"));
    stack_.push_back(&place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::string_view source_;
  json root_;
  std::vector<json*> stack_;  // the containers that are open; only the innermost grows, so these stay put
  json* slot_ = nullptr;      // where the value after a key goes
  std::size_t values_ = 0;
};

}  // namespace

json parse_json(std::string_view text, const JsonLimits& limits, std::string_view source) {
  if (text.size() > limits.max_bytes)
    throw Error(cat(source, ": ", text.size(), " bytes of JSON; at most ", limits.max_bytes, " are read"));
  GuardedBuilder builder(limits, source);
  json::sax_parse(text.begin(), text.end(), &builder, json::input_format_t::json, /*strict=*/true,
                  limits.comments);
  return builder.take();
}

bool JsonValue::has(std::string_view key) const {
  if (!is_object()) return false;
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonValue JsonValue::child(std::string_view key, const json& value) const {
  return {value, source_, path_.empty() ? std::string(key) : cat(path_, ".", key)};
}

JsonValue JsonValue::at(std::string_view key) const {
  const json::object_t& fields = object();
  const auto found = fields.find(std::string(key));
  if (found == fields.end()) fail(cat("lacks '", key, "'"));
  return child(key, found->second);
}

JsonValue JsonValue::at(std::size_t index) const {
  const json::array_t& items = array();
  if (index >= items.size()) fail(cat("has ", items.size(), " items; item ", index, " is wanted"));
  return {items[index], source_, cat(path_, "[", index, "]")};
}

JsonValue JsonValue::get(std::string_view key) const {
  static const json kNull;
  return has(key) ? at(key) : child(key, kNull);
}

const json::object_t& JsonValue::object() const {
  if (!value_->is_object()) expected("an object");
  return value_->get_ref<const json::object_t&>();
}

const json::array_t& JsonValue::array() const {
  if (!value_->is_array()) expected("an array");
  return value_->get_ref<const json::array_t&>();
}

const std::string& JsonValue::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get_ref<const std::string&>();
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
  std::string text = value_->dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

void JsonValue::expected(std::string_view kind) const {
  throw Error(
      cat(source_, ": ", path_.empty() ? "the document" : path_, " is ", shown(), "; expected ", kind));
}

void JsonValue::fail(std::string_view what, std::string hint) const {
  throw Error(cat(source_, ": ", path_, path_.empty() ? "" : " ", what), std::move(hint));
}

}  // namespace kiln
