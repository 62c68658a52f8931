#include "perf/model/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/plain_number.h"

namespace kiln {
namespace {

struct Token {
  enum class Kind { number, name, sign, end };
  Kind kind = Kind::end;
  std::string_view text;
};

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.'; }

// "2.5e-3": as much of the front as is a number.
std::size_t number_length(std::string_view text) {
  double ignored = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ignored);
  return error == std::errc() ? static_cast<std::size_t>(end - text.data()) : 0;
}

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    std::size_t length = 1;
    if (rest.front() == ' ') {
      ++at;
      continue;
    }
    Token::Kind kind = Token::Kind::sign;
    if (is_digit(rest.front())) {
      kind = Token::Kind::number;
      length = number_length(rest);
    } else if (starts_name(rest.front())) {
      kind = Token::Kind::name;
      while (length < rest.size() && continues_name(rest[length])) ++length;
    } else if (std::string_view("+-*/^(),").find(rest.front()) == std::string_view::npos) {
      length = 0;
    }
    if (length == 0)
      throw Error(fmt::format("'{}' is no formula: '{}' is neither name, number nor sign", text, rest));
    tokens.push_back({kind, rest.substr(0, length)});
    at += length;
  }
  tokens.push_back({});
  return tokens;
}

struct Function {
  std::string_view name;
  int arguments;
  double (*call)(double a, double b);
};
constexpr std::array<Function, 5> kFunctions = {{
    {"ceil", 1, [](double a, double) { return std::ceil(a); }},
    {"floor", 1, [](double a, double) { return std::floor(a); }},
    {"sqrt", 1, [](double a, double) { return std::sqrt(a); }},
    {"min", 2, [](double a, double b) { return std::min(a, b); }},
    {"max", 2, [](double a, double b) { return std::max(a, b); }},
}};

const Function* function_named(std::string_view name) {
  const auto* found =
      std::find_if(kFunctions.begin(), kFunctions.end(), [&](const Function& f) { return f.name == name; });
  return found == kFunctions.end() ? nullptr : found;
}

double value_named(const FormulaValues& values, std::string_view name, const std::string& formula) {
  for (const auto& [known, value] : values)
    if (known == name) return value;
  throw Error(fmt::format("{} has no value in '{}'", name, formula));
}

// sum := product (+|- product)*      product := power (*|/|nothing power)*      power := atom (^ power)?
class Parser {
 public:
  Parser(const std::string& text, const FormulaValues& values)
      : text_(text), values_(values), tokens_(tokens_of(text)) {}

  double whole() {
    const double x = sum();
    if (now().kind != Token::Kind::end) fail(now().text);
    return x;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  bool takes(std::string_view sign) {
    if (now().kind != Token::Kind::sign || now().text != sign) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view sign) {
    if (!takes(sign)) fail(now().text);
  }
  [[noreturn]] void fail(std::string_view seen) const {
    throw Error(fmt::format("'{}' is no formula: '{}' is not expected there", text_, seen));
  }
  bool begins_factor() const {
    return now().kind == Token::Kind::number || now().kind == Token::Kind::name ||
           (now().kind == Token::Kind::sign && now().text == "(");
  }

  double sum() {
    double x = takes("-") ? -product() : product();
    for (;;) {
      if (takes("+")) {
        x += product();
      } else if (takes("-")) {
        x -= product();
      } else {
        return x;
      }
    }
  }
  // "a b / c d" is (a b / c) d, as in code: a denominator of several factors wants its parentheses.
  double product() {
    double x = power();
    for (;;) {
      if (takes("/")) {
        x /= power();
      } else if (takes("*") || begins_factor()) {
        x *= power();
      } else {
        return x;
      }
    }
  }
  double power() {
    const double x = atom();
    return takes("^") ? std::pow(x, power()) : x;
  }
  double atom() {
    const Token token = now();
    if (token.kind == Token::Kind::end) fail("its end");
    ++at_;
    if (token.kind == Token::Kind::number) {
      double x = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), x);
      return x;
    }
    if (token.kind == Token::Kind::name) {
      const Function* f = function_named(token.text);
      return f == nullptr ? value_named(values_, token.text, text_) : call(*f);
    }
    if (token.text != "(") fail(token.text);
    const double x = sum();
    expect(")");
    return x;
  }
  double call(const Function& f) {
    expect("(");
    const double a = sum();
    double b = 0;
    if (f.arguments == 2) {
      expect(",");
      b = sum();
    }
    expect(")");
    return f.call(a, b);
  }

  const std::string& text_;
  const FormulaValues& values_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

bool ends_factor(const Token& t) { return t.kind != Token::Kind::sign || t.text == ")"; }
bool begins_factor(const Token& t) {
  return t.kind == Token::Kind::number || t.kind == Token::Kind::name ||
         (t.kind == Token::Kind::sign && t.text == "(");
}

}  // namespace

double Formula::value(const FormulaValues& values) const { return Parser(text_, values).whole(); }

std::string Formula::with_numbers(const FormulaValues& values) const {
  std::string out;
  Token before;
  for (const Token& t : tokens_of(text_)) {
    if (t.kind == Token::Kind::end) break;
    const bool opens = before.kind == Token::Kind::name && function_named(before.text) != nullptr;
    const bool first = out.empty();
    if (!first && !opens && ends_factor(before) && begins_factor(t)) out += " * ";
    if (t.kind == Token::Kind::name && function_named(t.text) == nullptr) {
      out += formula_number(value_named(values, t.text, text_));
    } else if (t.kind == Token::Kind::sign && t.text.find_first_of("+-*/") != std::string_view::npos) {
      out += fmt::format(" {} ", t.text);
    } else {
      out += t.text;
      if (t.text == ",") out += ' ';
    }
    before = t;
  }
  return out;
}

std::vector<std::string> Formula::names() const {
  std::vector<std::string> names;
  for (const Token& t : tokens_of(text_)) {
    if (t.kind != Token::Kind::name || function_named(t.text) != nullptr) continue;
    if (std::find(names.begin(), names.end(), t.text) == names.end()) names.emplace_back(t.text);
  }
  return names;
}

std::string formula_number(double x) {
  const double size = std::abs(x);
  if (x == std::round(x) && size < 1e9) return fmt::format("{:.0f}", x);
  if (size >= 1e-3 && size < 1e6) return plain(x, 4);
  std::string text = fmt::format("{:.3e}", x);  // 4.600e+14 as people write it: 4.6e14
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;  // inf, nan
  std::string digits = text.substr(0, e), power = text.substr(e + 1);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  const bool negative = power.front() == '-';
  power.erase(0, power.find_first_not_of("+-0"));
  return digits + "e" + (negative ? "-" : "") + power;
}

}  // namespace kiln
