// The clock of the cores while all of them are at work, which no register tells a guest of a virtual machine.
#pragma once

namespace kiln {

// Cycles a second, of the slowest of so many threads: an addition that waits for the one before takes one.
double cpu_clock_hz(int threads, double seconds = 0.1);

}  // namespace kiln
