#include "dist/strategy/gather_order.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

struct Order : testing::Test {
  Order() {
    for (auto& [p, name] : {std::pair(&a, "a"), std::pair(&b, "b"), std::pair(&c, "c")}) {
      p->name = name;
      p->padded = 16;
    }
    c.padded = 48;
  }
  // Uses them in order; the windows they fell in, -1 where the order was broken.
  std::vector<int64_t> use(std::initializer_list<Param*> params) {
    order.begin();
    std::vector<int64_t> windows;
    for (Param* p : params) windows.push_back(order.next(*p, DType::f32) ? order.here() : -1);
    return windows;
  }
  Param a, b, c;
  GatherOrder order;
};
using GatherOrderTest = Order;

TEST_F(GatherOrderTest, IsLearntOnceAndFollowed) {
  EXPECT_EQ(use({&a, &b, &b, &c, &b}), (std::vector<int64_t>{-1, -1, -1, -1, -1}));
  EXPECT_FALSE(order.known());
  EXPECT_TRUE(order.adopt());
  EXPECT_EQ(order.size(), 4);  // two uses of b that follow each other are one window
  EXPECT_EQ(order[1].uses, 2);
  EXPECT_EQ(order.largest(), 48 * 4);
  EXPECT_EQ(use({&a, &b, &b, &c, &b}), (std::vector<int64_t>{0, 1, 1, 2, 3}));
  EXPECT_FALSE(order.adopt());
  EXPECT_EQ(order.changes(), 0);
}

TEST_F(GatherOrderTest, AWindowIsOverAfterItsLastUse) {
  use({&a, &b, &b, &c});
  order.adopt();
  order.begin();
  EXPECT_FALSE(order.over(0));
  order.next(a, DType::f32);
  EXPECT_TRUE(order.over(0));
  order.next(b, DType::f32);
  EXPECT_FALSE(order.over(1));
  order.next(b, DType::f32);
  EXPECT_TRUE(order.over(1));
  EXPECT_FALSE(order.over(2));
}

TEST_F(GatherOrderTest, AnotherOrderIsToldAndLearnt) {
  use({&a, &b, &c});
  order.adopt();
  EXPECT_EQ(use({&a, &c, &b}), (std::vector<int64_t>{0, -1, -1}));
  EXPECT_EQ(order.change(), "use 2 is of c as fp32, expected b as fp32");
  EXPECT_TRUE(order.adopt());
  EXPECT_EQ(order.changes(), 1);
  EXPECT_EQ(use({&a, &c, &b}), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_FALSE(order.adopt());

  use({&a, &c, &b, &a});  // longer
  EXPECT_EQ(order.change(), "use 4 is of a as fp32, expected none");
  EXPECT_TRUE(order.adopt());
  use({&a, &c});  // shorter
  EXPECT_TRUE(order.adopt());
  EXPECT_EQ(order.change(), "the micro-step ended after 2 of 4 weights");
  use({&a, &c, &c});  // once more than the window has uses
  EXPECT_FALSE(order.following());
  EXPECT_TRUE(order.adopt());
  EXPECT_EQ(order.changes(), 4);
}

TEST_F(GatherOrderTest, AnotherDtypeIsAnotherWindow) {
  order.begin();
  order.next(a, DType::f32);
  order.next(a, DType::bf16);
  order.adopt();
  EXPECT_EQ(order.size(), 2);
  EXPECT_EQ(use({&a, &a}), (std::vector<int64_t>{0, -1}));
}

}  // namespace
}  // namespace kiln
