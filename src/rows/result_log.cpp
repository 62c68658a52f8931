#include "rows/result_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/on_exit.h"
#include "base/write_at.h"

namespace kiln {
namespace {

std::string path_in(const std::string& folder) {
  return (std::filesystem::path(folder) / "results.jsonl").string();
}

std::string content_of(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error(cat(path, " is a folder; expected a file of rows"), "name another folder with --out");
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of one row: what a whole sweep may hold is far more, but never on one line.
constexpr JsonLimits kRowLimits{.max_bytes = std::size_t{16} << 20, .max_depth = 16};

bool is_row(std::string_view line) {
  try {
    return parse_json(line, kRowLimits, "results.jsonl").is_object();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void append_results(const std::string& folder, const std::vector<std::string>& lines) {
  const std::string path = path_in(folder);
  auto give_up = [&](const std::string& why) {
    throw Error(cat("cannot write ", path, ": ", why), "name another folder with --out");
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) give_up(error.message());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) give_up(std::strerror(errno));
  (void)::flock(file, LOCK_EX);  // goes with the file; a file system without locks still appends whole writes
  std::string_view left = text;
  if (!append_to(file, left)) {
    const int why = errno;
    ::close(file);
    give_up(std::strerror(why));
  }
  if (::close(file) != 0) give_up(std::strerror(errno));
}

StoredResults read_results(const std::string& folder) {
  StoredResults stored;
  const std::string path = path_in(folder), text = content_of(path);
  std::size_t number = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line = std::string_view(text).substr(from, end - from);
    from = end + 1;
    ++number;
    if (line.empty()) continue;
    try {
      Json row = parse_json(line, kRowLimits, cat(path, ":", number));
      if (row.is_object()) {
        stored.rows.push_back(std::move(row));
      } else {
        stored.notes.push_back(cat(path, ":", number, " is no row and is left out"));
      }
    } catch (const Error& error) {
      stored.notes.push_back(cat(error.what(), ": the line is left out"));
    }
  }
  return stored;
}

std::string repair_results(const std::string& folder) {
  const std::string path = path_in(folder);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return {};  // none yet; if it cannot be written, appending fails
  const OnExit closed([file] { ::close(file); });
  (void)::flock(file, LOCK_EX);  // another run's line is whole by now, or torn for good
  const std::string text = content_of(path);
  if (text.empty() || text.back() == '\n') return {};
  const std::size_t end = text.rfind('\n') + 1;  // 0 where there is no line before it
  if (is_row(std::string_view(text).substr(end))) {
    if (::pwrite(file, "\n", 1, static_cast<off_t>(text.size())) != 1)
      throw Error(cat("cannot repair ", path, ": ", std::strerror(errno)), "name another folder with --out");
    return cat(path, ": the last line lacked its end, and got one");
  }
  if (::ftruncate(file, static_cast<off_t>(end)) != 0)
    throw Error(cat("cannot repair ", path, ": ", std::strerror(errno)), "name another folder with --out");
  return cat(path, ": the last line was cut off after ", text.size() - end, " bytes and is removed");
}

void prepare_results(const std::string& folder) {
  append_results(folder, {});
  if (const std::string repaired = repair_results(folder); !repaired.empty())
    std::fprintf(stderr, "%s\n", repaired.c_str());
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace kiln
