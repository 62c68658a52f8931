// The CUDA device by itself: memory, copies, streams, events, capture, and the allocator's stream rule on a
// real device. What the ops compute is tested in tests/ops.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "autograd/accumulate.h"
#include "autograd/rank_context.h"
#include "base/error.h"
#include "support/gpu.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

TEST(MakeCudaBackend, SaysWhyThereIsNone) {
  if (!list_gpus().empty()) GTEST_SKIP() << "this machine has a GPU";
  try {
    make_cuda_backend(0);
    FAIL() << "a backend without a GPU";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
    EXPECT_FALSE(e.hint().empty());
  }
}

class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    KILN_NEEDS_GPU();
    backend_ = make_cuda_backend(0);
    stream_ = backend_->make_stream();
  }
  void TearDown() override {
    if (backend_) backend_->destroy(stream_);
  }

  std::vector<int> read(const void* device, std::size_t count) {
    std::vector<int> host(count);
    backend_->copy_to_host(host.data(), device, count * sizeof(int), stream_);
    backend_->synchronize(stream_);
    return host;
  }

  std::unique_ptr<Backend> backend_;
  Stream stream_;
};

std::vector<int> counting(int first, std::size_t count) {
  std::vector<int> v(count);
  std::iota(v.begin(), v.end(), first);
  return v;
}

constexpr std::size_t kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(int);

TEST_F(CudaBackendTest, CopiesThereAndBack) {
  EXPECT_EQ(backend_->traits().type, DeviceType::cuda);
  EXPECT_GE(backend_->traits().compute_capability, 80);
  EXPECT_FALSE(backend_->host_readable());
  void* a = backend_->allocate(kBytes);
  void* b = backend_->allocate(kBytes);
  auto* pinned = static_cast<int*>(backend_->allocate_pinned(kBytes));
  const std::vector<int> sent = counting(7, kCount);
  std::memcpy(pinned, sent.data(), kBytes);
  backend_->copy_to_device(a, pinned, kBytes, stream_);
  backend_->copy_within(b, a, kBytes, stream_);
  EXPECT_EQ(read(b, kCount), sent);
  backend_->zero(b, kBytes / 2, stream_);
  std::vector<int> half = sent;
  std::fill(half.begin(), half.begin() + kCount / 2, 0);
  EXPECT_EQ(read(b, kCount), half);
  backend_->copy_within(nullptr, nullptr, 0, stream_);  // nothing to move is no error
  backend_->zero(nullptr, 0, stream_);
  backend_->release_pinned(pinned);
  backend_->release(a);
  backend_->release(b);
}

TEST_F(CudaBackendTest, CopiesRowsAtTheirPitches) {
  void* from = backend_->allocate(kBytes);
  void* to = backend_->allocate(kBytes);
  const std::vector<int> sent = counting(1, kCount);
  backend_->copy_to_device(from, sent.data(), kBytes, stream_);
  backend_->zero(to, kBytes, stream_);
  constexpr std::size_t kInt = sizeof(int);
  backend_->copy_rows(to, 7 * kInt, from, 5 * kInt, 3 * kInt, 4, stream_);
  backend_->copy_rows(nullptr, 0, nullptr, 0, 0, 4, stream_);
  std::vector<int> got(kCount);
  backend_->copy_to_host(got.data(), to, kBytes, stream_);
  backend_->synchronize(stream_);
  for (std::size_t i = 0; i < 28; ++i) EXPECT_EQ(got[i], i % 7 < 3 ? sent[i / 7 * 5 + i % 7] : 0) << i;
  backend_->release(from);
  backend_->release(to);
}

TEST_F(CudaBackendTest, OutOfMemoryIsNullAndLeavesNoError) {
  EXPECT_EQ(backend_->allocate(std::size_t{1} << 50), nullptr);
  void* p = backend_->allocate(1);
  ASSERT_NE(p, nullptr);
  backend_->zero(p, 1, stream_);
  EXPECT_NO_THROW(backend_->synchronize(stream_));
  backend_->release(p);
}

