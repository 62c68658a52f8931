#include "tune/tune_file.h"

#include <cctype>
#include <cmath>
#include <map>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_ascii.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"

namespace kiln {
namespace {

constexpr std::size_t kMostBytes = std::size_t{8} << 20;  // some 20,000 matmuls
constexpr std::size_t kMostName = 400;
constexpr std::size_t kMostAlgorithm = 4096;

// Names go into messages and, of a GPU, into a file's name: plain ASCII without control characters.
std::string read_name(const JsonValue& value) {
  const std::string& text = value.string();
  bool plain = !text.empty() && text.size() <= kMostName;
  for (const char c : text) plain = plain && c >= ' ' && c <= '~';
  if (!plain) value.fail(cat("is no name; expected 1 to ", kMostName, " printable characters"));
  return text;
}

std::string read_algorithm(const JsonValue& value) {
  const std::string& text = value.string();
  if (text.empty() || text.size() > kMostAlgorithm || text.size() % 2 != 0 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    value.fail("is no algorithm; expected hexadecimal digits in pairs");
  return text;
}

double read_time(const JsonValue& value) {
  const double us = value.number();
  if (!(us >= 0)) value.fail("is no time; expected microseconds from 0 on");
  return us;
}

MatmulChoice read_choice(const JsonValue& c) {
  static constexpr std::string_view kKeys[] = {"problem", "algorithm", "us", "default_us"};
  c.check_keys(kKeys);
  return {read_name(c.at("problem")), read_algorithm(c.at("algorithm")), read_time(c.at("us")),
          read_time(c.at("default_us"))};
}

// Of attention: the formats its kernels with tiles to choose from take.
DType read_dtype(const JsonValue& value) {
  for (DType t : {DType::bf16, DType::f16, DType::f32}) {
    if (value.string() == name_of(t)) return t;
  }
  value.fail("is no format; expected bf16, fp16 or fp32");
}

AttentionChoice read_attention(const JsonValue& c) {
  static constexpr std::string_view kKeys[] = {"variant", "batch", "heads", "kv_heads",
                                               "queries", "keys",  "width", "dtype",
                                               "causal",  "tiles", "us",    "default_us"};
  static constexpr std::string_view kTileKeys[] = {"queries", "keys", "stages"};
  c.check_keys(kKeys);
  const auto size = [&](std::string_view key) { return c.at(key).integer(1, int64_t{1} << 40); };
  AttentionChoice choice;
  choice.shape = {read_name(c.at("variant")),
                  size("batch"),
                  size("heads"),
                  size("kv_heads"),
                  size("queries"),
                  size("keys"),
                  size("width"),
                  read_dtype(c.at("dtype")),
                  c.at("causal").boolean()};
  const JsonValue tiles = c.at("tiles");
  tiles.check_keys(kTileKeys);
  const auto count = [&](std::string_view key) { return static_cast<int>(tiles.at(key).integer(1, 4096)); };
  choice.tiles = {count("queries"), count("keys"), count("stages")};
  choice.us = read_time(c.at("us"));
  choice.default_us = read_time(c.at("default_us"));
  return choice;
}

Json attention_json(const AttentionChoice& c) {
  const AttentionShape& s = c.shape;
  return {{"variant", s.variant},
          {"batch", s.batch},
          {"heads", s.heads},
          {"kv_heads", s.kv_heads},
          {"queries", s.queries},
          {"keys", s.keys},
          {"width", s.width},
          {"dtype", name_of(s.dtype)},
          {"causal", s.causal},
          {"tiles", {{"queries", c.tiles.queries}, {"keys", c.tiles.keys}, {"stages", c.tiles.stages}}},
          {"us", c.us},
          {"default_us", c.default_us}};
}

std::vector<AttentionChoice> by_shape(std::map<AttentionShape, AttentionChoice> choices) {
  std::vector<AttentionChoice> list;
  list.reserve(choices.size());
  for (auto& [shape, choice] : choices) list.push_back(std::move(choice));
  return list;
}

std::vector<AttentionChoice> read_attention_list(const JsonValue& list) {
  std::map<AttentionShape, AttentionChoice> choices;
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    AttentionChoice choice = read_attention(list.at(i));
    const AttentionShape shape = choice.shape;
    if (!choices.emplace(shape, std::move(choice)).second) list.at(i).fail("has a shape that appears twice");
  }
  return by_shape(std::move(choices));
}

std::vector<MatmulChoice> by_problem(std::map<std::string, MatmulChoice> choices) {
  std::vector<MatmulChoice> list;
  list.reserve(choices.size());
  for (auto& [problem, choice] : choices) list.push_back(std::move(choice));
  return list;
}

// 130100 to 13.1.0, as cuBLASLt counts.
std::string version_text(std::size_t version) {
  return cat(version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

std::string tune_text(const TuneFile& file) {
  Json choices = Json::array();
  for (const MatmulChoice& c : file.choices)
    choices.push_back(
        {{"problem", c.problem}, {"algorithm", c.algorithm}, {"us", c.us}, {"default_us", c.default_us}});
  Json page = {{"format", 1},
               {"gpu", file.place.gpu},
               {"cublaslt", file.place.cublaslt},
               {"build", file.build},
               {"choices", std::move(choices)}};
  for (const AttentionChoice& c : file.attention) page["attention"].push_back(attention_json(c));
  return dump_ascii(page, 1) + "\n";
}

TuneFile parse_tune_file(std::string_view text, std::string_view source) {
  const Json document =
      parse_json(text, {.max_bytes = kMostBytes, .max_depth = 5, .max_values = 200'000}, source);
  const JsonValue root(document, source);
  static constexpr std::string_view kKeys[] = {"format", "gpu", "cublaslt", "build", "choices", "attention"};
  root.check_keys(kKeys);
  if (const int64_t format = root.at("format").integer(0, 1 << 30); format != 1)
    root.at("format").fail(cat("is ", format, "; this kiln reads 1"));
  TuneFile file;
  file.place.gpu = read_name(root.at("gpu"));
  file.place.cublaslt = static_cast<std::size_t>(root.at("cublaslt").unsigned_integer(UINT32_MAX));
  file.build = read_name(root.at("build"));
  std::map<std::string, MatmulChoice> choices;
  const JsonValue list = root.at("choices");
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    MatmulChoice choice = read_choice(list.at(i));
    const std::string problem = choice.problem;
    if (!choices.emplace(problem, std::move(choice)).second) list.at(i).at("problem").fail("appears twice");
  }
  file.choices = by_problem(std::move(choices));
  if (root.raw().contains("attention")) file.attention = read_attention_list(root.at("attention"));
  return file;
}

TuneFile read_tune_file(const std::string& path, const std::string& remedy) {
  const std::string text = read_small_file(path, kMostBytes, "a file of `kiln tune`");
  try {
    return parse_tune_file(text, path);
  } catch (const Error& e) {
    throw Error(e.what(), remedy);
  }
}

void write_tune_file(const std::string& path, const TuneFile& file) {
  write_file_atomically(path, tune_text(file));
}

std::string tune_file_name(std::string_view gpu) {
  std::string name = "tune-";
  for (const char c : gpu) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (name.back() != '-')
      name += '-';
  }
  while (name.back() == '-') name.pop_back();
  return name + ".json";
}

std::string why_not_here(const TuneFile& file, const TunePlace& here, std::string_view source) {
  if (file.place.gpu != here.gpu)
    return cat(source, " was measured on ", file.place.gpu, "; this is ", here.gpu);
  if (file.place.cublaslt != here.cublaslt)
    return cat(source, " was measured with cuBLASLt ", version_text(file.place.cublaslt), "; this is ",
               version_text(here.cublaslt));
  return {};
}

TuneFile merged(const TuneFile& earlier, const TuneFile& now) {
  if (earlier.place != now.place) throw Error("one file cannot hold choices for two GPUs");
  std::map<std::string, MatmulChoice> choices;
  std::map<AttentionShape, AttentionChoice> attention;
  for (const TuneFile* file : {&earlier, &now}) {
    for (const MatmulChoice& c : file->choices) choices.insert_or_assign(c.problem, c);
    for (const AttentionChoice& c : file->attention) attention.insert_or_assign(c.shape, c);
  }
  return {now.place, now.build, by_problem(std::move(choices)), by_shape(std::move(attention))};
}

}  // namespace kiln
