// Trace files: what is written is read, what was damaged anywhere is refused, and a file of the
// right name is whole.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include <zstd.h>

#include "trace/trace_layout.hpp"
#include "trace_support.hpp"

namespace resid::trace_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using trace_layout::FixedHeader;

// Where the frame with the records begins.
std::size_t frame_at(const std::string& bytes) {
  FixedHeader fixed;
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  return sizeof fixed + fixed.model_text_bytes + fixed.config_hash_bytes +
         4 * std::size_t{fixed.chunk_count};
}

class TraceFile : public Folder {
 protected:
  // Not the smallest: several kinds of blocks, and damage in the middle of one.
  static TraceHeader small_header() { return cyclic_header({4096, 100, 8192, 4096, 7}, 40); }
  std::string small_file(const char* name = "small.trace") const {
    const TraceHeader header = small_header();
    write_trace(path(name), header, records_of(cyclic_accesses(header)));
    return path(name);
  }

  Failure refused(const std::string& file) const {
    auto records = read_trace(file);
    EXPECT_FALSE(records);
    return records ? Failure{Status::ok, {}, {}, {}} : records.error();
  }
  // What the reader says to a file with these records, all checksums being right; the last `cut`
  // bytes of the records are left out, `behind` comes after the frame.
  Failure forged(const std::vector<TraceRecord>& records, std::size_t cut = 0,
                 int window_log = trace_layout::kWindowLog, const std::string& behind = {}) const {
    const auto plain = std::as_bytes(std::span(records)).first(16 * records.size() - cut);
    std::string frame(::ZSTD_compressBound(plain.size()) + 64, '\0');
    ZSTD_CCtx* context = ::ZSTD_createCCtx();
    ::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    ::ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    ZSTD_inBuffer in{plain.data(), plain.size(), 0};
    ZSTD_outBuffer out{frame.data(), frame.size(), 0};
    ::ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);
    EXPECT_EQ(::ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0U);
    ::ZSTD_freeCCtx(context);
    frame.resize(out.pos);
    frame += behind;
    trace_layout::Checksum sum;
    sum.add(std::as_bytes(std::span(frame)));
    const std::uint64_t value = sum.value();
    frame.append(reinterpret_cast<const char*>(&value), sizeof value);
    const std::string whole = get(small_file());
    put(path("forged"), whole.substr(0, frame_at(whole)) + frame);
    const auto read = read_trace(path("forged"));
    return read ? Failure{Status::ok, {}, {}, {}} : read.error();
  }
  // The failure of a file whose fixed header was changed, its checksum made right again.
  template <class Change>
  Failure refused_with(const Change& change) const {
    std::string bytes = get(small_file());
    FixedHeader fixed;
    std::memcpy(&fixed, bytes.data(), sizeof fixed);
    change(fixed, bytes);
    fixed.checksum = 0;
    std::memcpy(bytes.data(), &fixed, sizeof fixed);
    const std::size_t covered = frame_at(bytes);
    trace_layout::Checksum sum;
    sum.add(std::as_bytes(std::span(bytes).first(std::min(covered, bytes.size()))));
    fixed.checksum = sum.value();
    std::memcpy(bytes.data(), &fixed, sizeof fixed);
    put(path("changed"), bytes);
    return refused(path("changed"));
  }
};

