// The folder of one training run, and the right to write in it. One process at a time holds the lock; each
// holder gets a number, the generation, one above the last. What a holder is about to publish it publishes
// only if the number on disk is still its own: a process that was thought dead and was
// replaced cannot put an old checkpoint among the new ones.
//
//   RUN/lock             who holds it: process, machine, since when, generation
//   RUN/run.json         the options and the outcome
//   RUN/gemm.json        which algorithms its matmuls use, and which tiles its attention, where they
//                        were chosen: tune/tune_file.h
//   RUN/metrics.jsonl    one object per step and evaluation
//   RUN/checkpoints/     train/checkpoint/checkpoint.h
#pragma once

#include <cstdint>
#include <string>

namespace kiln {

class RunFolder {
 public:
  // Makes the folder where there is none. Error, naming the holder, when another process has it.
  explicit RunFolder(std::string path);
  // Lets go. A folder made for a run that never began, with nothing but the lock in it, goes too.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  uint64_t generation() const { return generation_; }
  std::string file(const std::string& name) const;
  std::string checkpoints() const { return file("checkpoints"); }

  // Error when another process has taken the folder since.
  void check_still_held() const;

  // Moves what an earlier run left into a subfolder, RUN/earlier-<generation>, and returns that; empty
  // when there was nothing. Nothing is deleted: a restart throws nothing away.
  std::string set_aside() const;

 private:
  struct NotOpen {};
  RunFolder(NotOpen, std::string path);
  void open();
  void remove_unused() const noexcept;

  std::string path_, lock_path_;
  bool made_ = false;  // by this holder
  int lock_ = -1;
  uint64_t generation_ = 0;
};

}  // namespace kiln
