#include "base/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "base/error.h"
#include "base/json_ascii.h"

namespace kiln {
namespace {

// [key, value]: what an initializer list of an object is made of.
bool is_member(const Json& item) { return item.is_array() && item.size() == 2 && item.front().is_string(); }

std::string_view kind_of(const Json& json) {
  return json.is_null()      ? "null"
         : json.is_boolean() ? "true or false"
         : json.is_string()  ? "a string"
         : json.is_array()   ? "an array"
         : json.is_object()  ? "an object"
                             : "a number";
}

[[noreturn]] void wrong_kind(const Json& json, std::string_view wanted) {
  throw Error(cat("a JSON value is ", kind_of(json), "; expected ", wanted));
}

// Only scalars go through nlohmann's writer: its arrays and objects allocate in their destructors, so that a
// program that runs out of memory would be ended there. Around them its layout is kept.
class Writer {
 public:
  Writer(int indent, bool ascii) : indent_(indent), ascii_(ascii) {}

  void write(const Json& json) {
    if (json.is_array()) {
      list('[', ']', json.items_of_array(), [this](const Json& item) { write(item); });
    } else if (json.is_object()) {
      list('{', '}', json.items(), [this](const JsonMember& member) {
        string(member.key);
        text += indent_ < 0 ? ":" : ": ";
        write(member.value);
      });
    } else {
      scalar(json);
    }
  }

  std::string text;

 private:
  template <class Items, class Write>
  void list(char open, char close, const Items& items, const Write& write_one) {
    text += open;
    ++depth_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) text += ',';
      line();
      write_one(items[i]);
    }
    --depth_;
    if (!items.empty()) line();
    text += close;
  }

  void line() {
    if (indent_ < 0) return;
    text += '\n';
    text.append(static_cast<std::size_t>(indent_) * depth_, ' ');
  }

  void scalar(const Json& json) {
    if (json.is_null()) {
      text += "null";
    } else if (json.is_boolean()) {
      text += json.get<bool>() ? "true" : "false";
    } else if (json.is_string()) {
      string(json.text());
    } else if (json.is_number_unsigned()) {
      whole(json.get<uint64_t>());
    } else if (json.is_number_integer()) {
      whole(json.get<int64_t>());
    } else {
      text += nlohmann::json(json.get<double>()).dump();
    }
  }

  template <class T>
  void whole(T value) {
    std::array<char, 24> digits{};
    text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  }

  void string(const std::string& s) {
    const auto plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
    if (std::all_of(s.begin(), s.end(), plain)) {
      text += '"';
      text += s;
      text += '"';
    } else {
      text += nlohmann::json(s).dump(-1, ' ', ascii_, nlohmann::json::error_handler_t::replace);
    }
  }

  int indent_;
  bool ascii_;
  std::size_t depth_ = 0;
};

std::string written(const Json& json, int indent, bool ascii) {
  Writer writer(indent, ascii);
  writer.write(json);
  return std::move(writer.text);
}

}  // namespace

Json::Json(Array items) : value_(std::move(items)) {}

Json::Json(std::initializer_list<Json> items) {
  if (std::all_of(items.begin(), items.end(), is_member)) {
    *this = object(items);
  } else {
    value_ = Array(items);
  }
}

Json Json::array(std::initializer_list<Json> items) { return Array(items); }

Json Json::object(std::initializer_list<Json> items) {
  Json page;
  Object members;
  members.reserve(items.size());
  page.value_ = std::move(members);
  for (const Json& item : items) {
    if (!is_member(item)) throw Error("a member of a JSON object is not {\"key\", value}");
    page[item.front().text()] = item.back();
  }
  return page;
}

std::size_t Json::size() const {
  if (is_null()) return 0;
  if (const auto* items = std::get_if<Array>(&value_)) return items->size();
  if (const auto* members = std::get_if<Object>(&value_)) return members->size();
  return 1;
}

const Json::Array& Json::items_of_array() const {
  const auto* items = std::get_if<Array>(&value_);
  if (items == nullptr) wrong_kind(*this, "an array");
  return *items;
}

const Json::Object& Json::items() const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) wrong_kind(*this, "an object");
  return *members;
}

const std::string& Json::text() const {
  const auto* text = std::get_if<std::string>(&value_);
  if (text == nullptr) wrong_kind(*this, "a string");
  return *text;
}

bool Json::as_bool() const {
  const auto* value = std::get_if<bool>(&value_);
  if (value == nullptr) wrong_kind(*this, "true or false");
  return *value;
}

double Json::as_double() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  wrong_kind(*this, "a number");
}

// The bits of a number above 2^63 come back whole when the caller asks for an unsigned one.
int64_t Json::as_integer() const {
  if (const auto* value = std::get_if<uint64_t>(&value_)) return static_cast<int64_t>(*value);
  if (const auto* value = std::get_if<int64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<double>(&value_)) return static_cast<int64_t>(*value);
  wrong_kind(*this, "a number");
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  const auto found =
      std::find_if(members->begin(), members->end(), [&](const JsonMember& m) { return m.key == key; });
  return found == members->end() ? nullptr : &found->value;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr && !is_object()) wrong_kind(*this, cat("an object with '", key, "'"));
  if (found == nullptr) throw Error(cat("a JSON object has no '", key, "'"));
  return *found;
}

Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }

Json& Json::operator[](std::string_view key) {
  if (Json* found = find(key)) return *found;
  return add(std::string(key), nullptr);
}

Json& Json::add(std::string key, Json value) {
  if (is_null()) value_ = Object();
  auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) wrong_kind(*this, "an object");
  return members->emplace_back(std::move(key), std::move(value)).value;
}

void Json::erase(std::string_view key) {
  if (auto* members = std::get_if<Object>(&value_))
    std::erase_if(*members, [&](const JsonMember& m) { return m.key == key; });
}

void Json::update(const Json& other) {
  for (const auto& [key, value] : other.items()) (*this)[key] = value;
}

const Json& Json::at(std::size_t index) const {
  const Array& items = items_of_array();
  if (index >= items.size()) throw Error(cat("item ", index, " of a JSON array of ", items.size()));
  return items[index];
}

Json& Json::at(std::size_t index) { return const_cast<Json&>(std::as_const(*this).at(index)); }

Json& Json::append(Json value) {
  if (is_null()) value_ = Array();
  auto* items = std::get_if<Array>(&value_);
  if (items == nullptr) wrong_kind(*this, "an array");
  return items->emplace_back(std::move(value));
}

void Json::push_back(Json value) {
  if (is_object() && is_member(value)) {
    (*this)[value.front().text()] = std::move(value.back());
  } else {
    append(std::move(value));
  }
}

std::string Json::dump(int indent) const { return written(*this, indent, false); }

std::string dump_ascii(const Json& json, int indent) { return written(json, indent, true); }

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_number_integer() && b.is_number_integer()) return a.value_ == b.value_;
    return a.as_double() == b.as_double();
  }
  if (!a.is_object() || !b.is_object()) return a.value_.index() == b.value_.index() && a.value_ == b.value_;
  return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&](const JsonMember& m) {
           const Json* other = b.find(m.key);
           return other != nullptr && *other == m.value;
         });
}

std::partial_ordering operator<=>(const Json& a, const Json& b) { return a.as_double() <=> b.as_double(); }

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

}  // namespace kiln
