// Reads in flight: every byte right, in the order that was asked for, each told exactly once; the
// same for both engines.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>

#include "base/clock.hpp"
#include "reader_fixture.hpp"

namespace resid::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Engines, ReaderOf,
                         ::testing::Values(ReadEngine::io_uring, ReadEngine::threads),
                         [](const auto& each) { return std::string(name(each.param)); });

TEST_P(ReaderOf, EveryByteIsRightWhateverTheFilesSize) {
  for (const std::uint64_t bytes :
       {3 * MiB, 3 * MiB + 4096, 3 * MiB + 512, 3 * MiB + 1234, std::uint64_t{100}}) {
    const Source& source = file(bytes);
    Receiver receiver;
    auto reader = Reader::create({GetParam(), 4, 128 * KiB}, &Receiver::done, &receiver);
    ASSERT_TRUE(reader);
    (*reader)->add_store(source.store());
    std::mt19937_64 random(7);
    std::deque<Ask> asks;
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t at = random() % (page_up(bytes) / kPage + 2) * kPage;
      asks.emplace_back(source, at, (1 + random() % 100) * kPage, i % 3 == 0);
    }
    for (Ask& ask : asks)
      (*reader)->submit(ask);
    ASSERT_TRUE(receiver.wait_for(asks.size()));
    for (const Ask& ask : asks) {
      EXPECT_TRUE(ask.right()) << ask.offset << " + " << ask.bytes << " of " << bytes;
      EXPECT_EQ(ask.told.load(), 1);
      EXPECT_LE(ask.began_ns, ask.ended_ns);
      EXPECT_NE(ask.began_ns, 0U);
    }
  }
}

TEST_P(ReaderOf, AStoreThatWasNotAddedIsReadAllTheSame) {
  const Source& source = file(1 * MiB + 77);
  make(2);
  Ask ask(source, 0, page_up(source.bytes()));
  run(ask);
  EXPECT_TRUE(ask.right());
}

TEST_P(ReaderOf, MoreStoresThanThereIsRoomForAreRead) {
  const Source& source = file(256 * KiB);
  make(2);
  for (int i = 0; i < 100; ++i)
    reader_->add_store(source.store());
  const Source& last = file(300 * KiB);
  reader_->add_store(last.store());
  Ask ask(last, 0, 300 * KiB);
  run(ask);
  EXPECT_TRUE(ask.right());
}

TEST_P(ReaderOf, AStoreWithoutDirectReadsIsRead) {
  std::string folder = "/var/tmp/resid-ramfs-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  if (::mount("ramfs", folder.c_str(), "ramfs", 0, nullptr) != 0) {
    std::filesystem::remove(folder);
    GTEST_SKIP() << "mounting a file system without direct reads needs root";
  }
  const Source& source = files_.emplace_back(1 * MiB + 99, folder);
  ::umount2(folder.c_str(), MNT_DETACH);
  std::filesystem::remove(folder);
  ASSERT_FALSE(source.store().direct());
  make(4, 64 * KiB).add_store(source.store());
  Ask ask(source, 0, page_up(source.bytes()));
  run(ask);
  EXPECT_TRUE(ask.right());
  EXPECT_FALSE(ask.outcome.retried);

  g_read_fault_hook.store([](std::uint64_t, std::uint64_t, bool) { return EIO; });
  Ask failing(source, 0, 64 * KiB);
  run(failing);
  EXPECT_EQ(failing.outcome.status, Status::read_failed);
  EXPECT_FALSE(failing.outcome.retried);
  EXPECT_EQ(reader_->stats().retries, 0U);
}

TEST_P(ReaderOf, ARequestBehindTheEndIsToldOnAThreadOfTheReader) {
  const Source& source = file(1 * MiB);
  make(1);
  static std::mutex mine;
  static pthread_t teller;
  receiver_.then = [](ReadRequest&) {
    const std::scoped_lock lock(mine);  // a deadlock, were it called from submit()
    teller = ::pthread_self();
  };
  Ask ask(source, 1 * MiB, 4096);
  {
    const std::scoped_lock lock(mine);
    reader_->submit(ask);
  }
  ASSERT_TRUE(receiver_.wait_for(1));
  EXPECT_TRUE(ask.right());
  EXPECT_FALSE(::pthread_equal(teller, ::pthread_self()));
  EXPECT_EQ(reader_->stats().pieces, 0U);
}

// ----

