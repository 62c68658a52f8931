#include "base/error.h"
#include "data/splitter.h"

namespace kiln {

std::shared_ptr<const Splitter> make_pcre2_splitter(std::string_view, bool) {
  throw Error("built without PCRE2: only the byte tokenizer, GPT-2's pattern and token shards work",
              "install libpcre2-dev and build again", ErrorKind::unavailable);
}

std::string pcre2_version() { return {}; }

}  // namespace kiln
