// A folder that appears whole or not at all: filled under the name "<path>.tmp", renamed at the end. What
// was at the path before stays until then.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kiln {

class AtomicFolder {
 public:
  // Whether a file of this name may be cleared away: what a broken run left in "<path>.tmp", and, with
  // `replace`, what the folder holds now. Anything else there, and any folder inside, is an Error, so that
  // nothing is lost that others put there.
  using MayRemove = std::function<bool(std::string_view file_name)>;

  // Error when the path is a file, or a folder that is not empty and `replace` is not set.
  AtomicFolder(std::string path, bool replace, const MayRemove& may_remove);
  ~AtomicFolder();  // without commit(): removes the temporary folder
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& temporary() const { return temporary_; }  // to be filled
  void commit();

 private:
  std::string path_, temporary_;
  bool open_ = false;
};

}  // namespace kiln
