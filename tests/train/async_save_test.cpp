// Asynchronous saves: the file is the snapshot's, whatever training does meanwhile.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "data/load_tokenizer.h"
#include "dist/comm/threads/thread_group.h"
#include "dist/strategy/strategies.h"
#include "support/temp_folder.h"
#include "support/train_record.h"
#include "train/checkpoint/checkpoint_manager.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/memory_prediction.h"
#include "train/run/train.h"
#include "train/trainer.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// A disk that does nothing until it is told to, and then, perhaps, fails.
class HeldDisk final : public FileWatch {
 public:
  int before(FileOp op, std::string_view) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --waiting_;
    return op == FileOp::sync ? sync_fails_with.load() : 0;
  }
  void wait_until_asked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  std::atomic<int> sync_fails_with = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& e : fs::directory_iterator(folder)) {
    std::ifstream file(e.path(), std::ios::binary);
    files[e.path().filename().string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

struct AsyncSave : testing::TestWithParam<Precision> {
  AsyncSave() : trainer(run_of(GetParam())) {}
  static TinyRun run_of(Precision precision) {
    TinyRun r;
    r.precision = precision;
    return r;
  }
  CheckpointParts parts() {
    return {trainer.ctx, trainer.model, trainer.step->optimizer(), tokenizer.get(), {}};
  }
  TrainState state() {
    TrainState s;
    s.scalars = trainer.step->finish();
    s.loader.context = trainer.run.step.context;
    s.loader.tokens = 1000;
    return s;
  }
  Warn warn() {
    return [this](const std::string& line) { said.push_back(line); };
  }
  bool warned(const std::string& words) const {
    return std::any_of(said.begin(), said.end(),
                       [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }

  TempFolder temp;
  RunFolder folder{temp / "run"}, plain{temp / "plain"};  // both of generation 1
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer("byte");
  std::vector<std::string> said;
  HeldDisk disk;
  Trainer trainer;
};
INSTANTIATE_TEST_SUITE_P(Precisions, AsyncSave, testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(AsyncSave, TheFileIsTheSnapshotWhileTheModelGoesOnChanging) {
  CheckpointManager saver(folder, parts(), {.watch = &disk, .async = true}, warn());
  std::vector<int64_t> saved;
  saver.on_saved([&](int64_t step, const std::string&) { saved.push_back(step); });
  for (int i = 0; i < 2; ++i) trainer.train(i);
  const auto wanted = files_of(save_checkpoint(plain, parts(), state(), 3, warn()));
  saver.save(state());
  const std::vector<std::byte> before = trainer.weights();
  disk.wait_until_asked();  // the thread is at its first write
  for (int i = 2; i < 6; ++i) {
    trainer.train(i);
    saver.poll(i + 1);
  }
  trainer.step->finish();
  EXPECT_NE(trainer.weights(), before);
  EXPECT_TRUE(saved.empty());
  EXPECT_TRUE(checkpoint_steps(folder.checkpoints()).empty());
  disk.set_open(true);
  saver.finish();
  EXPECT_FALSE(saver.error());
  EXPECT_EQ(saved, std::vector<int64_t>{2});
  EXPECT_EQ(saver.last_good(), folder.checkpoints() + "/step-00000002");
  EXPECT_EQ(files_of(saver.last_good()), wanted);
  EXPECT_TRUE(said.empty()) << testing::PrintToString(said);
}

TEST_P(AsyncSave, ASecondOneWaitsAndSaysSo) {
  CheckpointManager saver(folder, parts(), {.watch = &disk, .async = true}, warn());
  trainer.train(0);
  saver.save(state());
  disk.wait_until_asked();
  trainer.train(1);
  std::thread later([&] { disk.set_open(true); });
  saver.save(state());
  later.join();
  EXPECT_EQ(checkpoint_steps(folder.checkpoints()).back(), 1);
  saver.finish();
  EXPECT_EQ(checkpoint_steps(folder.checkpoints()), (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(warned("the save of step 2 waited")) << testing::PrintToString(said);
}

TEST_P(AsyncSave, AFailureIsToldAndTheNextOneCounts) {
  CheckpointManager saver(folder, parts(), {.watch = &disk, .async = true}, warn());
  disk.set_open(true);
  disk.sync_fails_with = EIO;
  trainer.train(0);
  saver.save(state());
  saver.finish();
  ASSERT_TRUE(saver.error());
  EXPECT_TRUE(warned("STEP 1 WAS NOT SAVED")) << testing::PrintToString(said);
  EXPECT_TRUE(fs::is_empty(folder.checkpoints()));
  disk.sync_fails_with = 0;
  trainer.train(1);
  saver.save(state());
  saver.finish();
  EXPECT_FALSE(saver.error());
  EXPECT_EQ(checkpoint_steps(folder.checkpoints()), std::vector<int64_t>{2});
}

TEST_P(AsyncSave, AFailureStopsARunThatWantsIt) {
  CheckpointManager saver(folder, parts(), {.stop_on_error = true, .watch = &disk, .async = true}, warn());
  disk.set_open(true);
  disk.sync_fails_with = EIO;
  trainer.train(0);
  saver.save(state());
  EXPECT_NE(KILN_ERROR_OF((saver.finish(), 0)).find("cannot write"), std::string::npos);
}

TEST_P(AsyncSave, EndingWithoutAWordLeavesAWholeCheckpoint) {
  {
    CheckpointManager saver(folder, parts(), {.watch = &disk, .async = true}, warn());
    trainer.train(0);
    saver.save(state());
    disk.set_open(true);
  }
  EXPECT_EQ(newest_checkpoint(folder.checkpoints(), warn()), folder.checkpoints() + "/step-00000001");
  EXPECT_TRUE(said.empty()) << testing::PrintToString(said);
}

TEST_P(AsyncSave, ItsCopyIsTheOnlyMemoryItTakesFromTheDevice) {
  trainer.train(0);
  const std::size_t before = trainer.ctx.allocator().stats().live_total;
  CheckpointManager saver(folder, parts(), {.watch = &disk, .async = true}, warn());
  const std::size_t after = trainer.ctx.allocator().stats().live_total;
  trainer.ctx.allocator().reset_peaks();
  saver.save(state());
  EXPECT_EQ(trainer.ctx.allocator().stats().peak_total, after);
  EXPECT_GE(after - before, saver.staged_bytes());
  EXPECT_LT(after - before, saver.staged_bytes() + 1024);
  int64_t weights = 0;
  for (const Param& p : trainer.model.params().params()) weights += p.shape.numel();
  EXPECT_GE(saver.staged_bytes(), static_cast<std::size_t>(3 * weights) * sizeof(float));
  EXPECT_LT(saver.staged_bytes(), static_cast<std::size_t>(3 * weights) * sizeof(float) * 11 / 10);
  disk.set_open(true);
}

// Whole runs.
struct AsyncRun : testing::Test {
  TrainRequest request(const std::string& name, int ranks, const std::string& strategy, bool async) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += cat("the cat sat on mat ", i % 7, " and the dog sat on the log\n");
    TrainRequest r;
    r.run = temp / name;
    r.text = temp.write("rhyme.txt", text);
    r.sizes = {"nano"};
    r.steps = 6;
    r.batch = 2 * ranks;
    r.context = 16;
    r.threads = 1;
    r.ranks = ranks;
    r.strategy = strategy;
    r.sample_tokens = 0;
    r.save_every = 2;
    r.keep = 5;
    r.held_out = 0;
    r.async_save = async;
    return r;
  }
  std::string run(const TrainRequest& r) {
    record = {};
    try {
      outcome = train(r, record, stop);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  std::string tensors(const std::string& run, int64_t step) const {
    const std::string at = run + "/checkpoints/" + checkpoint_name(step) + "/";
    return temp.read(at + "model.safetensors") + temp.read(at + "optimizer.safetensors");
  }

  TempFolder temp;
  std::atomic<bool> stop{false};
  cli::TrainRecord record;
  TrainOutcome outcome;
};

TEST_F(AsyncRun, EndsInTheFilesOfAPlainRunUnderEveryStrategy) {
  for (const auto& [strategy, ranks] : std::vector<std::pair<std::string, int>>{
           {"none", 1}, {"ddp:bucketed", 2}, {"zero2", 2}, {"fsdp", 4}}) {
    const std::string plain = cat("plain-", ranks, strategy), async = cat("async-", ranks, strategy);
    ASSERT_EQ(run(request(plain, ranks, strategy, false)), "");
    ASSERT_EQ(run(request(async, ranks, strategy, true)), "") << strategy;
    EXPECT_EQ(outcome.checkpoint, temp / async + "/checkpoints/step-00000006");
    for (const int64_t step : {2, 4, 6}) {
      EXPECT_GT(tensors(plain, step).size(), 10000u);
      EXPECT_EQ(tensors(async, step), tensors(plain, step)) << strategy << ", step " << step;
    }
    EXPECT_FALSE(fs::exists(temp / async + "/checkpoints/step-00000006.tmp.1"));
  }
}

TEST_F(AsyncRun, AFailedSaveFailsOnAllRanksAndTrainingContinues) {
  TrainRequest r = request("run", 2, "zero1", true);
  r.inject = {"enospc:rank=1,step=4,call=2"};
  EXPECT_EQ(run(r), "");
  EXPECT_NE(testing::PrintToString(record.warnings).find("STEP 4 WAS NOT SAVED: rank 1 failed: cannot write"),
            std::string::npos)
      << testing::PrintToString(record.warnings);
  EXPECT_EQ(checkpoint_steps(temp / "run/checkpoints"), (std::vector<int64_t>{6, 2}));
  r.inject = {"eio:rank=0,step=6,call=3"};
  r.run = temp / "last";
  EXPECT_NE(run(r).find("the last save failed"), std::string::npos);
  EXPECT_EQ(checkpoint_steps(temp / "last/checkpoints"), (std::vector<int64_t>{4, 2}));
}

TEST_F(AsyncRun, AStepThatFailsLeavesTheSaveUnderWayWhole) {
  TrainRequest r = request("run", 1, "none", true);
  r.inject = {"nan:step=5,site=loss"};
  EXPECT_NE(run(r).find("not finite"), std::string::npos);
  EXPECT_EQ(checkpoint_steps(temp / "run/checkpoints"), (std::vector<int64_t>{4, 2}));
}

TEST(AsyncMemory, TheCopyIsPredicted) {
  MemoryRequest request;
  const TinyRun run;
  request.model = run.model;
  request.step = run.step;
  RankOptions rank;
  rank.threads = 1;
  const MemoryStats without = predict_memory(request, rank);
  request.saves_copy = true;
  const MemoryStats with = predict_memory(request, rank);
  Trainer t(run);
  CheckpointManager saver(nullptr, {t.ctx, t.model, t.step->optimizer(), nullptr, {}}, {.async = true}, {});
  t.train(0);
  t.train(1);
  t.step->finish();
  EXPECT_EQ(t.ctx.allocator().stats().peak_total, with.peak_total);
  EXPECT_GE(with.peak_total - without.peak_total, saver.staged_bytes());
}

// Peak of the resident set while `work` runs, above what it was, in bytes; -1 where that is not counted.
int64_t growth_of(const std::function<void()>& work) {
  const auto field = [](const char* name) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(name)) return std::stoll(line.substr(std::strlen(name))) * 1024;
    }
    return -1LL;
  };
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again
  const int64_t before = field("VmRSS:");
  if (field("VmHWM:") - before > int64_t{8} << 20) return -1;
  work();
  return field("VmHWM:") - before;
}

// 18 million weights: 72 MiB in fp32, and twice that of moments.
TEST(StreamedSave, TakesLessThan64MiBForAnyModel) {
  TinyRun run;
  run.model.vocab = 36000;
  run.model.d_model = 512;
  run.model.heads = 4;
  run.model.kv_heads = 4;
  run.model.d_ff = 64;
  run.model.tied = true;
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  Trainer t(run);
  const CheckpointParts parts{t.ctx, t.model, t.step->optimizer(), nullptr, {}};
  TrainState state;
  state.scalars.attempt = 1;
  state.loader.context = 1;
  state.loader.tokens = 1000;
  const auto touch = [&](const Tensor& v) {
    t.ctx.backend().zero(v.raw(), v.bytes().value, t.ctx.compute());
  };
  touch(t.model.params().values());
  for (const OptimizerState& s : t.step->optimizer().state()) touch(s.values);
  const int64_t streamed = growth_of([&] { save_checkpoint(folder, parts, state, 3, {}); });
  if (streamed < 0) GTEST_SKIP() << "this system does not reset a process's peak";
  const int64_t staged = growth_of([&] {
    CheckpointManager saver(folder, parts, {.async = true}, {});
    state.scalars.attempt = 2;
    saver.save(state);
    saver.finish();
    EXPECT_FALSE(saver.error());
  });
  EXPECT_LT(streamed, int64_t{64} << 20);
  EXPECT_GT(staged, int64_t{200} << 20);  // what a copy looks like to this measurement
  RecordProperty("streamed_mib", static_cast<int>(streamed >> 20));
  std::printf("a save of %.0f MiB grew the process by %.1f MiB\n", 12 * 18.5,
              static_cast<double>(streamed) / (1 << 20));
}

}  // namespace
}  // namespace kiln
