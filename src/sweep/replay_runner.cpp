#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "sweep/process.hpp"
#include "sweep/runners.hpp"

namespace resid::sweep {
namespace {

constexpr std::uint64_t kRoomBeside = 64ULL << 20;  // left free beside the store

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

std::vector<std::string> replay_command(const SweepSettings& s, const Cell& cell,
                                        const std::string& store) {
  std::vector<std::string> command{"residctl", "replay"};
  const auto add = [&](std::string key, std::string value) {
    command.push_back(std::move(key));
    command.push_back(std::move(value));
  };
  if (store.empty()) {
    add("--model", s.model);
  } else {
    add("--store", store);
  }
  add("--chunk", fmt::format("{}", s.chunk));
  add("--ratio", ratio_text(cell.ratio));
  add("--arm", cell.arm);
  add("--passes", fmt::format("{}", s.passes));
  add("--threads", fmt::format("{}", s.threads));
  add("--compute-ns-per-mib", fmt::format("{}", s.compute_ns_per_mib));
  for (const auto& [key, value] : s.passed) {
    command.push_back(key);
    if (!value.empty()) command.push_back(value);
  }
  command.emplace_back("--json");
  return command;
}

CellRunner replay_runner(RunnerContext context, std::string store) {
  return [context = std::move(context), store = std::move(store)](const Cell& cell) -> Outcome {
    ProcessRequest request;
    request.path = context.self;
    request.command = replay_command(*context.settings, cell, store);
    request.stop = context.stop;
    if (context.tick) request.tick = [&](pid_t) { context.tick(); };
    auto result = run_process(request);
    if (!result) return {State::failed, result.error().line(), nullptr};
    if (result->stopped) return {State::stopped, {}, nullptr};
    return judge_replay(cell, result->exit_code, result->signal, result->out, result->err);
  };
}

Result<bool> make_store(const RunnerContext& context, const SweepFolder& folder,
                        const std::string& path) {
  const std::uint64_t bytes = *context.settings->size;
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) {
    // It gets its name when it is whole, so one of the right size is the right one; every cell
    // checks every byte that it reads anyway.
    if (S_ISREG(st.st_mode) && static_cast<std::uint64_t>(st.st_size) == bytes) return true;
    return fail(Status::usage, path, "is there, and is not the store of this sweep",
                "remove it, or give another folder with --store-dir");
  }
  struct statvfs room {};
  if (::statvfs(folder_of(path).c_str(), &room) == 0) {
    const std::uint64_t free = static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize;
    if (free < bytes + kRoomBeside) {
      return fail(
          Status::write_failed, path,
          fmt::format("{} are free, the store takes {}", format_bytes(free), format_bytes(bytes)),
          "make room, or give another folder with --store-dir");
    }
  }
  if (auto ok = folder.write(kStoreMark, path); !ok) return tl::unexpected(ok.error());
  ProcessRequest request;
  request.path = context.self;
  request.command = {"residctl", "replay", "--make-store",
                     path,       "--size", fmt::format("{}", bytes)};
  request.stop = context.stop;
  if (context.tick) request.tick = [&](pid_t) { context.tick(); };
  auto result = run_process(request);
  if (!result) return tl::unexpected(result.error());
  if (result->stopped) return false;
  if (result->exit_code != 0) {
    std::string words = last_words(result->err);
    if (words.starts_with("residctl: ")) words.erase(0, std::string_view("residctl: ").size());
    if (words.empty()) words = fmt::format("exit code {}", result->exit_code);
    return fail(Status::write_failed, path, words, "see its reason; then try again");
  }
  return true;
}

}  // namespace resid::sweep
