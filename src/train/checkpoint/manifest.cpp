#include "train/checkpoint/manifest.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "train/checkpoint/checkpoint_format.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // a million tensors with long names
constexpr uint64_t kMostFileBytes = uint64_t{1} << 56;      // sums of a few stay within 64 bits
constexpr int64_t kMostSteps = int64_t{1} << 48;

std::string hex(uint32_t checksum) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", checksum);
  return text;
}

uint32_t read_hex(const JsonValue& value) {
  const std::string& text = value.string();
  if (text.size() != 8 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    value.fail("is no checksum; expected 8 hexadecimal digits");
  return static_cast<uint32_t>(std::stoul(text, nullptr, 16));
}

std::string closing_line(uint32_t checksum) { return "\"crc32c\": \"" + hex(checksum) + "\"\n}\n"; }

// The file's own name in its own folder: no way out of it.
std::string read_file_name(const JsonValue& value) {
  const std::string& name = value.string();
  if (name.empty() || name.size() > 255 || name == "." || name == ".." || name == Manifest::kName ||
      name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
    value.fail("is no plain file name");
  return name;
}

ManifestTensor read_tensor(const JsonValue& t) {
  static constexpr std::string_view kKeys[] = {"name", "bytes", "crc32c"};
  t.check_keys(kKeys);
  return {t.at("name").string(), t.at("bytes").unsigned_integer(kMostFileBytes), read_hex(t.at("crc32c"))};
}

ManifestFile read_file(const JsonValue& f) {
  static constexpr std::string_view kKeys[] = {"name", "bytes", "crc32c", "tensors"};
  f.check_keys(kKeys);
  ManifestFile file{read_file_name(f.at("name")),
                    f.at("bytes").unsigned_integer(kMostFileBytes),
                    read_hex(f.at("crc32c")),
                    {}};
  if (!f.has("tensors")) return file;
  uint64_t left = file.bytes;
  const JsonValue tensors = f.at("tensors");
  file.tensors.reserve(tensors.array().size());
  for (std::size_t i = 0; i < tensors.array().size(); ++i) {
    file.tensors.push_back(read_tensor(tensors.at(i)));
    if (file.tensors.back().bytes > left) tensors.at(i).at("bytes").fail("is more than the file has left");
    left -= file.tensors.back().bytes;
  }
  return file;
}

void check(const std::string& what, std::span<const std::byte> bytes, uint32_t expected) {
  const uint32_t seen = crc32c(bytes);
  if (seen != expected)
    throw Error(cat(what, " is damaged: its checksum is ", hex(seen), ", expected ", hex(expected)));
}

void verify_file(const std::string& folder, const ManifestFile& expected) {
  const std::string path = (fs::path(folder) / expected.name).string();
  const MappedFile file(path);
  if (file.size() != expected.bytes)
    throw Error(cat(path, " has ", file.size(), " bytes; ", expected.bytes, " were written"));
  uint64_t in_tensors = 0;
  for (const ManifestTensor& t : expected.tensors) in_tensors += t.bytes;
  std::size_t at = static_cast<std::size_t>(expected.bytes - in_tensors);
  check(expected.tensors.empty() ? path : cat(path, ": the header"), file.bytes().first(at), expected.crc32c);
  for (const ManifestTensor& t : expected.tensors) {
    file.check_unchanged();
    check(cat(path, ": tensor ", t.name), file.bytes().subspan(at, static_cast<std::size_t>(t.bytes)),
          t.crc32c);
    at += static_cast<std::size_t>(t.bytes);
  }
}

}  // namespace

std::string manifest_text(const Manifest& m) {
  Json files = Json::array();
  for (const ManifestFile& f : m.files) {
    Json file = {{"name", f.name}, {"bytes", f.bytes}, {"crc32c", hex(f.crc32c)}};
    for (const ManifestTensor& t : f.tensors)
      file["tensors"].push_back({{"name", t.name}, {"bytes", t.bytes}, {"crc32c", hex(t.crc32c)}});
    files.push_back(std::move(file));
  }
  std::string text = cat("{\n\"format\": ", kCheckpointFormat, ",\n\"step\": ", m.step,
                         ",\n\"generation\": ", m.generation, ",\n\"files\": ", files.dump(1), ",\n");
  return text + closing_line(crc32c(std::as_bytes(std::span(text))));
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  const std::size_t closing = closing_line(0).size();
  const std::string_view body = text.substr(0, text.size() - std::min(closing, text.size()));
  if (text.substr(body.size()) != closing_line(crc32c(std::as_bytes(std::span(body)))))
    throw Error(cat(source, " is damaged: its own checksum does not match"));
  Json document = parse_json(text, {.max_bytes = kMostBytes}, source);
  migrate(document, CheckpointPart::manifest, source);
  const JsonValue root(document, source);
  static constexpr std::string_view kKeys[] = {"format", "step", "generation", "files", "crc32c"};
  root.check_keys(kKeys);
  Manifest m;
  m.step = root.at("step").integer(0, kMostSteps);
  m.generation = root.at("generation").unsigned_integer();
  std::set<std::string> names;
  const JsonValue files = root.at("files");
  for (std::size_t i = 0; i < files.array().size(); ++i) {
    m.files.push_back(read_file(files.at(i)));
    if (!names.insert(m.files.back().name).second) files.at(i).at("name").fail("appears twice");
  }
  return m;
}

ManifestFile describe_file(const std::string& folder, const std::string& name,
                           std::vector<ManifestTensor> tensors) {
  const MappedFile file((fs::path(folder) / name).string());
  uint64_t in_tensors = 0;
  for (const ManifestTensor& t : tensors) in_tensors += t.bytes;
  if (in_tensors > file.size())
    throw Error(cat(file.path(), " has ", file.size(), " bytes; its tensors alone are ", in_tensors));
  const uint32_t checksum = crc32c(file.bytes().first(static_cast<std::size_t>(file.size() - in_tensors)));
  return {name, file.size(), checksum, std::move(tensors)};
}

Manifest verify_checkpoint(const std::string& folder) {
  const std::string path = (fs::path(folder) / Manifest::kName).string();
  Manifest m = parse_manifest(read_small_file(path, kMostBytes, "a checkpoint's manifest"), path);
  for (const ManifestFile& f : m.files) verify_file(folder, f);
  return m;
}

}  // namespace kiln
