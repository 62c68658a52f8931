// NVRTC, the compiler that the CUDA toolkit brings as a library: loaded when it is first asked for, so that a
// program without it, and a machine without it, do everything else.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace kiln::compile {

class Nvrtc {
 public:
  // Null where there is none; `why` then says so.
  static std::unique_ptr<Nvrtc> load(std::string* why);
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  std::string version() const;  // "13.0"
  // Machine code for `arch`, "sm_90a". Throws Error with the compiler's words and the line it means.
  std::vector<std::byte> compile(const std::string& source, const std::string& name,
                                 const std::string& arch) const;

 private:
  struct Functions;
  explicit Nvrtc(std::unique_ptr<Functions> f);
  std::unique_ptr<Functions> f_;
};

}  // namespace kiln::compile