TEST_F(TraceFile, GivesBackWhatWasWritten) {
  std::mt19937_64 random(1);
  for (const TraceKind kind :
       {TraceKind::reference, TraceKind::fault, TraceKind::fetch, TraceKind::victim}) {
    for (const std::size_t count : {0U, 1U, 8191U, 8192U, 8193U, 100000U}) {
      TraceHeader header = header_of({1, 2, 0xffffffff});
      header.kind = kind;
      header.model = "/models/a b\n\xc3\xa4.gguf";
      std::vector<TraceRecord> records(count);
      for (TraceRecord& r : records) {
        const bool flag = kind == TraceKind::fault || kind == TraceKind::victim;
        r = {random(), static_cast<std::uint32_t>(random() % 3),
             static_cast<std::uint32_t>(flag ? random() % 2 : random())};
      }
      auto writer = TraceWriter::create(path("t"), header);
      ASSERT_TRUE(writer) << writer.error().line();
      // In pieces of all sizes, the empty one too.
      std::span<const TraceRecord> rest(records);
      for (std::size_t piece = 0; !rest.empty(); piece = piece * 2 + 1) {
        const std::size_t n = std::min(piece, rest.size());
        ASSERT_TRUE(writer->append(rest.first(n)));
        rest = rest.subspan(n);
      }
      EXPECT_EQ(writer->records(), count);
      ASSERT_TRUE(writer->finish());

      auto reader = TraceReader::open(path("t"));
      ASSERT_TRUE(reader) << reader.error().line();
      EXPECT_EQ(reader->header().kind, kind);
      EXPECT_EQ(reader->header().model, header.model);
      EXPECT_EQ(reader->header().model_bytes, header.model_bytes);
      EXPECT_EQ(reader->header().model_fingerprint, header.model_fingerprint);
      EXPECT_EQ(reader->header().config_hash, header.config_hash);
      EXPECT_EQ(reader->header().chunk_bytes, header.chunk_bytes);
      for (const std::size_t at_once : {1U, 7U, 100000U}) {
        const auto back = read_trace(path("t"), at_once);
        ASSERT_TRUE(back) << back.error().line();
        EXPECT_TRUE(*back == records);
      }
    }
  }
  EXPECT_THAT(files(), ElementsAre("t"));
}

TEST_F(TraceFile, ATraceThatEndsEndsAgain) {
  auto reader = TraceReader::open(small_file());
  ASSERT_TRUE(reader);
  std::vector<TraceRecord> all(1000);
  EXPECT_EQ(*reader->next(all), 200U);
  EXPECT_EQ(*reader->next(all), 0U);
  EXPECT_EQ(*reader->next(all), 0U);
  EXPECT_EQ(reader->bytes_read(), reader->file_bytes());
}

TEST_F(TraceFile, ThreadsMayHaveTakenTheirTimesInAnotherOrder) {
  const std::vector<TraceRecord> records{{50, 0, 1}, {40, 0, 2}, {60, 0, 1}};
  write_trace(path("t"), header_of({4096}), records);
  EXPECT_TRUE(*read_trace(path("t")) == records);
}

TEST_F(TraceFile, CutOffAnywhereIsRefused) {
  const std::string whole = get(small_file());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    put(path("cut"), whole.substr(0, n));
    const Failure failure = refused(path("cut"));
    ASSERT_EQ(failure.status, Status::malformed) << n << ": " << failure.line();
    EXPECT_EQ(exit_code(failure.status), 2);
    ASSERT_THAT(failure.line(), HasSubstr("offset ")) << n;
  }
}

TEST_F(TraceFile, ADamagedByteAnywhereIsRefused) {
  const std::string whole = get(small_file());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int damage : {1 << (i % 8), 0xff}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ damage);
      put(path("damaged"), damaged);
      const Failure failure = refused(path("damaged"));
      ASSERT_TRUE(failure.status == Status::malformed || failure.status == Status::unsupported)
          << "byte " << i << " xor " << damage << ": " << failure.line();
    }
  }
}

// Every checksum right: only the records themselves tell.
TEST_F(TraceFile, TheEndRecordIsChecked) {
  const auto end = [](std::uint64_t count) {
    return TraceRecord{count, trace_layout::kEndChunk, trace_layout::kEndMark};
  };
  const TraceRecord one{5, 1, 0};
  EXPECT_EQ(forged({one, one, end(2)}).status, Status::ok);  // the control
  EXPECT_EQ(forged({end(0)}).status, Status::ok);
  EXPECT_THAT(forged({one, one}).line(),
              HasSubstr("the records end after 2 without an end record"));
  EXPECT_THAT(forged({}).line(), HasSubstr("without an end record"));
  EXPECT_THAT(forged({one, end(2)}).line(), HasSubstr("end record: 2 records claimed, 1 read"));
  EXPECT_THAT(forged({one, end(1), one}).line(), HasSubstr("behind the end record"));
  EXPECT_THAT(forged({end(0), end(0)}).line(), HasSubstr("behind the end record"));
  EXPECT_THAT(forged({one, {2, trace_layout::kEndChunk, 0}}).line(), HasSubstr("record 1, chunk"));
  EXPECT_THAT(forged({one, {5, 5, 0}, end(2)}).line(), HasSubstr("record 1, chunk: chunk 5 of 5"));
  EXPECT_THAT(forged({one, one, end(2)}, 5).line(), HasSubstr("without an end record"));
  EXPECT_THAT(forged({one, one, end(2)}, 16).line(), HasSubstr("without an end record"));
  // Neither is a frame of another shape taken, nor a second one.
  EXPECT_THAT(forged({one, end(1)}, 0, 21).line(), HasSubstr("frame header"));
  for (const std::size_t more : {1U, 300000U}) {
    EXPECT_THAT(forged({one, end(1)}, 0, trace_layout::kWindowLog, std::string(more, 'x')).line(),
                HasSubstr("something behind the records"));
  }
}

