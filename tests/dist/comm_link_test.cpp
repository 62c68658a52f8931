// The modelled link: how it is written, what it costs, and that calls keep to it.
#include <gtest/gtest.h>

#include "dist/comm/link_model.h"
#include "support/comm_values.h"
#include "support/shuffled_ranks.h"

namespace kiln {
namespace {

TEST(CommLink, IsParsed) {
  const LinkModel l = LinkModel::parse("latency=20us,bandwidth=10GB/s", "--link");
  EXPECT_DOUBLE_EQ(l.latency, 20e-6);
  EXPECT_DOUBLE_EQ(l.bandwidth, 10e9);
  EXPECT_EQ(l.str(), "latency=20us,bandwidth=10GB/s");
  const LinkModel m = LinkModel::parse("bandwidth=2.5Gbit/s,latency=0s", "--link");
  EXPECT_DOUBLE_EQ(m.latency, 0);
  EXPECT_DOUBLE_EQ(m.bandwidth, 2.5e9 / 8);
  for (const char* same : {"latency=1ms,bandwidth=1MB/s", "latency=500ns,bandwidth=1.5TB/s"}) {
    EXPECT_EQ(LinkModel::parse(same, "--link").str(),
              LinkModel::parse(LinkModel::parse(same, "").str(), "").str());
  }
}

TEST(CommLink, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "--link: '' is not key=value"},
      {"fast", "--link: 'fast' is not key=value"},
      {"latency=20us", "--link: bandwidth is missing"},
      {"bandwidth=1GB/s", "--link: latency is missing"},
      {"latency=20us,bandwidth=1GB/s,", "--link: '' is not key=value"},
      {"latency=20us,latency=2us,bandwidth=1GB/s", "--link: latency appears twice"},
      {"delay=20us,bandwidth=1GB/s", "--link: 'delay' is neither latency nor bandwidth"},
      {"latency=20,bandwidth=1GB/s", "--link: latency is '20', which lacks a unit (ns, us, ms, s)"},
      {"latency=20min,bandwidth=1GB/s", "--link: latency is '20min', whose unit is unknown (ns, us, ms, s)"},
      {"latency=-1us,bandwidth=1GB/s", "--link: latency is '-1us'; expected 0 or more"},
      {"latency=us,bandwidth=1GB/s", "--link: latency is 'us', not a number with a unit"},
      {"latency=nans,bandwidth=1GB/s", "--link: latency is 'nans', not a number with a unit"},
      {"latency=1us,bandwidth=infGB/s", "--link: bandwidth is 'infGB/s', not a number with a unit"},
      {"latency=1us,bandwidth=0GB/s", "--link: a link of no bandwidth carries nothing"},
  };
  for (const auto& [text, wanted] : cases) {
    try {
      LinkModel::parse(text, "--link");
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), wanted);
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      EXPECT_NE(e.hint().find("latency=20us,bandwidth=10GB/s"), std::string::npos);
    }
  }
}

CommCall call_of(Collective what, int64_t floats) {
  CommCall c;
  c.what = what;
  c.count = floats;
  return c;
}

// A walk through the steps of each ring, instead of the closed form.
TEST(CommLink, CostsWhatTheStepsOfARingCost) {
  const LinkModel link{3e-6, 2e9};
  for (int n : {2, 3, 4, 8}) {
    const int64_t count = 840 * 1000;  // of the whole tensor; divisible by all n
    const double whole = 4.0 * static_cast<double>(count), piece = whole / n;
    auto walk = [&](int steps, double bytes) {
      double t = 0;
      for (int s = 0; s < steps; ++s) t += link.latency + bytes / link.bandwidth;
      return t;
    };
    auto cost = [&](Collective what, int64_t floats, CommAlgorithm a = CommAlgorithm::ring) {
      return link_seconds(link, a, call_of(what, floats), n);
    };
    EXPECT_NEAR(cost(Collective::all_gather, count / n), walk(n - 1, piece), 1e-12);
    EXPECT_NEAR(cost(Collective::reduce_scatter, count), walk(n - 1, piece), 1e-12);
    EXPECT_NEAR(cost(Collective::all_reduce, count), walk(2 * (n - 1), piece), 1e-12);
    EXPECT_NEAR(cost(Collective::all_reduce, count, CommAlgorithm::direct), walk(2 * (n - 1), piece), 1e-12);
    EXPECT_NEAR(cost(Collective::all_reduce, count, CommAlgorithm::alternate), walk(n - 1, whole), 1e-12);
    EXPECT_NEAR(cost(Collective::reduce, count), walk(2 * (n - 1), piece), 1e-12);
    EXPECT_NEAR(cost(Collective::broadcast, count), walk(2 * (n - 1), piece), 1e-12);
    EXPECT_NEAR(cost(Collective::barrier, 0), walk(2 * (n - 1), 0), 1e-12);
    EXPECT_NEAR(cost(Collective::send, count), walk(1, whole), 1e-12);
  }
  for (Collective what : {Collective::all_reduce, Collective::broadcast, Collective::barrier})
    EXPECT_EQ(link_seconds(link, CommAlgorithm::ring, call_of(what, 1000), 1), 0);
}

// No clock can make this fail by being slow: a call may take longer than the model says, never less.
TEST(CommLink, NoCallEndsBeforeTheModelSays) {
  for (CommAlgorithm algorithm : {CommAlgorithm::direct, CommAlgorithm::ring, CommAlgorithm::alternate}) {
    CommOptions options;
    options.link = LinkModel{200e-6, 50e6};
    options.algorithm = algorithm;
    run_shuffled_ranks(
        3, one_thread_each(),
        [&](RankContext& ctx, Communicator& comm, Shaker& shake) {
          comm.start_recording();
          const Tensor t = upload(ctx, values_of<float>(ctx.rank(), 3001));
          const Tensor shard = ctx.zeros({1001}, DType::f32), full = ctx.zeros({3003}, DType::f32);
          comm.all_reduce(ctx, t, "a");
          shake();
          comm.all_gather(ctx, shard, full, "b");
          comm.reduce_scatter(ctx, full, shard, "c");
          comm.broadcast(ctx, t, 1, "d").wait(ctx);
          const std::vector<CommRecord> records = comm.take_records(ctx);
          ASSERT_EQ(records.size(), 4U);
          for (const CommRecord& r : records) {
            const CommCall c = call_of(r.collective, r.bytes / 4);
            EXPECT_GE(static_cast<double>(r.ended - r.started),
                      1e9 * link_seconds(*options.link, algorithm, c, 3) - 2)
                << r.subject;
          }
          for (std::size_t i = 1; i < records.size(); ++i)  // one link: calls do not share it
            EXPECT_GE(records[i].ended, records[i - 1].ended);
        },
        options);
  }
}

}  // namespace
}  // namespace kiln
