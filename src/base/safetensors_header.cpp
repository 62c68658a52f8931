#include "base/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace kiln {
namespace {

using nlohmann::json;

struct TypeRow {
  std::string_view name;
  int bits;
};

constexpr TypeRow kTypes[] = {
    {"F64", 64},    {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},    {"U64", 64}, {"I32", 32},
    {"U32", 32},    {"I16", 16},    {"U16", 16},    {"I8", 8},      {"U8", 8},      {"BOOL", 8}, {"C64", 64},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

constexpr std::string_view kMetadataKey = "__metadata__";

std::string shown(std::string_view name) {
  return name.size() <= 80 ? cat("'", name, "'") : cat("'", name.substr(0, 77), "...'");
}

// Elements times bits as bytes; empty where that cannot be counted or is not whole.
std::optional<uint64_t> bytes_of(std::span<const uint64_t> shape, SafetensorsType type) {
  uint64_t elements = 1, bits = 0;
  for (const uint64_t n : shape) {
    if (__builtin_mul_overflow(elements, n, &elements)) return std::nullopt;
  }
  if (__builtin_mul_overflow(elements, static_cast<uint64_t>(bits_of(type)), &bits)) return std::nullopt;
  return bits % 8 == 0 ? std::optional(bits / 8) : std::nullopt;
}

}  // namespace

std::string_view name_of(SafetensorsType type) { return kTypes[static_cast<int>(type)].name; }
int bits_of(SafetensorsType type) { return kTypes[static_cast<int>(type)].bits; }

uint64_t SafetensorsEntry::elements() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

std::string SafetensorsEntry::shape_text() const {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

// Takes the parser's events and allows, at each place, only what the format has there.
class SafetensorsHeaderReader final : public json::json_sax_t {
 public:
  SafetensorsHeaderReader(SafetensorsHeader& header, std::string_view source) : h_(header), source_(source) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("not a whole number of 64 bits"); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool number_unsigned(number_unsigned_t v) override {
    if (place_ == Place::shape) {
      if (++tensor_.axes > SafetensorsHeader::kMostAxes)
        fail_tensor(cat("has more than ", SafetensorsHeader::kMostAxes, " axes"));
      h_.shapes_.push_back(v);
    } else if (place_ == Place::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = v;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(string_t& v) override {
    if (place_ == Place::metadata) {
      h_.metadata_.back().value = keep(v);
    } else if (place_ == Place::tensor && field_ == Field::dtype) {
      const auto* row =
          std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) { return r.name == v; });
      if (row == std::end(kTypes)) fail_tensor(cat("has the unknown dtype ", shown(v)));
      tensor_.type = static_cast<SafetensorsType>(row - std::begin(kTypes));
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = in_metadata_ ? Place::metadata : Place::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      for (const auto& [field, name] : kFields) {
        if ((seen_ & (1U << static_cast<unsigned>(field))) == 0) fail_tensor(cat("lacks '", name, "'"));
      }
      h_.tensors_.push_back(tensor_);
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && field_ == Field::shape) {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && field_ == Field::offsets) {
      place_ = Place::offsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) fail_tensor("has data_offsets that are not two numbers");
    place_ = Place::tensor;
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::metadata) {
      h_.metadata_.push_back({keep(name), {}});
    } else if (place_ == Place::tensor) {
      const auto* row = std::find_if(std::begin(kFields), std::end(kFields),
                                     [&](const FieldRow& r) { return r.name == name; });
      if (row == std::end(kFields)) fail_tensor(cat("has the unknown key ", shown(name)));
      const unsigned bit = 1U << static_cast<unsigned>(row->field);
      if ((seen_ & bit) != 0) fail_tensor(cat("has the key '", name, "' twice"));
      seen_ |= bit;
      field_ = row->field;
    } else {
      begin_tensor(name);
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    std::string why = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    if (const auto end = why.find("] "); end != std::string::npos) why.erase(0, end + 2);
    throw Error(cat(source_, ": the header is not JSON: ", why.substr(0, 300)));
  }

 private:
  enum class Place : uint8_t { outside, top, metadata, tensor, shape, offsets };
  enum class Field : uint8_t { dtype, shape, offsets };
  struct FieldRow {
    Field field;
    std::string_view name;
  };
  static constexpr FieldRow kFields[] = {
      {Field::dtype, "dtype"}, {Field::shape, "shape"}, {Field::offsets, "data_offsets"}};

  void begin_tensor(const std::string& name) {
    if (name == kMetadataKey) {
      if (in_metadata_ || had_metadata_)
        throw Error(cat(source_, ": the header has '", kMetadataKey, "' twice"));
      in_metadata_ = had_metadata_ = true;
      return;
    }
    in_metadata_ = false;
    if (name.size() > SafetensorsHeader::kLongestName)
      throw Error(cat(source_, ": a tensor's name has ", name.size(), " bytes; at most ",
                      SafetensorsHeader::kLongestName, " are read: ", shown(name)));
    if (h_.tensors_.size() == SafetensorsHeader::kMostTensors)
      throw Error(cat(source_, ": the header has more than ", SafetensorsHeader::kMostTensors, " tensors"));
    tensor_ = {};
    tensor_.name = keep(name);
    tensor_.shape_at = static_cast<uint32_t>(h_.shapes_.size());
    seen_ = 0;
    offsets_ = 0;
  }

  SafetensorsHeader::Text keep(std::string_view text) {
    const SafetensorsHeader::Text t{static_cast<uint32_t>(h_.text_.size()),
                                    static_cast<uint32_t>(text.size())};
    h_.text_ += text;
    return t;
  }

  [[noreturn]] void fail_tensor(const std::string& what) const {
    throw Error(cat(source_, ": tensor ", shown(h_.view(tensor_.name)), " ", what));
  }

  [[noreturn]] void unexpected(std::string_view what) const {
    switch (place_) {
      case Place::outside:
        throw Error(cat(source_, ": the header is ", what, "; expected an object"));
      case Place::top:
        if (in_metadata_) throw Error(cat(source_, ": ", kMetadataKey, " is ", what, "; expected an object"));
        fail_tensor(cat("is ", what, "; expected an object"));
      case Place::metadata:
        throw Error(cat(source_, ": ", kMetadataKey, ".", h_.view(h_.metadata_.back().key).substr(0, 80),
                        " is ", what, "; expected a string"));
      case Place::tensor:
        fail_tensor(cat("has a ", kFields[static_cast<int>(field_)].name, " that is ", what));
      case Place::shape:
        fail_tensor(cat("has ", what, " in its shape; expected whole numbers from 0 on"));
      case Place::offsets:
        break;
    }
    fail_tensor(offsets_ < 2 ? cat("has ", what, " in its data_offsets; expected whole numbers from 0 on")
                             : std::string("has data_offsets that are not two numbers"));
  }

  SafetensorsHeader& h_;
  std::string_view source_;
  Place place_ = Place::outside;
  bool in_metadata_ = false, had_metadata_ = false;
  SafetensorsHeader::Tensor tensor_;
  Field field_{};
  unsigned seen_ = 0;  // fields of this tensor
  int offsets_ = 0;
};

SafetensorsHeader::SafetensorsHeader(std::string_view text, uint64_t data_bytes, std::string_view source) {
  if (text.size() > kMostBytes)
    throw Error(cat(source, ": the header has ", text.size(), " bytes; at most ", kMostBytes, " are read"));
  if (text.empty() || text.front() != '{') throw Error(cat(source, ": the header does not begin with '{'"));
  if (const auto nul = text.find('\0');
      nul != std::string_view::npos)  // the parser would stop there, content
    throw Error(cat(source, ": the header is not JSON: byte ", nul, " is 0"));
  SafetensorsHeaderReader reader(*this, source);
  json::sax_parse(text.begin(), text.end(), &reader);
  check(data_bytes, source);
}

void SafetensorsHeader::check(uint64_t data_bytes, std::string_view source) {
  std::sort(metadata_.begin(), metadata_.end(),
            [&](const Metadata& a, const Metadata& b) { return view(a.key) < view(b.key); });
  for (std::size_t i = 1; i < metadata_.size(); ++i) {
    if (view(metadata_[i].key) == view(metadata_[i - 1].key))
      throw Error(cat(source, ": ", kMetadataKey, " has the key ", shown(view(metadata_[i].key)), " twice"));
  }

  // Empty tensors are where the next one begins, so the end decides between equal beginnings.
  std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return view(tensors_[a].name) < view(tensors_[b].name); });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    const std::string_view name = view(tensors_[by_name_[i]].name);
    if (name == view(tensors_[by_name_[i - 1]].name))
      throw Error(cat(source, ": tensor ", shown(name), " appears twice in the header"));
  }

  uint64_t at = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const SafetensorsEntry e = (*this)[i];
    const auto refuse = [&](const auto&... what) {
      throw Error(cat(source, ": tensor ", shown(e.name), " ", what...));
    };
    const auto range = [&] { return cat("bytes [", e.begin, ", ", e.end, ")"); };
    if (e.begin > e.end) refuse("ends before it begins: ", range());
    const std::optional<uint64_t> wanted = bytes_of(e.shape, e.type);
    if (!wanted) refuse("has a size that cannot be counted: ", e.shape_text(), " of ", name_of(e.type));
    if (*wanted != e.bytes())
      refuse("has ", range(), ", ", e.bytes(), " in total; ", e.shape_text(), " of ", name_of(e.type),
             " are ", *wanted);
    if (e.end > data_bytes) refuse("has ", range(), "; the file has ", data_bytes, " bytes of data");
    if (e.begin < at) refuse("overlaps the one before it: ", range(), " begin before ", at);
    if (e.begin > at) refuse("leaves a hole before it: ", range(), " begin after ", at);
    at = e.end;
  }
  if (at != data_bytes)
    throw Error(cat(source, ": the file has ", data_bytes, " bytes of data, the tensors take ", at));
}