TEST_F(TraceFile, AppendedBytesAreRefused) {
  const std::string whole = get(small_file());
  put(path("longer"), whole + '\0');
  EXPECT_EQ(refused(path("longer")).status, Status::malformed);
  put(path("twice"), whole + whole);
  EXPECT_EQ(refused(path("twice")).status, Status::malformed);
}

TEST_F(TraceFile, EveryFieldOfTheHeaderIsChecked) {
  const auto expect = [&](const char* field, const auto& change) {
    const Failure failure = refused_with(change);
    EXPECT_EQ(failure.status, Status::malformed) << failure.line();
    EXPECT_THAT(failure.why, testing::StartsWith("offset ")) << failure.line();
    EXPECT_THAT(failure.why, HasSubstr(field)) << failure.line();
    EXPECT_THAT(failure.what, HasSubstr("changed"));
  };
  using H = FixedHeader;
  expect("magic", [](H& h, auto&) { h.magic[3] = 'x'; });
  expect("byte_order", [](H& h, auto&) { h.byte_order = 7; });
  expect("version 0", [](H& h, auto&) { h.version = 0; });
  expect("header_bytes", [](H& h, auto&) { h.header_bytes = 96; });
  expect("record_bytes", [](H& h, auto&) { h.record_bytes = 24; });
  expect("kind", [](H& h, auto&) { h.kind = 0; });
  expect("kind", [](H& h, auto&) { h.kind = 5; });
  expect("model_text_bytes", [](H& h, auto&) { h.model_text_bytes = 0xffffffff; });
  expect("config_hash_bytes", [](H& h, auto&) { h.config_hash_bytes = 0xffffffff; });
  expect("cycle_chunks", [](H& h, auto&) { h.cycle_chunks = 6; });
  expect("passes", [](H& h, auto&) { h.passes = 0; });
  expect("passes", [](H& h, auto&) { h.cycle_chunks = 0; });
  expect("chunk_count", [](H& h, auto&) { h.chunk_count = 0xffffffff; });
  expect("chunks need", [](H& h, auto&) { h.chunk_count = 1U << 20; });
  expect("reserved", [](H& h, auto&) { h.reserved[0] = 1; });
  expect("reserved", [](H& h, auto&) { h.reserved[1] = 1; });
  expect("chunk_bytes", [](H& h, std::string& bytes) {
    const std::size_t table = sizeof h + h.model_text_bytes + h.config_hash_bytes;
    bytes.replace(table + 4, 4, 4, '\0');
  });
  // The control: no change, no failure.
  std::string bytes = get(small_file());
  put(path("unchanged"), bytes);
  EXPECT_TRUE(read_trace(path("unchanged")));
}

TEST_F(TraceFile, ANewerVersionAndTheOtherByteOrderAreToldFromDamage) {
  const Failure newer = refused_with([](FixedHeader& h, auto&) { h.version = 2; });
  EXPECT_EQ(newer.status, Status::unsupported);
  EXPECT_THAT(newer.line(), HasSubstr("version 2; this program reads up to 1"));

  // As the other kind of machine would write it.
  std::string bytes = get(small_file());
  const auto swap_at = [&](std::size_t offset, std::size_t n) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                 bytes.begin() + static_cast<std::ptrdiff_t>(offset + n));
  };
  for (std::size_t offset = 8; offset < 32; offset += 4)
    swap_at(offset, 4);
  put(path("foreign"), bytes);
  const Failure foreign = refused(path("foreign"));
  EXPECT_EQ(foreign.status, Status::unsupported);
  EXPECT_THAT(foreign.line(), HasSubstr("other byte order"));
  EXPECT_EQ(exit_code(foreign.status), 2);
}

