#include "compile/cuda_source/nvrtc.h"

#include <dlfcn.h>

#include "base/error.h"

namespace kiln::compile {

// The part of nvrtc.h that is needed: plain C, the same since CUDA 11.
struct Nvrtc::Functions {
  using Program = void*;
  void* library = nullptr;
  int (*version)(int*, int*) = nullptr;
  const char* (*error)(int) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*code_size)(Program, std::size_t*) = nullptr;
  int (*code)(Program, char*) = nullptr;

  template <class F>
  bool find(F& f, const char* name) {
    f = reinterpret_cast<F>(dlsym(library, name));
    return f != nullptr;
  }
  bool find_all() {
    return find(version, "nvrtcVersion") && find(error, "nvrtcGetErrorString") &&
           find(create, "nvrtcCreateProgram") && find(compile, "nvrtcCompileProgram") &&
           find(destroy, "nvrtcDestroyProgram") && find(log_size, "nvrtcGetProgramLogSize") &&
           find(log, "nvrtcGetProgramLog") && find(code_size, "nvrtcGetCUBINSize") &&
           find(code, "nvrtcGetCUBIN");
  }
};

Nvrtc::Nvrtc(std::unique_ptr<Functions> f) : f_(std::move(f)) {}
Nvrtc::~Nvrtc() { dlclose(f_->library); }

std::unique_ptr<Nvrtc> Nvrtc::load(std::string* why) {
  auto f = std::make_unique<Functions>();
  for (const char* name :
       {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
    f->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (f->library != nullptr) break;
  }
  if (f->library == nullptr) {
    if (why)
      *why = "libnvrtc of the CUDA toolkit was not found on the library path or in /usr/local/cuda/lib64";
    return nullptr;
  }
  if (!f->find_all()) {
    if (why) *why = "the libnvrtc that was found lacks functions of CUDA 12";
    dlclose(f->library);
    return nullptr;
  }
  return std::unique_ptr<Nvrtc>(new Nvrtc(std::move(f)));
}

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  f_->version(&major, &minor);
  return cat(major, ".", minor);
}

std::vector<std::byte> Nvrtc::compile(const std::string& source, const std::string& name,
                                      const std::string& arch) const {
  Functions::Program program = nullptr;
  int status = f_->create(&program, source.c_str(), cat(name, ".cu").c_str(), 0, nullptr, nullptr);
  if (status != 0) throw Error(cat("NVRTC: ", f_->error(status)));
  const std::string target = cat("--gpu-architecture=", arch);
  // Without contraction the two devices round alike where the operations are the same.
  const char* options[] = {target.c_str(), "--std=c++17", "--fmad=false"};
  status = f_->compile(program, 3, options);
  std::vector<std::byte> code;
  std::string log;
  std::size_t size = 0;
  if (status == 0 && f_->code_size(program, &size) == 0) {
    code.resize(size);
    f_->code(program, reinterpret_cast<char*>(code.data()));
  } else if (f_->log_size(program, &size) == 0) {
    log.resize(size);
    f_->log(program, log.data());
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  }
  f_->destroy(&program);
  if (code.empty())
    throw Error(cat("NVRTC does not compile ", name, " for ", arch, ": ", f_->error(status)), log);
  return code;
}

}  // namespace kiln::compile
