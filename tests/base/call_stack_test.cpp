#include "base/call_stack.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kiln {

// Not in an unnamed namespace, and not inlined: the test looks for their names.
__attribute__((noinline)) CallStack stack_test_inner() {
  CallStack stack = CallStack::here();
  return stack;
}

__attribute__((noinline)) CallStack stack_test_outer(int& calls) {
  CallStack stack = stack_test_inner();
  ++calls;  // after the call, so that it is no jump
  return stack;
}

namespace {

TEST(CallStack, NamesTheFunctionsTheInnermostFirst) {
  const FunctionNames names;
  ASSERT_FALSE(names.empty());
  int calls = 0;
  const std::vector<std::string> found = names.of(stack_test_outer(calls));
  const auto inner = std::find(found.begin(), found.end(), "stack_test_inner");
  const auto outer = std::find(found.begin(), found.end(), "stack_test_outer");
  ASSERT_NE(inner, found.end());
  ASSERT_NE(outer, found.end());
  EXPECT_EQ(inner + 1, outer);
  EXPECT_EQ(calls, 1);
}

TEST(CallStack, AnEmptyStackHasNoNames) { EXPECT_TRUE(FunctionNames().of({}).empty()); }

TEST(CallStack, AnAddressOfNobodyHasNoName) {
  CallStack stack;
  stack.frames[0] = &stack;
  stack.count = 1;
  EXPECT_TRUE(FunctionNames().of(stack).empty());
}

}  // namespace
}  // namespace kiln