TEST_F(TraceFile, AHeaderThatLiesTakesNoMemory) {
  small_file();
  const auto peak_kib = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto limited = [&] {
    const long before = peak_kib();
    // Its table would take 256 MiB.
    const Failure failure = refused_with([](FixedHeader& h, auto&) { h.chunk_count = 64U << 20; });
    if (failure.status != Status::malformed) return 1;
    return peak_kib() - before < (64L << 10) ? 0 : 2;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(limited());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(TraceFile, WhatIsNoTraceIsRefused) {
  EXPECT_EQ(refused(path("none")).status, Status::no_such_file);
  EXPECT_EQ(refused(folder_).status, Status::not_a_file);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(refused(path("pipe")).status, Status::not_a_file);  // and without waiting for a writer
  put(path("empty"), "");
  EXPECT_EQ(refused(path("empty")).status, Status::malformed);
  put(path("text"),
      "a text that is no trace, whatever its name says; longer than a header is, or "
      "than the checks could stop at");
  EXPECT_THAT(refused(path("text")).line(), HasSubstr("magic: this is no trace"));
  put(path("short"), "GGUF");
  EXPECT_THAT(refused(path("short")).line(), HasSubstr("magic: this is no trace"));
}

TEST_F(TraceFile, AFailureIsRepeatedNotReadPast) {
  std::string bytes = get(small_file());
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 1);
  put(path("damaged"), bytes);
  auto reader = TraceReader::open(path("damaged"));
  ASSERT_TRUE(reader);
  std::vector<TraceRecord> some(10);
  auto n = reader->next(some);
  for (int i = 0; n && i < 1000; ++i)
    n = reader->next(some);
  ASSERT_FALSE(n);
  const auto again = reader->next(some);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().line(), n.error().line());
}

// ---- The writer

TEST_F(TraceFile, ARecordThatNoReaderAcceptsIsNotWritten) {
  TraceHeader header = header_of({4096, 4096});
  auto writer = TraceWriter::create(path("t"), header);
  ASSERT_TRUE(writer);
  const std::vector<TraceRecord> records{{1, 1, 0}, {2, 2, 0}};
  const auto appended = writer->append(records);
  ASSERT_FALSE(appended);
  EXPECT_THAT(appended.error().line(), HasSubstr("record 1, chunk: chunk 2 of 2"));
  EXPECT_FALSE(writer->finish());
  header.kind = TraceKind::victim;
  auto victims = TraceWriter::create(path("v"), header);
  ASSERT_TRUE(victims);
  EXPECT_FALSE(victims->append(std::vector<TraceRecord>{{1, 1, 2}}));
}

TEST_F(TraceFile, AHeaderThatNoReaderAcceptsIsNotWritten) {
  const auto refuses = [&](const auto& change) {
    TraceHeader header = small_header();
    change(header);
    EXPECT_FALSE(TraceWriter::create(path("t"), header));
  };
  refuses([](TraceHeader& h) { h.kind = static_cast<TraceKind>(9); });
  refuses([](TraceHeader& h) { h.model.assign((64U << 10) + 1, 'x'); });
  refuses([](TraceHeader& h) { h.config_hash.assign(2000, 'x'); });
  refuses([](TraceHeader& h) { h.cycle_chunks = 6; });
  refuses([](TraceHeader& h) { h.passes = 0; });
  refuses([](TraceHeader& h) { h.cycle_chunks = 0; });
  refuses([](TraceHeader& h) { h.chunk_bytes[2] = 0; });
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(TraceFile, HasItsNameOnlyWhenItIsWhole) {
  small_file("t");
  const auto before = get(path("t"));
  {
    auto writer = TraceWriter::create(path("t"), small_header());
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(records_of({0, 1, 2})));
    EXPECT_EQ(get(path("t")), before);
    EXPECT_TRUE(std::filesystem::exists(path("t.part")));
  }
  EXPECT_THAT(files(), ElementsAre("t"));  // not finished: nothing is left behind
  EXPECT_EQ(get(path("t")), before);
  small_file("t");
  EXPECT_THAT(files(), ElementsAre("t"));
  EXPECT_TRUE(read_trace(path("t")));
}

