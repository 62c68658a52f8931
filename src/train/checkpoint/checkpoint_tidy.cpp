// What goes away: old checkpoints, and what a killed process left.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/atomic_file.h"
#include "base/folder.h"
#include "base/mapped_file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/manifest.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

void remove_or_throw(const fs::path& path) {
  if (!remove_tree(path.string()))
    throw Error(cat("cannot remove ", path.string(), ": ", std::strerror(errno)));
}

// The manifest goes first: what is half gone no longer counts as a checkpoint.
void remove_checkpoint(const fs::path& folder) {
  fs::remove(folder / Manifest::kName);
  remove_or_throw(folder);
}

void write_latest(const RunFolder& run, int64_t step) {
  const std::string path = run.checkpoints() + "/latest", text = checkpoint_name(step) + "\n";
  if (fs::exists(path) && read_small_file(path, 4096, "the name of the latest checkpoint") == text) return;
  write_file_atomically(path, text);
}

}  // namespace

void retire_checkpoints(const RunFolder& run, int64_t newest, int keep, const Warn& warn) {
  const auto try_to = [&](const std::string& what, const auto& action) {
    std::string why;
    try {
      action();
      return;
    } catch (const Error& e) {
      why = e.what();
    } catch (const fs::filesystem_error& e) {
      why = e.code().message();
    } catch (const std::bad_alloc& e) {
      why = words_of(e);
    }
    if (warn) warn(cat("cannot ", what, ": ", why));
  };
  try_to("update the name of the latest checkpoint", [&] { write_latest(run, newest); });
  std::vector<int64_t> steps;
  try_to("list the old checkpoints", [&] { steps = checkpoint_steps(run.checkpoints()); });
  int kept = 0;
  for (const int64_t step : steps) {
    if (step > newest || ++kept <= keep) continue;
    const fs::path old = fs::path(run.checkpoints()) / checkpoint_name(step);
    try_to("remove the old checkpoint " + old.string(), [&] { remove_checkpoint(old); });
  }
}

void clear_leftovers(const RunFolder& run, int64_t step) {
  const fs::path folder = run.checkpoints();
  try {
    if (!fs::exists(folder)) return;
    std::vector<fs::path> unfinished;
    for (const FolderEntry& e : list_folder(folder.string())) {
      if (is_unfinished_checkpoint(e.name) || e.name == "latest.tmp") unfinished.push_back(folder / e.name);
    }
    for (const fs::path& p : unfinished) remove_or_throw(p);
    for (const int64_t later : checkpoint_steps(folder.string())) {
      if (later <= step) break;
      const fs::path bad = folder / (checkpoint_name(later) + ".bad");
      remove_or_throw(bad);
      fs::rename(folder / checkpoint_name(later), bad);
    }
  } catch (const fs::filesystem_error& e) {
    throw Error(cat("cannot clear ", folder.string(), ": ", e.code().message()));
  }
}

}  // namespace kiln
