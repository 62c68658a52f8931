// A calculation on paper: given numbers, then lines, each a quantity with its formula, in which the names of
// earlier lines may stand. Formula, numbers put in and result come from one text (perf/model/formula.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/model/formula.h"
#include "report/tables/study_page.h"

namespace kiln {

struct DerivedLine {
  std::string section;   // "forward"
  std::string name;      // by which later lines know it: "T_comm"
  std::string quantity;  // "time of communication"
  std::string formula;   // of a given number: empty
  std::string numbers;   // the formula with them put in
  double value = 0;
  std::string unit;  // "FLOP", "B", "s", "FLOP/s", "B/s"; empty: a plain number
};

class Derivation {
 public:
  void section(std::string name) { section_ = std::move(name); }
  void given(std::string name, double value, std::string quantity, std::string unit = {});
  // Works it out at once; the value, too.
  double line(std::string name, std::string formula, std::string quantity, std::string unit = {});

  double operator[](std::string_view name) const;  // Error where there is none
  const std::vector<DerivedLine>& lines() const { return lines_; }

 private:
  std::string section_ = "given";
  std::vector<DerivedLine> lines_;
  FormulaValues values_;
};

// A value in the size of unit that people use for it: 12.3 ms, 4.6e14 FLOP/s as 460 TFLOP/s, 17.55 MB.
std::string with_unit(double value, std::string_view unit);

// The page of one: a table of quantity, formula, numbers and value. `answers`: sentences below it.
StudyPage derivation_page(const std::string& command, const std::string& title, const Derivation& derivation,
                          const std::vector<std::string>& answers, bool wide);

}  // namespace kiln
