#include "data/text_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/folder.h"
#include "data/utf8.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// A run that keeps its metrics below the text it learns from would learn from them when it resumes.
bool is_a_run(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "run.json", ignored) && fs::exists(path / "lock", ignored);
}

void add_files_below(const fs::path& folder, std::vector<std::string>& paths) {
  for (const FolderEntry& e : list_folder(folder.string())) {
    const fs::path path = folder / e.name;
    std::error_code ignored;
    if (hidden(path) || is_a_run(path)) continue;
    if (e.kind == EntryKind::folder) {
      add_files_below(path, paths);
    } else if (fs::is_regular_file(path, ignored)) {  // links to files are followed, those to folders are not
      paths.push_back(path.string());
    }
  }
}

// Paths of all regular files below a folder, sorted byte by byte: the same on every machine and in every
// language.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> paths;
  try {
    add_files_below(folder, paths);
  } catch (const fs::filesystem_error& e) {
    throw Error(cat("cannot list ", e.path1().string(), ": ", e.code().message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::string why_not_text(std::string_view bytes) {
  if (bytes.empty()) return "it is empty";
  const std::size_t valid = utf8_valid_prefix(bytes);
  const void* zero = std::memchr(bytes.data(), 0, valid);
  if (zero != nullptr)
    return cat("it is binary: a zero byte at offset ", static_cast<const char*>(zero) - bytes.data());
  if (valid != bytes.size()) return cat("it is not UTF-8: the fault is at byte offset ", valid);
  return {};
}

TextSource::TextSource(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    throw Error(cat("there is no text ", path), "give a text file or a folder of them");
  if (!fs::is_directory(status)) {
    const MappedFile file(path);
    const std::string why = why_not_text(file.text());
    if (!why.empty()) throw Error(cat(path, " cannot be used as text: ", why));
    files_.push_back({path, file.size()});
    bytes_ = file.size();
    return;
  }
  for (const std::string& name : files_below(path)) {
    try {
      const MappedFile file(name);
      const std::string why = why_not_text(file.text());
      if (!why.empty()) {
        skipped_.push_back({name, why});
        continue;
      }
      files_.push_back({name, file.size()});
      bytes_ += file.size();
    } catch (const Error& failed) {
      skipped_.push_back({name, failed.what()});
    }
  }
  if (files_.empty()) {
    throw Error(cat("the folder ", path, " holds no text",
                    skipped_.empty() ? ""
                                     : cat("; of ", skipped_.size(), " files the first is ", skipped_[0].path,
                                           ": ", skipped_[0].reason)));
  }
}

TextSource TextSource::in_memory(std::string name, std::string_view text) {
  const std::string why = why_not_text(text);
  if (!why.empty()) throw Error(cat(name, " cannot be used as text: ", why));
  TextSource source;
  source.files_.push_back({std::move(name), text.size(), text});
  source.bytes_ = text.size();
  return source;
}

RangeText::RangeText(const TextRange& range) {
  if (range.held.empty()) file_ = MappedFile(range.path);
  const std::string_view whole = range.held.empty() ? file_.text() : range.held;
  if (range.end > whole.size()) throw Error(cat(range.path, " was shortened while it was read"));
  text_ = whole.substr(range.begin, range.end - range.begin);
}

TextSplit split_text(const TextSource& source, double fraction) {
  if (!(fraction >= 0 && fraction < 1))
    throw Error(cat("a validation part of ", fraction, "; expected 0 or more and less than 1"), {},
                ErrorKind::usage);
  const auto held_out = static_cast<std::size_t>(static_cast<double>(source.bytes()) * fraction);
  std::size_t before = source.bytes() - held_out;  // bytes left for training
  TextSplit split;
  for (const TextFile& f : source.files()) {
    std::size_t cut = std::min(before, f.size);
    before -= cut;
    if (cut > 0 && cut < f.size) {
      const RangeText file({f.path, 0, f.size, f.held});
      const std::string_view text = file.text();
      const bool last = &f == &source.files().back();
      const std::size_t line_end = text.find('\n', cut - 1),
                        line_begin = text.rfind('\n', cut - 1) + 1;  // npos + 1 is 0
      if (line_end != std::string_view::npos && (line_end + 1 < f.size || !last)) {
        cut = line_end + 1;
      } else if (line_begin > 0) {
        cut = line_begin;
      }
      while (cut < f.size && (static_cast<unsigned char>(text[cut]) & 0xc0U) == 0x80) ++cut;
    }
    if (cut > 0) split.train.push_back({f.path, 0, cut, f.held});
    if (cut < f.size) split.validation.push_back({f.path, cut, f.size, f.held});
  }
  return split;
}

}  // namespace kiln
