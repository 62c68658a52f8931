// Text to learn from: a file, or all the text files of a folder and the folders in it, in the order of their
// paths.
//
// Text is UTF-8 without zero bytes, and is taken as it is, byte for byte. A file named by the user that is
// empty or is not text is an error. In a folder such files are passed over and remembered, as are those that
// cannot be read; names that begin with a dot, and links to folders, are not looked at.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace kiln {

struct TextFile {
  std::string path;
  std::size_t size;
};

class TextSource {
 public:
  // Reads everything once, so that what is wrong shows before work begins.
  explicit TextSource(const std::string& path);

  const std::vector<TextFile>& files() const { return files_; }
  std::size_t bytes() const { return bytes_; }

  struct Skipped {
    std::string path, reason;
  };
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  std::vector<TextFile> files_;
  std::vector<Skipped> skipped_;
  std::size_t bytes_ = 0;
};

// Why these bytes are not text, with the place; empty when they are.
std::string why_not_text(std::string_view bytes);

// Part of a file.
struct TextRange {
  std::string path;
  std::size_t begin, end;
};

// The last `fraction` of the text is held out for validation. The cut falls at a line's end, or, in a
// text of one line, between two characters; either part may come out empty.
struct TextSplit {
  std::vector<TextRange> train, validation;
};
TextSplit split_text(const TextSource& source, double fraction);

}  // namespace kiln
