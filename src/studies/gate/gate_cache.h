// What the gate has found right already, by what was checked and on what: for one process, and, in a small
// file beside the results, for the cells of a sweep, which are processes of their own. Only what passed is
// kept. It holds for this very program: another build, or a file that cannot be read, counts as none.
#pragma once

#include <map>
#include <string>

#include "ops/cases/sampled_check.h"

namespace kiln {

class GateCache {
 public:
  // `folder`: of the file; empty: none. It is read here, and written by keep().
  explicit GateCache(std::string folder);

  const Finding* find(const std::string& key) const;
  void keep(const std::string& key, const Finding& finding);
  // Writes what is new, together with what others have written meanwhile. A file that cannot be written is
  // no reason to stop: the checks are made again then.
  void save();

 private:
  void read();

  std::string path_;
  std::map<std::string, Finding> passed_;
  bool changed_ = false;
};

// Build id, and size and time of the program's file: two programs from one dirty tree differ.
std::string program_fingerprint();

}  // namespace kiln