TEST_P(ReaderOf, NeighboursAreReadTogether) {
  const Source& source = file(4 * MiB);
  make(1, 128 * KiB);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  std::deque<Ask> asks;
  for (std::uint64_t i = 0; i < 16; ++i)
    asks.emplace_back(source, i * 16 * KiB, 16 * KiB);
  for (Ask& ask : asks)
    reader_->submit(ask);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(17));
  for (const Ask& ask : asks)
    EXPECT_TRUE(ask.right());
  EXPECT_EQ(reader_->stats().pieces, 3U);
  EXPECT_EQ(reader_->stats().merged, 14U);
  EXPECT_EQ(reader_->stats().split, 0U);
  EXPECT_EQ(attempts(), (std::vector<std::uint64_t>{3 * MiB, 0, 128 * KiB}));
}

TEST_P(ReaderOf, NeighboursInOnePieceOfMemoryAreReadTogether) {
  const Source& source = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  Ask whole(source, 0, 64 * KiB);
  Ask left(source, 0, 32 * KiB);
  Ask right(source, 32 * KiB, 32 * KiB);
  left.into = whole.memory;
  right.into = whole.memory + 32 * KiB;
  reader_->submit(left);
  reader_->submit(right);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(3));
  EXPECT_TRUE(source.right(0, 64 * KiB, whole.memory));
  EXPECT_EQ(reader_->stats().pieces, 2U);
}

TEST_P(ReaderOf, APieceTakesEightRequestsAtMost) {
  const Source& source = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  std::deque<Ask> asks;
  for (std::uint64_t i = 0; i < 20; ++i)
    asks.emplace_back(source, i * 4096, 4096);
  for (Ask& ask : asks)
    reader_->submit(ask);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(21));
  for (const Ask& ask : asks)
    EXPECT_TRUE(ask.right());
  EXPECT_EQ(reader_->stats().pieces, 4U);
}

TEST_P(ReaderOf, WhatIsNoNeighbourIsReadAlone) {
  const Source& source = file(4 * MiB);
  const Source& other = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  std::deque<Ask> asks;
  asks.emplace_back(source, 0, 4096);
  asks.emplace_back(source, 8192, 4096);         // a gap
  asks.emplace_back(source, 4096, 4096);         // backwards
  asks.emplace_back(other, 8192, 4096);          // elsewhere
  asks.emplace_back(source, 12288, 4096, true);  // more urgent
  for (Ask& ask : asks)
    reader_->submit(ask);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(6));
  for (const Ask& ask : asks)
    EXPECT_TRUE(ask.right());
  EXPECT_EQ(reader_->stats().merged, 0U);
  EXPECT_EQ(reader_->stats().pieces, 6U);
}

TEST_P(ReaderOf, ALargeRequestIsCutIntoPieces) {
  const Source& source = file(4 * MiB);
  make(4, 256 * KiB).add_store(source.store());
  g_read_fault_hook.store(&record);
  Ask ask(source, 1 * MiB, 2 * MiB + 4096);
  run(ask);
  EXPECT_TRUE(ask.right());
  EXPECT_EQ(reader_->stats().pieces, 9U);
  EXPECT_EQ(reader_->stats().split, 1U);
  EXPECT_EQ(g_largest.load(), 256 * KiB);
}

TEST_P(ReaderOf, ARequestThatFillsUpAPieceGoesOnInTheNext) {
  const Source& source = file(4 * MiB);
  make(1, 64 * KiB);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  Ask left(source, 0, 48 * KiB);
  Ask right(source, 48 * KiB, 80 * KiB);
  reader_->submit(left);
  reader_->submit(right);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(3));
  EXPECT_TRUE(left.right());
  EXPECT_TRUE(right.right());
  EXPECT_EQ(attempts(), (std::vector<std::uint64_t>{3 * MiB, 0, 64 * KiB}));
}

TEST_P(ReaderOf, NoMoreThanTheDepthIsInFlight) {
  const Source& source = file(8 * MiB);
  for (const std::uint32_t depth : {1U, 3U, 16U}) {
    Receiver receiver;
    auto reader = Reader::create({GetParam(), depth, 64 * KiB}, &Receiver::done, &receiver);
    ASSERT_TRUE(reader);
    std::deque<Ask> asks;
    for (std::uint64_t i = 0; i < 64; ++i)
      asks.emplace_back(source, i * 7 % 64 * 128 * KiB, 128 * KiB);
    for (Ask& ask : asks)
      (*reader)->submit(ask);
    ASSERT_TRUE(receiver.wait_for(64));
    EXPECT_LE((*reader)->stats().most_in_flight, depth);
    EXPECT_GT((*reader)->stats().most_in_flight, depth == 1 ? 0U : 1U);
    EXPECT_EQ((*reader)->stats().pieces, 128U);
    EXPECT_EQ((*reader)->depth(), depth);
  }
}

// ----

