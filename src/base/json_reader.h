// JSON from files we did not write. nlohmann-json by itself lets the last of two equal keys win, turns -1 and
// 1.5 into a size_t silently, and takes any depth; here each of these is an Error that names the source
// and the place. Everything kiln reads as JSON comes through parse_json and the typed readers below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace kiln {

struct JsonLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
  int max_depth = 32;                  // arrays and objects inside each other
  std::size_t max_values = 8'000'000;  // total of numbers, strings, arrays, objects...
  bool comments = false;               // allow // and /* */
};

// The whole text as one JSON value. Refuses what is over a limit, a key that appears twice in one object, a
// whole number beyond 64 bits, a number beyond the range of double, and anything after the value.
// `source` opens every message: a path, mostly.
Json parse_json(std::string_view text, const JsonLimits& limits, std::string_view source);

// A value and where it is, so that errors name the place: "config.json: rope.theta is -1".
// Holds references: the document and the source's name must outlive it.
class JsonValue {
 public:
  JsonValue(const Json& value, std::string_view source, std::string path = {})
      : value_(&value), source_(source), path_(std::move(path)) {}

  const Json& raw() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_object() const { return value_->is_object(); }
  bool is_string() const { return value_->is_string(); }

  bool has(std::string_view key) const;       // an object with this key, and its value not null
  JsonValue at(std::string_view key) const;   // Error where there is none
  JsonValue at(std::size_t index) const;      // of an array
  JsonValue get(std::string_view key) const;  // a null value where there is none
  JsonValue child(std::string_view key, const Json& value) const;

  const Json::Object& object() const;
  const Json::Array& array() const;
  const std::string& string() const;
  bool boolean() const;
  double number() const;
  int64_t integer(int64_t least, int64_t most) const;
  uint64_t unsigned_integer(uint64_t most = std::numeric_limits<uint64_t>::max()) const;

  // Refuses keys that are not in `known`, with the nearest one that is.
  void check_keys(std::span<const std::string_view> known) const;

  std::string place() const;  // "config.json: rope.theta"
  // "what is wrong" with source and place before it.
  [[noreturn]] void fail(std::string_view what, std::string hint = {}) const;

 private:
  std::string shown() const;
  [[noreturn]] void expected(std::string_view kind) const;

  const Json* value_;
  std::string_view source_;
  std::string path_;
};

}  // namespace kiln
