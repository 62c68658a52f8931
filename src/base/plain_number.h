// Numbers for people, as people write them: 13610 and not 1.361e+04, 733 +- 100 and not 733.2 +- 1e+02. What
// tables, notes, charts and messages show goes through here (tests/no_exponents.sh); JSON and CSV keep all
// digits.
#pragma once

#include <string>

namespace kiln {

// So many significant digits, trailing zeros left out; a whole number has all of its own. Only below 1e-4 and
// from 1e15 on is there an exponent, where the zeros would have to be counted.
std::string plain(double x, int digits = 3);

// A value no finer than its error, which has one digit: "9.953 +- 0.002". Without an error, nine digits.
std::string with_error(double x, double error);

}  // namespace kiln
