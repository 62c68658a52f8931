// Ctrl-C, as work that may take long sees it: it asks between its calls, and what is half done is given up.
#pragma once

#include <functional>

namespace kiln {

// True from the moment on when somebody wants to stop; empty: nobody can. Quick: it is asked between steps.
using StopAsked = std::function<bool()>;

// Leaves work that is no result half done. Not a std::exception: it is no error, and nobody takes it for one.
struct Stopped {};

inline void throw_if_stopped(const StopAsked& asked) {
  if (asked && asked()) throw Stopped{};
}

// Runs `work`; false where it was stopped on the way.
template <class Work>
bool done_unless_stopped(const Work& work) {
  try {
    work();
    return true;
  } catch (const Stopped&) {
    return false;
  }
}

}  // namespace kiln
