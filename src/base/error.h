// The one error type of kiln. Everything throws it; only main() turns it into an exit code, so that a failure
// deep inside a step and a mistyped option reach the user in the same form: one line, then a hint.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace kiln {

// What the caller can do about it; main() maps these to exit codes 1, 2 and 3.
enum class ErrorKind {
  failed,       // the work was understood and could not be done
  usage,        // the request itself is wrong
  unavailable,  // this machine or this build lacks something
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string hint = {}, ErrorKind kind = ErrorKind::failed);

  ErrorKind kind() const noexcept { return kind_; }
  // What to do about it, or empty.
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
  ErrorKind kind_;
};

// What an exception says, in words a user can act on: the library's own for missing memory is
// "std::bad_alloc".
const char* words_of(const std::exception& error) noexcept;

// Joins the printed forms of its arguments. Here instead of fmt because nvcc cannot compile fmt 9 in C++20
// and this header is included by .cu files.
template <class... A>
std::string cat(const A&... a) {
  std::ostringstream s;
  s.exceptions(std::ios_base::badbit);  // or a stream without memory drops what does not fit, in silence
  (s << ... << a);
  return std::move(s).str();
}

}  // namespace kiln
