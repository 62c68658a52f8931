// How the program ends when there is no memory left, not even for an error with words.
#pragma once

namespace kiln::cli {

// The one line, without allocating anything.
void say_out_of_memory() noexcept;

}  // namespace kiln::cli