TEST_P(ReaderOf, AnUrgentRequestOvertakesWhatWasAskedForAhead) {
  const Source& source = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  std::deque<Ask> asks;
  for (const bool urgent : {false, false, true, true})
    asks.emplace_back(source, asks.size() * 256 * KiB, 4096, urgent);
  for (Ask& ask : asks)
    reader_->submit(ask);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(5));
  EXPECT_EQ(receiver_.in_order,
            (std::vector<const ReadRequest*>{&first, &asks[2], &asks[3], &asks[0], &asks[1]}));
}

TEST_P(ReaderOf, AnUrgentRequestOvertakesTheRestOfALargeOne) {
  const Source& source = file(4 * MiB);
  make(1, 64 * KiB);
  Ask large(source, 0, 256 * KiB);
  block(large);
  Ask urgent(source, 2 * MiB, 4096, true);
  reader_->submit(urgent);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(2));
  EXPECT_TRUE(large.right());
  EXPECT_EQ(receiver_.in_order, (std::vector<const ReadRequest*>{&urgent, &large}));
}

TEST_P(ReaderOf, UrgingMovesARequestToTheFront) {
  const Source& source = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  std::deque<Ask> asks;
  for (int i = 0; i < 3; ++i)
    asks.emplace_back(source, asks.size() * 256 * KiB, 4096);
  for (Ask& ask : asks)
    reader_->submit(ask);
  reader_->urge(asks[2]);
  reader_->urge(asks[2]);  // no more urgent by that
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(4));
  EXPECT_EQ(receiver_.in_order,
            (std::vector<const ReadRequest*>{&first, &asks[2], &asks[0], &asks[1]}));
}

TEST_P(ReaderOf, UrgingMovesWhatIsLeftBehindTheUrgentThatCameBefore) {
  const Source& source = file(4 * MiB);
  make(1, 64 * KiB);
  Ask large(source, 0, 192 * KiB);
  Ask before(source, 2 * MiB, 4096, true);
  Ask after(source, 3 * MiB, 4096, true);
  block(large);
  reader_->submit(before);
  reader_->urge(large);
  reader_->submit(after);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(3));
  EXPECT_TRUE(large.right());
  EXPECT_EQ(attempts(), (std::vector<std::uint64_t>{0, 2 * MiB, 64 * KiB, 128 * KiB, 3 * MiB}));
}

TEST_P(ReaderOf, UrgingWhatIsAllInFlightChangesNothing) {
  const Source& source = file(4 * MiB);
  make(1);
  Ask first(source, 3 * MiB, 4096);
  block(first);
  reader_->urge(first);
  g_gate = true;
  ASSERT_TRUE(receiver_.wait_for(1));
  EXPECT_TRUE(first.right());
  EXPECT_EQ(reader_->stats().pieces, 1U);
}

// ----

TEST_P(ReaderOf, EveryRequestIsToldOnceInAStormWithFailures) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 2000;
  constexpr std::size_t kAhead = 32;
  const Source& source = file(16 * MiB + 300);
  make(8, 64 * KiB).add_store(source.store());
  g_read_fault_hook.store(&fail_some);
  // As the pager does: urge() and done() under a lock of the caller's.
  static std::mutex mine;
  receiver_.then = [](ReadRequest& request) {
    const std::scoped_lock lock(mine);
    request.tag = 0;
  };
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> failed{0};
  std::atomic<std::size_t> urged{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::deque<Ask> asks;
      const auto retire = [&] {
        Ask& ask = asks.front();
        while (ask.told.load() == 0)
          std::this_thread::yield();
        { const std::scoped_lock lock(mine); }
        if (ask.told.load() != 1) ++wrong;
        if (ask.outcome.status == Status::read_failed) {
          ++failed;
        } else if (!ask.right()) {
          ++wrong;
        }
        asks.pop_front();
      };
      std::uint64_t at = 0;
      for (std::size_t i = 0; i < kEach; ++i) {
        // Runs of neighbours, so that they are merged, too.
        if (random() % 4 == 0) at = random() % (source.bytes() / kPage) * kPage;
        Ask& ask = asks.emplace_back(source, at, (1 + random() % 24) * kPage, random() % 3 == 0);
        at += ask.bytes;
        ask.tag = 1;
        reader_->submit(ask);
        {
          const std::scoped_lock lock(mine);
          Ask& any = asks[random() % asks.size()];
          if (any.tag != 0 && ++urged != 0) reader_->urge(any);
        }
        if (asks.size() == kAhead) retire();
      }
      while (!asks.empty())
        retire();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  ASSERT_TRUE(receiver_.wait_for(kThreads * kEach));
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(failed.load(), 0U);
  EXPECT_LT(failed.load(), kThreads * kEach / 4);
  EXPECT_GT(urged.load(), 0U);
  EXPECT_GT(reader_->stats().retries, 0U);
  EXPECT_GT(reader_->stats().merged, 0U);
}

