
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/json_reader.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    (void)parse_json(text, limits, "file.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(Json, ReadsADocument) {
  const auto j =
      parse_json(R"({"a": [1, -2, 3.5, "x", true, null], "b": {"c": 18446744073709551615}})", {}, "f");
  const JsonValue v(j, "f");
  EXPECT_EQ(v.at("a").at(0).unsigned_integer(), 1U);
  EXPECT_EQ(v.at("a").at(1).integer(-5, 5), -2);
  EXPECT_EQ(v.at("a").at(2).number(), 3.5);
  EXPECT_EQ(v.at("a").at(3).string(), "x");
  EXPECT_TRUE(v.at("a").at(4).boolean());
  EXPECT_TRUE(v.at("a").at(5).is_null());
  EXPECT_EQ(v.at("b").at("c").unsigned_integer(), 18446744073709551615U);
  EXPECT_TRUE(v.has("b"));
  EXPECT_FALSE(v.has("c"));
  EXPECT_TRUE(v.get("c").is_null());
}

TEST(Json, RefusesWhatNlohmannWouldTake) {
  EXPECT_EQ(refusal(R"({"a":1,"b":{"a":2,"a":3}})"), "file.json: key 'a' appears twice in one object");
  EXPECT_EQ(refusal("18446744073709551616"),
            "file.json: the whole number 18446744073709551616 does not fit 64 bits");
  EXPECT_NE(refusal("1e999").find("file.json: not JSON: "), std::string::npos);
  EXPECT_EQ(refusal(std::string(33, '[')), "file.json: JSON nested more than 32 deep");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), "file.json: JSON nested more than 32 deep");
  EXPECT_EQ(refusal("[1,2,3]", {.max_values = 3}), "file.json: more than 3 JSON values");
  EXPECT_EQ(refusal("[1,2,3]", {.max_bytes = 6}), "file.json: 7 bytes of JSON; at most 6 are read");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", " ", "{", "[1,]", "{\"a\":}", "1 2", "nul", "'a'", "NaN", "\"\xff\"", "// x\n1"})
    EXPECT_NE(refusal(text).find("file.json: not JSON: "), std::string::npos) << text;
  // What stood behind it was not seen.
  for (const std::string_view text :
       {std::string_view("1\0", 2), std::string_view("{}\0x", 4), std::string_view("\0", 1)})
    EXPECT_NE(refusal(text).find("is 0"), std::string::npos);
}

TEST(Json, DepthAtTheLimitAndCommentsWhereAllowed) {
  EXPECT_EQ(refusal(std::string(32, '[') + std::string(32, ']')), "taken");
  EXPECT_EQ(parse_json("// a run\n{/* */\"a\": 1}", {.comments = true}, "f").at("a"), 1);
}

TEST(Json, ReadersSayWhatIsWrongAndWhere) {
  const auto j =
      parse_json(R"({"a": {"n": -1, "f": 1.5, "s": "x", "list": [1]}, "big": 9223372036854775808})", {}, "f");
  const JsonValue v(j, "config.json");
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& error) {
      return error.what() + (error.hint().empty() ? "" : " | " + error.hint());
    }
    return "taken";
  };
  const JsonValue a = v.at("a");
  EXPECT_EQ(message([&] { (void)a.at("n").unsigned_integer(9); }),
            "config.json: a.n is -1; expected a whole number from 0 to 9");
  EXPECT_EQ(message([&] { (void)a.at("f").unsigned_integer(9); }),
            "config.json: a.f is 1.5; expected a whole number from 0 to 9");
  EXPECT_EQ(message([&] { (void)a.at("f").integer(-9, 9); }),
            "config.json: a.f is 1.5; expected a whole number from -9 to 9");
  EXPECT_EQ(message([&] { (void)v.at("big").integer(0, 9); }),
            "config.json: big is 9223372036854775808; expected a whole number from 0 to 9");
  EXPECT_EQ(message([&] { (void)a.at("s").number(); }), "config.json: a.s is \"x\"; expected a number");
  EXPECT_EQ(message([&] { (void)a.at("s").boolean(); }), "config.json: a.s is \"x\"; expected true or false");
  EXPECT_EQ(message([&] { (void)a.at("list").string(); }),
            "config.json: a.list is an array; expected a string");
  EXPECT_EQ(message([&] { (void)a.at("list").at(1); }), "config.json: a.list has 1 items; item 1 is wanted");
  EXPECT_EQ(message([&] { (void)a.at("list").at("x"); }),
            "config.json: a.list is an array; expected an object");
  EXPECT_EQ(message([&] { (void)a.at("nn"); }), "config.json: a lacks 'nn'");
  const std::string_view known[] = {"n", "f", "str", "list"};
  EXPECT_EQ(message([&] { a.check_keys(known); }), "config.json: a unknown key 's'");
  EXPECT_EQ(message([&] {
              const auto k = parse_json(R"({"hidden_sise": 1})", {}, "f");
              const std::string_view names[] = {"hidden_size", "layers"};
              JsonValue(k, "c").check_keys(names);
            }),
            "c: unknown key 'hidden_sise' | did you mean 'hidden_size'?");
}

TEST(Json, AValueReadAsAnotherTypeIsAnErrorWithBoth) {
  const std::string said = KILN_ERROR_OF(Json(1).text());
  EXPECT_EQ(said.find("a JSON value is "), 0u) << said;
  EXPECT_NE(said.find("; expected "), std::string::npos) << said;
}

}  // namespace
}  // namespace kiln
