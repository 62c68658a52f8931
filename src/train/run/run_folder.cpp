#include "train/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/json_ascii.h"
#include "base/json_reader.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// Written by one call and always as long: a reader never sees half of an old text and half of a new one.
constexpr std::size_t kLockBytes = 512;

struct Holder {
  int64_t pid = 0, since = 0;  // seconds
  std::string host = "?";
  uint64_t generation = 0;
};

std::string host_name() {
  char name[256] = "?";
  if (::gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

Holder parse_holder(const std::string& text, const std::string& source) {
  const Json document = parse_json(text, {.max_bytes = kLockBytes, .max_values = 16}, source);
  const JsonValue root(document, source);
  return {root.at("pid").integer(0, INT64_MAX), root.at("since").integer(0, INT64_MAX),
          root.at("host").string(), root.at("generation").unsigned_integer()};
}

// An unfinished lock file says nothing; that is no reason to refuse the folder.
Holder read_holder(int file, const std::string& source) {
  std::string text(kLockBytes, ' ');
  const ssize_t n = ::pread(file, text.data(), text.size(), 0);
  if (n <= 0) return {};
  text.resize(static_cast<std::size_t>(n));
  try {
    return parse_holder(text, source);
  } catch (const Error&) {
    return {};
  }
}

bool write_holder(int file, const Holder& h) {
  std::string text = cat(
      dump_ascii(
          {{"pid", h.pid}, {"host", h.host.substr(0, 64)}, {"since", h.since}, {"generation", h.generation}}),
      "\n");
  text.resize(kLockBytes - 1, ' ');
  text += '\n';
  return ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ::fsync(file) == 0;
}

std::string age_of(int64_t since) {
  const int64_t s = std::max<int64_t>(0, static_cast<int64_t>(std::time(nullptr)) - since);
  if (s < 120) return cat(s, " s");
  if (s < 7200) return cat(s / 60, " min");
  return cat(s / 3600, " h");
}

// A lock outlives the name it was taken under: the file may have been removed, or another put in its
// place, and locked that. Only a lock on the current file counts.
bool is_same_file(int file, const std::string& path) {
  struct stat mine{}, there{};
  return ::fstat(file, &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

int take_lock(const std::string& path) {
  for (;;) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
      throw Error(cat("cannot write ", path, ": ", std::strerror(errno)),
                  "name a folder that can be written with --out");
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
      const int why = errno;
      const Holder holder = read_holder(file, path);
      ::close(file);
      if (why != EWOULDBLOCK) throw Error(cat("cannot lock ", path, ": ", std::strerror(why)));
      throw Error(cat(fs::path(path).parent_path().string(), " is in use by process ", holder.pid, " on ",
                      holder.host, ", for ", age_of(holder.since)),
                  "wait for it, stop it, or name another folder with --out");
    }
    if (is_same_file(file, path)) return file;
    ::close(file);
  }
}

// Whether it was made, with those above it that were not there. A checkpoint is safe from a power cut only
// where the names of all folders on the way to it are: each new one's is synced to disk, where its parent can
// be read.
bool make_lasting_folder(const fs::path& path, std::error_code& error) {
  std::vector<fs::path> made;
  for (fs::path p = fs::absolute(path); !p.empty() && !fs::exists(p, error) && p != p.parent_path();
       p = p.parent_path())
    made.push_back(p);
  const bool is_new = fs::create_directories(path, error);
  for (const fs::path& p : made) (void)sync_folder_of(p.string());
  return is_new;
}

}  // namespace

RunFolder::RunFolder(NotOpen, std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  lock_path_ = file("lock");
}

// A whole object before anything is made on disk: whatever goes wrong in open(), the destructor clears it
// away.
RunFolder::RunFolder(std::string path) : RunFolder(NotOpen{}, std::move(path)) { open(); }

void RunFolder::open() {
  std::error_code error;
  made_ = make_lasting_folder(path_, error);
  if (error)
    throw Error(cat("cannot make the folder ", path_, ": ", error.message()),
                "name a folder that can be written with --out");
  lock_ = take_lock(lock_path_);
  generation_ = read_holder(lock_, lock_path_).generation + 1;
  if (!write_holder(lock_, {::getpid(), std::time(nullptr), host_name(), generation_}))
    throw Error(cat("cannot write ", lock_path_, ": ", std::strerror(errno)), "is the disk full?");
}

RunFolder::~RunFolder() {
  if (lock_ < 0) return;
  if (made_) remove_unused();
  ::close(lock_);  // the file stays where there was a run: the generation is in it
}

// While the lock is still held: who opens the file now finds it locked, and who comes later finds it gone.
void RunFolder::remove_unused() const noexcept {
  if (!is_same_file(lock_, lock_path_) || !holds_only(path_, "lock")) return;
  ::unlink(lock_path_.c_str());
  ::rmdir(path_.c_str());  // refuses a folder that has been filled since
}

std::string RunFolder::file(const std::string& name) const { return (fs::path(path_) / name).string(); }

void RunFolder::check_still_held() const {
  const std::string lock = file("lock");
  const uint64_t now = read_holder(lock_, lock).generation;
  if (!is_same_file(lock_, lock) || now != generation_)
    throw Error(cat(path_, " was taken over by another process (generation ", now, ", this one is ",
                    generation_, "); nothing more is written to it"));
}

std::string RunFolder::set_aside() const {
  std::string aside = file(cat("earlier-", generation_));
  for (int more = 2; std::filesystem::exists(aside); ++more)
    aside = file(cat("earlier-", generation_, ".", more));
  std::vector<fs::path> ours;
  try {
    for (const auto& [name, kind] : list_folder(path_)) {
      if (name == "checkpoints" || name == "run.json" || name == "run_config.json" || name == "gemm.json" ||
          name == "metrics.jsonl" || name.starts_with("events.out.tfevents."))
        ours.push_back(fs::path(path_) / name);
    }
    if (ours.empty()) return {};
    fs::create_directories(aside);
    for (const fs::path& p : ours) fs::rename(p, fs::path(aside) / p.filename());
  } catch (const fs::filesystem_error& error) {
    throw Error(cat("cannot move the earlier run in ", path_, " aside: ", error.code().message()));
  }
  if (!sync_folder_of(aside)) throw Error(cat("cannot sync to disk the folder ", path_));
  return aside;
}

}  // namespace kiln