// A model whose name was given by mistake is worth more than a trace.
TEST_F(TraceFile, ReplacesNothingButATrace) {
  for (const char* name : {"t", "t.part"}) {
    put(path(name), "a model of many gigabytes");
    const auto writer = TraceWriter::create(path("t"), small_header());
    ASSERT_FALSE(writer) << name;
    EXPECT_EQ(exit_code(writer.error().status), 2);
    EXPECT_EQ(get(path(name)), "a model of many gigabytes");
    std::filesystem::remove(path(name));
  }
  put(path("t"), "");  // what a crash or touch(1) leaves
  EXPECT_TRUE(TraceWriter::create(path("t"), small_header()));
}

TEST_F(TraceFile, WhatACrashLeftIsWrittenOver) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = TraceWriter::create(path("t"), small_header());
    const bool written = writer && writer->append(records_of(Ids(100000, 3)));
    ::_exit(written ? 0 : 1);  // no destructor runs
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(files(), ElementsAre("t.part"));
  small_file("t");
  EXPECT_THAT(files(), ElementsAre("t"));
  EXPECT_EQ(read_trace(path("t"))->size(), 200U);
}

TEST_F(TraceFile, TwoWritersOfOneTraceDoNotMix) {
  auto first = TraceWriter::create(path("t"), small_header());
  ASSERT_TRUE(first);
  const auto second = TraceWriter::create(path("t"), small_header());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().status, Status::write_failed);
  EXPECT_THAT(second.error().line(), HasSubstr("another program is writing this trace"));
  ASSERT_TRUE(first->finish());
  EXPECT_TRUE(read_trace(path("t")));
}

TEST_F(TraceFile, NothingIsAppendedToAFinishedTrace) {
  auto writer = TraceWriter::create(path("t"), small_header());
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->finish());
  EXPECT_FALSE(writer->append(records_of({0})));
  EXPECT_FALSE(writer->finish());
  EXPECT_TRUE(read_trace(path("t")));
}

TEST_F(TraceFile, CannotBeMadeWhereNoFileCanBe) {
  const auto status = [](const std::string& path) {
    const auto writer = TraceWriter::create(path, small_header());
    EXPECT_FALSE(writer) << path;
    return writer ? Status::ok : writer.error().status;
  };
  EXPECT_EQ(status(path("no/such/folder")), Status::write_failed);
  EXPECT_EQ(status(folder_), Status::not_a_file);
  EXPECT_EQ(status("/dev/full"), Status::not_a_file);
  EXPECT_EQ(status(""), Status::usage);
  EXPECT_EQ(status(path("") + "/"), Status::usage);
}

// Writes until it fails; 0 when it failed as it should, and left nothing behind.
int write_without_room(const std::filesystem::path& folder) {
  TraceHeader header = header_of({4096});
  std::mt19937_64 random(1);  // so that it does not compress
  {
    auto writer = TraceWriter::create(folder / "t", header);
    if (!writer) return 1;
    std::vector<TraceRecord> records(1000);
    bool failed = false;
    for (int i = 0; i < 1000 && !failed; ++i) {
      for (TraceRecord& r : records)
        r = {random(), 0, static_cast<std::uint32_t>(random())};
      const auto appended = writer->append(records);
      failed = !appended && appended.error().status == Status::write_failed;
      if (!appended && !failed) return 2;
    }
    if (!failed) return 3;
    const auto finished = writer->finish();
    if (finished || finished.error().status != Status::write_failed) return 4;
  }
  return std::filesystem::is_empty(folder) ? 0 : 5;
}

int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST_F(TraceFile, ALimitOnItsSizeFailsTheWriter) {
  EXPECT_EQ(in_child([&] {
              const rlimit limit{1U << 20, 1U << 20};
              std::signal(SIGXFSZ, SIG_IGN);
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 100;
              return write_without_room(folder_);
            }),
            0);
}