SafetensorsEntry SafetensorsHeader::operator[](std::size_t index) const {
  const Tensor& t = tensors_[index];
  return {view(t.name), t.type, std::span(shapes_).subspan(t.shape_at, t.axes), t.begin, t.end};
}

std::optional<SafetensorsEntry> SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name, [&](uint32_t i, auto wanted) {
    return view(tensors_[i].name) < wanted;
  });
  if (found == by_name_.end() || view(tensors_[*found].name) != name) return std::nullopt;
  return (*this)[*found];
}

std::optional<std::string_view> SafetensorsHeader::metadata(std::string_view key) const {
  const auto found = std::lower_bound(metadata_.begin(), metadata_.end(), key,
                                      [&](const Metadata& m, auto wanted) { return view(m.key) < wanted; });
  if (found == metadata_.end() || view(found->key) != key) return std::nullopt;
  return view(found->value);
}

SafetensorsParts split_safetensors(std::span<const std::byte> file, std::string_view source) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t length = 0;
  if (file.size() < sizeof length)
    throw Error(cat(source, ": ", file.size(), " bytes are too few for a safetensors file"));
  std::memcpy(&length, file.data(), sizeof length);
  const std::span<const std::byte> rest = file.subspan(sizeof length);
  if (length > SafetensorsHeader::kMostBytes)
    throw Error(cat(source, ": not a safetensors file, or a damaged one: its header would have ", length,
                    " bytes; at most ", SafetensorsHeader::kMostBytes, " are read"));
  if (length > rest.size())
    throw Error(cat(source, ": the file ends inside its header: ", length, " bytes are announced, ",
                    rest.size(), " are there"));
  const auto size = static_cast<std::size_t>(length);
  return {{reinterpret_cast<const char*>(rest.data()), size}, rest.subspan(size)};
}

}  // namespace kiln
