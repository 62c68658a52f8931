// A JSON value that is cheap to include. Objects keep the order in which keys were added, so what kiln writes
// reads as it was meant. Text comes in through parse_json (base/json_reader.h), which checks everything, and
// goes out through dump(); only the two .cpp files behind them see nlohmann-json, whose header costs seconds
// a file.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace kiln {

class Json;
struct JsonMember;

template <class T>
concept JsonNumber = std::is_arithmetic_v<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

template <class T>
concept JsonText = std::convertible_to<const T&, std::string_view>;

// Vectors, arrays, spans: whatever is walked from begin to end and is not text.
template <class T>
concept JsonRange = !JsonText<T> && !std::same_as<std::remove_cvref_t<T>, Json> && requires(const T& t) {
  std::begin(t);
  std::end(t);
};

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;  // in the order of the file, or of the code that made it

  // Defined below JsonMember where they need its size.
  Json();  // null
  Json(std::nullptr_t);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}
  template <JsonNumber T>
  Json(T value) : value_(number_of(value)) {}
  template <JsonText T>
  Json(const T& text);
  template <JsonRange T>
  Json(const T& range);
  Json(Array items);
  // {{"key", value}, ...} is an object, where every item is such a pair; else an array.
  Json(std::initializer_list<Json> items);
  static Json array(std::initializer_list<Json> items = {});
  static Json object(std::initializer_list<Json> items = {});

  bool is_null() const { return std::holds_alternative<Null>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_structured() const { return is_array() || is_object(); }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_number_float() const { return std::holds_alternative<double>(value_); }
  bool is_number_integer() const { return is_number_unsigned() || std::holds_alternative<int64_t>(value_); }
  bool is_number_unsigned() const { return std::holds_alternative<uint64_t>(value_); }  // not negative

  // Of an array or an object; a null is an empty one of either.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  // Error where the kind is another one.
  const Array& items_of_array() const;
  const Object& items() const;  // for (const auto& [key, value] : json.items())
  const std::string& text() const;
  template <class T>
  T get() const;

  // Of an object. The const forms of at() and operator[] throw Error where there is no such key; the other
  // operator[] adds it.
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // null where there is none, or where this is no object
  Json* find(std::string_view key);
  const Json& at(std::string_view key) const;
  Json& at(std::string_view key);
  const Json& operator[](std::string_view key) const { return at(key); }
  Json& operator[](std::string_view key);
  template <class T>
  T value(std::string_view key, const T& otherwise) const;
  std::string value(std::string_view key, const char* otherwise) const {
    return value(key, std::string(otherwise));
  }
  void erase(std::string_view key);
  void update(const Json& other);  // takes every member of another object, replacing those of the same key
  Json& add(std::string key, Json value);  // to the end, without looking whether the key is there

  // Of an array.
  const Json& at(std::size_t index) const;
  Json& at(std::size_t index);
  template <std::integral T>
  const Json& operator[](T index) const {
    return at(static_cast<std::size_t>(index));
  }
  template <std::integral T>
  Json& operator[](T index) {
    return at(static_cast<std::size_t>(index));
  }
  const Json& front() const { return at(std::size_t{0}); }
  const Json& back() const { return at(size() - 1); }
  Json& front() { return at(std::size_t{0}); }
  Json& back() { return at(size() - 1); }
  Json& append(Json value);
  void push_back(Json value);  // the same; of {"key", value} to an object: sets the member
  Array::const_iterator begin() const { return items_of_array().begin(); }
  Array::const_iterator end() const { return items_of_array().end(); }

  // Text of our own making. What comes from elsewhere is read with limits: base/json_reader.h.
  static Json parse(std::string_view text);
  // One line, or with `indent` spaces for each level. Text that is not UTF-8 is replaced, never an error.
  std::string dump(int indent = -1) const;

  // Numbers by value, objects whatever their order.
  friend bool operator==(const Json& a, const Json& b);
  friend std::partial_ordering operator<=>(const Json& a, const Json& b);  // of numbers; Error for others
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  // Not std::monostate, and not trivial to copy: of alternatives that can all be moved without throwing the
  // library (GCC 12's) believes that it never has none of them, and destroys one that is not there when a
  // copy runs out of memory half-way.
  struct Null {
    Null() = default;
    Null(const Null&) noexcept {}                            // NOLINT(modernize-use-equals-default)
    Null& operator=(const Null&) noexcept { return *this; }  // NOLINT(modernize-use-equals-default)
    friend bool operator==(const Null&, const Null&) { return true; }
  };
  using Value = std::variant<Null, bool, uint64_t, int64_t, double, std::string, Array, Object>;

  template <JsonNumber T>
  static Value number_of(T value);
  double as_double() const;
  int64_t as_integer() const;
  bool as_bool() const;

  Value value_;
};

struct JsonMember {
  std::string key;
  Json value;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

inline Json::Json() = default;
inline Json::Json(std::nullptr_t) {}
inline Json::Json(const Json& other) = default;
inline Json::Json(Json&& other) noexcept = default;
inline Json& Json::operator=(const Json& other) = default;
inline Json& Json::operator=(Json&& other) noexcept = default;
inline Json::~Json() = default;

template <JsonNumber T>
Json::Value Json::number_of(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    if (std::cmp_greater_equal(value, 0)) return static_cast<uint64_t>(value);
    return static_cast<int64_t>(value);
  }
}

template <JsonText T>
Json::Json(const T& text) : value_(std::string(std::string_view(text))) {}

template <JsonRange T>
Json::Json(const T& range) : value_(Array()) {
  for (const auto& item : range) push_back(item);
}

template <class T>
T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return as_bool();
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(as_double());
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(as_integer());
  } else if constexpr (std::same_as<T, Json>) {
    return *this;
  } else if constexpr (std::same_as<T, std::string> || std::same_as<T, std::string_view>) {
    return text();
  } else {
    T items;
    for (const Json& item : items_of_array()) items.push_back(item.get<typename T::value_type>());
    return items;
  }
}

template <class T>
T Json::value(std::string_view key, const T& otherwise) const {
  const Json* found = find(key);
  return found == nullptr ? otherwise : found->get<T>();
}

}  // namespace kiln