// A file system of one MiB, in a mount namespace of its own; as any user, where the kernel lets
// one.
TEST_F(TraceFile, AFullDiskFailsTheWriter) {
  constexpr int kNoMount = 77;
  const int code = in_child([&] {
    const bool apart = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!apart || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return kNoMount;
    }
    return write_without_room(folder_);
  });
  if (code == kNoMount) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(code, 0);
}

// ---- From files to references

class References : public Folder {
 protected:
  static Failure refused(const std::vector<std::string>& paths) {
    const auto references = read_references(paths);
    EXPECT_FALSE(references);
    return references ? Failure{Status::ok, {}, {}, {}} : references.error();
  }
};

TEST_F(References, AreThoseOfAllFilesInTurn) {
  write_trace(path("a"), cyclic_header({8, 8, 8}, 2), records_of({0, 1, 2, 0, 1, 2}));
  write_trace(path("b"), cyclic_header({8, 8, 8}, 1), records_of({2, 1, 0}));
  const std::vector<std::string> paths{path("a"), path("b")};
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  const auto all = read_references(paths, [&](std::uint64_t done, std::uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    total = of;
  });
  ASSERT_TRUE(all) << all.error().line();
  EXPECT_THAT(all->chunks, ElementsAre(0, 1, 2, 0, 1, 2, 2, 1, 0));
  EXPECT_EQ(all->header.cycle_chunks, 3U);
  EXPECT_EQ(all->header.passes, 3U);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, std::filesystem::file_size(path("a")) + std::filesystem::file_size(path("b")));

  // A part that is not cyclic makes the whole not cyclic.
  write_trace(path("c"), header_of({8, 8, 8}), records_of({0}));
  const auto mixed = read_references(std::vector<std::string>{path("a"), path("c")});
  ASSERT_TRUE(mixed);
  EXPECT_EQ(mixed->header.cycle_chunks, 0U);
  EXPECT_EQ(mixed->header.passes, 0U);
  const auto reversed = read_references(std::vector<std::string>{path("c"), path("a")});
  ASSERT_TRUE(reversed);
  EXPECT_EQ(reversed->header.passes, 0U);
}

TEST_F(References, AreNotTakenFromWhatThePagerDid) {
  for (const TraceKind kind : {TraceKind::fault, TraceKind::fetch, TraceKind::victim}) {
    TraceHeader header = header_of({8});
    header.kind = kind;
    write_trace(path("t"), header, records_of({0}));
    const Failure failure = refused({path("t")});
    EXPECT_EQ(failure.status, Status::usage);
    EXPECT_EQ(exit_code(failure.status), 2);
    EXPECT_THAT(failure.line(), HasSubstr(std::string(name(kind)) + " trace"));
  }
}

TEST_F(References, AreOfOneModel) {
  const TraceHeader first = header_of({8, 8});
  write_trace(path("a"), first, records_of({0}));
  const auto differs = [&](const char* field, const auto& change) {
    TraceHeader other = first;
    change(other);
    write_trace(path("b"), other, records_of({0}));
    const Failure failure = refused({path("a"), path("b")});
    EXPECT_EQ(failure.status, Status::usage);
    EXPECT_THAT(failure.line(), HasSubstr(field));
  };
  differs("model_bytes", [](TraceHeader& h) { ++h.model_bytes; });
  differs("model_fingerprint", [](TraceHeader& h) { ++h.model_fingerprint; });
  differs("number of chunks", [](TraceHeader& h) { h.chunk_bytes.push_back(8); });
  differs("size of chunk 1", [](TraceHeader& h) { ++h.chunk_bytes[1]; });
  // The name is for people, the settings may differ.
  TraceHeader same = first;
  same.model = "elsewhere/model.gguf";
  same.config_hash = "other";
  write_trace(path("b"), same, records_of({1}));
  EXPECT_TRUE(read_references(std::vector<std::string>{path("a"), path("b")}));
  EXPECT_EQ(refused({}).status, Status::usage);
}

TEST_F(References, DamageInAnyFileIsAFailure) {
  write_trace(path("a"), header_of({8}), records_of({0}));
  const std::string whole = get(path("a"));
  put(path("b"), whole.substr(0, whole.size() - 1));
  EXPECT_EQ(refused({path("a"), path("b")}).status, Status::malformed);
}

}  // namespace
}  // namespace resid::trace_test