TEST_P(ReaderOf, ReadsOfAThreadThatHasEndedAreNotLost) {
  const Source& source = file(8 * MiB);
  make(2, 64 * KiB);
  std::deque<Ask> asks;
  for (std::uint64_t i = 0; i < 16; ++i)
    asks.emplace_back(source, i * 512 * KiB, 256 * KiB);
  std::thread([&] {
    for (Ask& ask : asks)
      reader_->submit(ask);
  }).join();
  ASSERT_TRUE(receiver_.wait_for(16));
  for (const Ask& ask : asks)
    EXPECT_TRUE(ask.right());
}

TEST_P(ReaderOf, DoneMaySubmit) {
  const Source& source = file(1 * MiB);
  make(1);
  static Reader* reader;
  static Ask* next;
  reader = reader_.get();
  Ask first(source, 0, 4096);
  Ask second(source, 64 * KiB, 4096);
  next = &second;
  receiver_.then = [](ReadRequest& request) {
    if (&request != next) reader->submit(*next);
  };
  reader_->submit(first);
  ASSERT_TRUE(receiver_.wait_for(2));
  EXPECT_TRUE(first.right());
  EXPECT_TRUE(second.right());
}

TEST_P(ReaderOf, ItsThreadsHaveANameAndTakeNoSignals) {
  const Source& source = file(64 * KiB);
  make(1);
  static std::string thread_name;
  static bool blocked;
  receiver_.then = [](ReadRequest&) {
    std::array<char, 16> text{};
    ::pthread_getname_np(::pthread_self(), text.data(), text.size());
    thread_name = text.data();
    sigset_t set;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
    blocked = sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGPROF) == 1;
  };
  Ask ask(source, 0, 4096);
  run(ask);
  EXPECT_EQ(thread_name, "resid-read");
  EXPECT_TRUE(blocked);
  sigset_t mine;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST_P(ReaderOf, NoDescriptorIsInheritedByAProgramThatIsStarted) {
  const Source& source = file(64 * KiB);
  const auto open_after_exec = [] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename().string());
      const int flags = ::fcntl(fd, F_GETFD);
      if (flags >= 0 && (flags & FD_CLOEXEC) == 0) ++count;
    }
    return count;
  };
  const std::size_t before = open_after_exec();
  make(2).add_store(source.store());
  EXPECT_EQ(open_after_exec(), before);
}

TEST_P(ReaderOf, AnIdleReaderEndsAtOnce) {
  const std::uint64_t began = now_ns();
  make(16);
  reader_.reset();
  EXPECT_LT(now_ns() - began, 1'000'000'000U);
}

TEST_P(ReaderOf, SettingsOutOfRangeAreRefused) {
  for (const ReaderConfig& config :
       {ReaderConfig{GetParam(), 0, 65536}, ReaderConfig{GetParam(), 65, 65536},
        ReaderConfig{GetParam(), 4, 0}, ReaderConfig{GetParam(), 4, 1000}}) {
    const auto made = Reader::create(config, &Receiver::done, nullptr);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().status, Status::usage);
  }
}

// ---- The choice of the engine

// As the seccomp profiles of container engines do.
bool deny_io_uring() {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// The child's exit code.
int in_a_child_without_io_uring(int (*work)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(deny_io_uring() ? work() : 99);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ReaderEngine, ThreadsTakeOverWhereIoUringIsDenied) {
  EXPECT_EQ(in_a_child_without_io_uring([] {
              const Source source(256 * KiB);
              Receiver receiver;
              auto reader = Reader::create({}, &Receiver::done, &receiver);
              if (!reader || (*reader)->engine() != ReadEngine::threads) return 1;
              Ask ask(source, 0, 256 * KiB);
              (*reader)->submit(ask);
              return receiver.wait_for(1) && ask.right() ? 0 : 2;
            }),
            0);
}

TEST(ReaderEngine, IoUringByNameIsAFailureWhereItIsDenied) {
  EXPECT_EQ(in_a_child_without_io_uring([] {
              ReaderConfig config;
              config.engine = ReadEngine::io_uring;
              const auto reader = Reader::create(config, &Receiver::done, nullptr);
              if (reader || reader.error().status != Status::unsupported) return 1;
              return reader.error().why.find("permitted") == std::string::npos ? 2 : 0;
            }),
            0);
}

TEST(ReaderEngine, HasANameForReports) {
  EXPECT_EQ(name(ReadEngine::automatic), "automatic");
  EXPECT_EQ(name(ReadEngine::io_uring), "io_uring");
  EXPECT_EQ(name(ReadEngine::threads), "threads");
}

}  // namespace
}  // namespace resid::test
