// A formula as a person writes it, from which come its value and the same formula with the numbers put in:
// one text, so what is printed and what is computed cannot differ.
//
//   Formula f("6 B D F / (N_f N_t)");          neighbours are multiplied; + - * / ^, ceil, floor, sqrt, min,
//   max f.value({{"B", 4096}, ...});               1.2e12 f.with_numbers({{"B", 4096}, ...});        "6 *
//   4096 * 4096 * 16384 / (2 * 2)"
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

// Names and values, in the order they were introduced.
using FormulaValues = std::vector<std::pair<std::string, double>>;

class Formula {
 public:
  explicit Formula(std::string text) : text_(std::move(text)) {}

  const std::string& text() const { return text_; }
  // Error for a name without a value, or a text that is no formula.
  double value(const FormulaValues& values) const;
  std::string with_numbers(const FormulaValues& values) const;
  std::vector<std::string> names() const;  // each once, in the order they appear

 private:
  std::string text_;
};

// A number within a formula, or as a result: whole numbers up to nine digits in full, others to four digits,
// with a power of ten where they are long.
std::string formula_number(double x);

}  // namespace kiln
