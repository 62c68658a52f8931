#include "studies/calc/derivation.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/plain_number.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

struct Prefix {
  double size;
  const char* name;
};
constexpr std::array<Prefix, 6> kLarge = {
    {{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
constexpr std::array<Prefix, 4> kSmall = {{{1, ""}, {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}}};

std::string in_prefix(double value, std::string_view unit, const Prefix& p) {
  return fmt::format("{} {}{}", plain(value / p.size, 4), p.name, unit);
}

std::string value_text(const Json& row) { return with_unit(*number_at(row, "value"), text_at(row, "unit")); }

const Schema<DerivedLine>& schema() {
  using L = DerivedLine;
  static const Schema<L> kSchema = {
      {"section", "", Unit::text, field<&L::section>},
      {"name", "name", Unit::text, field<&L::name>, Where::table},
      {"quantity", "quantity", Unit::text, field<&L::quantity>, Where::table},
      {"formula", "formula", Unit::text, field<&L::formula>, Where::table},
      {"numbers", "numbers", Unit::text, field<&L::numbers>, Where::table},
      {"value", "value", Unit::number, field<&L::value>, Where::table, "", value_text},
      {"unit", "", Unit::text, field<&L::unit>},
  };
  return kSchema;
}

}  // namespace

void Derivation::given(std::string name, double value, std::string quantity, std::string unit) {
  values_.emplace_back(name, value);
  lines_.push_back({section_, std::move(name), std::move(quantity), "", "", value, std::move(unit)});
}

double Derivation::line(std::string name, std::string formula, std::string quantity, std::string unit) {
  const Formula f(std::move(formula));
  const double value = f.value(values_);
  lines_.push_back(
      {section_, name, std::move(quantity), f.text(), f.with_numbers(values_), value, std::move(unit)});
  values_.emplace_back(std::move(name), value);
  return value;
}

double Derivation::operator[](std::string_view name) const {
  for (const auto& [known, value] : values_)
    if (known == name) return value;
  throw Error(fmt::format("the calculation has no {}", name));
}

std::string with_unit(double value, std::string_view unit) {
  const double size = std::abs(value);
  if (unit.empty() || !std::isfinite(value) || value == 0)
    return unit.empty() ? formula_number(value) : fmt::format("{} {}", formula_number(value), unit);
  if (unit == "s") {
    for (const Prefix& p : kSmall)
      if (size >= p.size) return in_prefix(value, unit, p);
    return in_prefix(value, unit, kSmall.back());
  }
  if (unit == "B" || unit == "B/s" || unit == "FLOP" || unit == "FLOP/s") {
    for (const Prefix& p : kLarge)
      if (size >= p.size) return in_prefix(value, unit, p);
  }
  return fmt::format("{} {}", formula_number(value), unit);
}

StudyPage derivation_page(const std::string& command, const std::string& title, const Derivation& derivation,
                          const std::vector<std::string>& answers, bool wide) {
  StudyPage page;
  page.place = title;
  page.columns = schema().forms();
  page.shown.wide = wide;
  page.shown.by = {"section"};
  for (const DerivedLine& line : derivation.lines()) page.rows.push_back(schema().row(line));
  page.notes = answers;
  page.json = {{"command", command}, {"title", title}, {"rows", page.rows}, {"answers", answers}};
  return page;
}

}  // namespace kiln