TEST_F(CudaBackendTest, CountsFreeMemoryAndReportsOutOfMemory) {
  const auto before = backend_->free_bytes();
  ASSERT_TRUE(before.has_value());
  void* p = backend_->allocate(std::size_t{256} << 20);
  ASSERT_NE(p, nullptr);
  EXPECT_LT(backend_->free_bytes().value_or(*before), *before);
  backend_->release(p);

  RankOptions o;
  o.device = Device::cuda();
  RankContext ctx(o);
  const std::string said = KILN_ERROR_OF(ctx.empty({int64_t{1} << 50}, DType::u8, Tag::activation));
  for (const char* part : {"out of memory on cuda", "wanted for activation", "workspace 32.00 MiB",
                           "free on the device ", "smaller batch"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
}

TEST_F(CudaBackendTest, AGpuThatIsNotThere) {
  try {
    make_cuda_backend(127);
    FAIL() << "cuda:127 exists";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(e.what()).find("cuda:127"), std::string::npos) << e.what();
  }
}

// A stream kept busy for a while: large copies one after another.
class BusyMemory {
 public:
  static constexpr std::size_t kSize = std::size_t{256} << 20;
  explicit BusyMemory(Backend& backend)
      : backend_(backend), a_(backend.allocate(kSize)), b_(backend.allocate(kSize)) {}
  ~BusyMemory() {
    backend_.release(a_);
    backend_.release(b_);
  }
  BusyMemory(const BusyMemory&) = delete;
  BusyMemory& operator=(const BusyMemory&) = delete;
  void occupy(Stream stream) {
    for (int i = 0; i < 50; ++i) backend_.copy_within(b_, a_, kSize, stream);
  }

 private:
  Backend& backend_;
  void *a_, *b_;
};

TEST_F(CudaBackendTest, AnEventOrdersTwoStreams) {
  const Stream other = backend_->make_stream();
  const Event ready = backend_->make_event();
  void* a = backend_->allocate(kBytes);
  void* b = backend_->allocate(kBytes);
  const std::vector<int> sent = counting(1, kCount);
  {
    BusyMemory busy(*backend_);
    backend_->zero(a, kBytes, stream_);
    busy.occupy(stream_);
    backend_->copy_to_device(a, sent.data(), kBytes, stream_);
    backend_->record(ready, stream_);
    backend_->wait(other, ready);
    backend_->copy_within(b, a, kBytes, other);
    backend_->synchronize(other);
    EXPECT_EQ(read(b, kCount), sent);
    backend_->synchronize(ready);
    backend_->synchronize(stream_);
  }
  backend_->release(a);
  backend_->release(b);
  backend_->destroy(ready);
  backend_->destroy(other);
}

TEST_F(CudaBackendTest, ReplaysWhatItCaptured) {
  void* a = backend_->allocate(kBytes);
  void* b = backend_->allocate(kBytes);
  const std::vector<int> sent = counting(1, kCount);
  backend_->copy_to_device(a, sent.data(), kBytes, stream_);
  backend_->copy_to_device(b, sent.data(), kBytes, stream_);
  const auto graph = backend_->capture(stream_, [&] {
    backend_->copy_within(b, a, kBytes, stream_);
    backend_->zero(a, kBytes, stream_);
  });
  EXPECT_EQ(read(a, kCount), sent) << "a capture must not run anything";
  graph->launch(stream_);
  EXPECT_EQ(read(a, kCount), std::vector<int>(kCount, 0));
  EXPECT_EQ(read(b, kCount), sent);
  graph->launch(stream_);
  EXPECT_EQ(read(b, kCount), std::vector<int>(kCount, 0));
  backend_->release(a);
  backend_->release(b);
}

TEST_F(CudaBackendTest, AFailedCaptureLeavesTheStreamUsable) {
  void* a = backend_->allocate(kBytes);
  EXPECT_THROW(backend_->capture(stream_,
                                 [&] {
                                   backend_->zero(a, kBytes, stream_);
                                   throw Error("halfway");
                                 }),
               Error);
  const std::vector<int> sent = counting(1, kCount);
  backend_->copy_to_device(a, sent.data(), kBytes, stream_);
  EXPECT_EQ(read(a, kCount), sent);
  backend_->release(a);
}

TEST_F(CudaBackendTest, TakesMemoryDuringACapture) {
  void* taken = nullptr;
  const auto graph = backend_->capture(stream_, [&] {
    taken = backend_->allocate(kBytes);
    backend_->zero(taken, kBytes, stream_);
  });
  ASSERT_NE(taken, nullptr);
  graph->launch(stream_);
  EXPECT_EQ(read(taken, kCount), std::vector<int>(kCount, 0));
  backend_->release(taken);
}

class CudaRankTest : public testing::TestWithParam<AllocMode> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }

  static RankOptions options() {
    RankOptions o;
    o.device = Device::cuda();
    o.alloc_mode = GetParam();
    return o;
  }
};

Tensor upload(RankContext& ctx, const std::vector<float>& values) {
  Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, DType::f32);
  ctx.upload(t, values.data());
  return t;
}

std::vector<float> download(RankContext& ctx, const Tensor& t) {
  std::vector<float> values(static_cast<std::size_t>(t.numel()));
  ctx.download(values.data(), t);
  return values;
}

TEST_P(CudaRankTest, CapturesAKernelWithItsOwnMemory) {
  RankContext ctx(options());
  const Tensor sum = upload(ctx, std::vector<float>(kCount, 0.0f));
  const Tensor step = upload(ctx, std::vector<float>(kCount, 1.5f));
  accumulate_grad(ctx, {sum, true}, step);  // eagerly once
  PrivatePool pool(ctx.allocator());
  std::unique_ptr<DeviceGraph> graph;
  {
    PoolScope scope(pool);
    graph = ctx.backend().capture(ctx.compute(), [&] {
      const Tensor copy = ctx.clone(step);  // lives in the pool, and only inside the graph
      accumulate_grad(ctx, {sum, true}, copy);
    });
  }
  EXPECT_EQ(download(ctx, sum), std::vector<float>(kCount, 1.5f));
  for (int i = 0; i < 3; ++i) graph->launch(ctx.compute());
  EXPECT_EQ(download(ctx, sum), std::vector<float>(kCount, 6.0f));
}

TEST_P(CudaRankTest, RanksOfOneProcessShareAGpu) {
  auto work = [](float value, std::vector<float>& result) {
    RankContext ctx(options());
    const Tensor sum = upload(ctx, std::vector<float>(kCount, 0.0f));
    const Tensor step = upload(ctx, std::vector<float>(kCount, value));
    for (int i = 0; i < 100; ++i) accumulate_grad(ctx, {sum, true}, step);
    result = download(ctx, sum);
  };
  std::vector<float> first, second;
  std::thread other(work, 2.0f, std::ref(second));
  work(1.0f, first);
  other.join();
  EXPECT_EQ(first, std::vector<float>(kCount, 100.0f));
  EXPECT_EQ(second, std::vector<float>(kCount, 200.0f));
}

INSTANTIATE_TEST_SUITE_P(Modes, CudaRankTest, testing::Values(AllocMode::caching, AllocMode::raw),
                         [](const auto& info) { return info.param == AllocMode::raw ? "raw" : "caching"; });

}  // namespace
}  // namespace kiln
