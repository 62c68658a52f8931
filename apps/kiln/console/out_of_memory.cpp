// std::bad_alloc does not always reach main(): static initialisers run before it, and libraries (CLI11's
// Option among them) allocate in functions that must not throw. Then std::terminate is called, and by default
// a core is dumped. It is no bug of ours that there is no memory, so the program says so and ends with status
// 1; whatever else gets to std::terminate is a bug, and ends as it always did.
#include "kiln/console/out_of_memory.h"

#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <string_view>
#include <typeinfo>

namespace kiln::cli {
namespace {

constexpr int kFailed = 1;

std::terminate_handler otherwise = nullptr;
// An exception that is stopped at the border of an inlined function is not there to be asked for its type.
thread_local bool ran_out = false;

[[noreturn]] void throw_bad_alloc() {
  ran_out = true;
  throw std::bad_alloc();
}

bool for_lack_of_memory() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type != nullptr) return *type == typeid(std::bad_alloc) || *type == typeid(std::bad_array_new_length);
  return ran_out && std::uncaught_exceptions() > 0;
}

void end() {
  if (for_lack_of_memory()) {
    say_out_of_memory();
    ::_exit(kFailed);
  }
  otherwise();
}

// Before every initialiser without a priority.
[[gnu::constructor(101)]] void listen() {
  std::set_new_handler(throw_bad_alloc);
  otherwise = std::set_terminate(end);
}

}  // namespace

void say_out_of_memory() noexcept {
  constexpr std::string_view kLine = "kiln: out of memory on the host\n";
  (void)!::write(STDERR_FILENO, kLine.data(), kLine.size());
}

}  // namespace kiln::cli
