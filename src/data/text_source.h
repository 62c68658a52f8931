// Training text: a file, all the text files of a folder and the folders in it in the order of their
// paths, or text that is in memory already.
//
// Text is UTF-8 without zero bytes, and is taken as it is, byte for byte. A file named by the user that is
// empty or is not text is an error. In a folder such files are skipped and listed, as are those that
// cannot be read; names that begin with a dot, links to folders, and folders of kiln's own runs are
// ignored.
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
  std::string_view held = {};  // the text itself where it is in memory; `path` is then only its name
};

class TextSource {
 public:
  // Reads everything once, so that what is wrong shows before work begins.
  explicit TextSource(const std::string& path);
  // One file's worth of text that is in memory and stays there. Error, name first, when it is not text.
  static TextSource in_memory(std::string name, std::string_view text);

  const std::vector<TextFile>& files() const { return files_; }
  std::size_t bytes() const { return bytes_; }

  struct Skipped {
    std::string path, reason;
  };
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  TextSource() = default;

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
  std::string_view held = {};  // as TextFile's
};

// The text of a range while this lives: mapped, or where it is held. Error when the file has been cut since.
class RangeText {
 public:
  explicit RangeText(const TextRange& range);
  std::string_view text() const { return text_; }

 private:
  MappedFile file_;
  std::string_view text_;
};

// The last `fraction` of the text is for validation. The cut falls at a line's end, or, in a
// text of one line, between two characters; either part may come out empty.
struct TextSplit {
  std::vector<TextRange> train, validation;
};
TextSplit split_text(const TextSource& source, double fraction);

}  // namespace kiln
