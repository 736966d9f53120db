#include "sweep/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "report/report_file.hpp"

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kJournal = "cells.jsonl";
constexpr const char* kLock = ".sweep.lock";

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0;
}

std::string setting(const Json& settings, const std::string& key) {
  return settings.contains(key) && settings[key].is_string() ? settings[key].get<std::string>()
                                                             : std::string("not given");
}

// For people: the separator of a command line's words is a control character.
std::string shown(std::string text) {
  std::replace(text.begin(), text.end(), '\x1f', ' ');
  return text;
}

// What differs, or empty.
std::string difference(const Json& before, const Json& now) {
  const auto compare = [&](const std::string& key) -> std::string {
    const std::string was = setting(before, key);
    const std::string is = setting(now, key);
    if (was == is) return {};
    return fmt::format("{} was {}, now {}", key, shown(was), shown(is));
  };
  for (const auto& [key, value] : now.items()) {
    if (const std::string text = compare(key); !text.empty()) return text;
  }
  for (const auto& [key, value] : before.items()) {
    if (const std::string text = compare(key); !text.empty()) return text;
  }
  return {};
}

// Makes the entry of a new file last through a power cut.
void sync_folder(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) ::fsync(folder.get());
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  auto file = ReportFile::prepare(path);
  if (!file) return tl::unexpected(file.error());
  return file->commit(text);
}

tl::unexpected<Failure> start_over(std::string path, std::string why) {
  return fail(Status::usage, std::move(path), std::move(why),
              "give another folder with --out, or --force to start over");
}

}  // namespace

const std::vector<std::string>& sweep_files() {
  static const std::vector<std::string> files{kManifest,
                                              kJournal,
                                              "control.json",
                                              "control.out",
                                              "cells.csv",
                                              "sweep.json",
                                              "report.html",
                                              "bytes-over-opt.svg",
                                              "throughput.svg",
                                              "bytes-read.svg",
                                              "wall-time.svg",
                                              "fault-p50.svg",
                                              "fault-p99.svg",
                                              std::string(kStoreFile),
                                              std::string(kStoreMark),
                                              "run-report.json"};
  return files;
}

Result<void> SweepFolder::prepare(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    return fail_errno(Status::write_failed, path, error ? error.value() : errno);
  }
  if (!S_ISDIR(st.st_mode)) {
    return fail(Status::usage, path, "is no folder", "give --out a folder");
  }
  return {};
}

Result<SweepFolder> SweepFolder::open(const std::string& path, const Json& manifest, bool force) {
  if (auto ok = prepare(path); !ok) return tl::unexpected(ok.error());
  SweepFolder folder;
  folder.path_ = path;
  folder.lock_.reset(
      ::open(folder.file(kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!folder.lock_) return fail_errno(Status::write_failed, path, errno);
  if (::flock(folder.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Status::usage, path, "another sweep is working in it",
                "wait for it, or give another folder with --out");
  }
  if (force) {
    folder.remove_store();
    for (const std::string& name : sweep_files()) {
      if (::unlink(folder.file(name).c_str()) != 0 && errno != ENOENT) {
        return fail_errno(Status::write_failed, folder.file(name), errno);
      }
    }
  }
  const bool has_manifest = exists(folder.file(kManifest));
  if (!has_manifest) {
    for (const std::string& name : sweep_files()) {
      if (!exists(folder.file(name))) continue;
      return start_over(folder.file(name),
                        "is there, but no manifest.json that says what it is of");
    }
    folder.manifest_ = manifest;
    if (auto ok = write_whole(folder.file(kManifest), manifest.dump(2) + "\n"); !ok) {
      return tl::unexpected(ok.error());
    }
    sync_folder(path);
  } else {
    const auto text = read_text(folder.file(kManifest));
    if (!text) return fail_errno(Status::unreadable, folder.file(kManifest), errno);
    folder.manifest_ = Json::parse(*text, nullptr, false);
    if (!folder.manifest_.is_object() || !folder.manifest_.contains("settings") ||
        !folder.manifest_["settings"].is_object()) {
      return start_over(folder.file(kManifest), "is damaged, or no sweep wrote it");
    }
    const std::string what = difference(folder.manifest_["settings"], manifest["settings"]);
    if (!what.empty()) {
      return fail(Status::usage, path, "holds a sweep of other settings: " + what,
                  "give the same settings, another folder with --out, or --force to start over");
    }
    folder.resumed_ = true;
  }
  if (auto ok = folder.read_records(); !ok) return tl::unexpected(ok.error());
  return folder;
}

Result<void> SweepFolder::read_records() {
  const std::string name = file(kJournal);
  journal_.reset(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0666));
  if (!journal_) return fail_errno(Status::write_failed, name, errno);
  sync_folder(path_);
  const auto text = read_text(name);
  if (!text) return fail_errno(Status::unreadable, name, errno);
  std::size_t at = 0;
  for (std::size_t line = 1; at < text->size(); ++line) {
    const std::size_t end = text->find('\n', at);
    const bool last = end == std::string::npos || end + 1 == text->size();
    Result<Record> record = fail(Status::malformed, name, "is cut off");
    if (end != std::string::npos) {
      record = parse_record(std::string_view(*text).substr(at, end - at));
    }
    if (!record) {
      if (!last) {
        return fail(Status::malformed, fmt::format("{} line {}", name, line), record.error().why,
                    "remove that line to run its cell again, or give --force to start over");
      }
      // The write of a cell that was never reported as finished.
      if (::ftruncate(journal_.get(), static_cast<off_t>(at)) != 0) {
        return fail_errno(Status::write_failed, name, errno);
      }
      dropped_ = true;
      break;
    }
    keep(std::move(*record));
    at = end + 1;
  }
  journal_bytes_ = at;
  return {};
}

void SweepFolder::keep(Record record) {
  const auto same = std::find_if(records_.begin(), records_.end(),
                                 [&](const Record& r) { return r.cell == record.cell; });
  if (same == records_.end()) {
    records_.push_back(std::move(record));
  } else {
    *same = std::move(record);
  }
}

Result<void> SweepFolder::append(const Record& record) {
  const std::string line = record_line(record);
  std::string_view rest = line;
  int error = 0;
  while (!rest.empty()) {
    const ssize_t n = ::write(journal_.get(), rest.data(), rest.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      error = errno;
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  if (error == 0 && ::fsync(journal_.get()) != 0) error = errno;
  if (error != 0) {
    (void)!::ftruncate(journal_.get(), static_cast<off_t>(journal_bytes_));
    return fail_errno(Status::write_failed, file(kJournal), error,
                      "make room; then the same command goes on with this cell");
  }
  journal_bytes_ += line.size();
  keep(record);
  return {};
}

void SweepFolder::remove_store() const {
  const auto store = read_text(file(kStoreMark));
  if (!store || !store->ends_with("/" + std::string(kStoreFile))) return;
  ::unlink(store->c_str());
  ::unlink(file(kStoreMark).c_str());
}

Result<void> SweepFolder::write(std::string_view name, std::string_view text) const {
  return write_whole(file(name), text);
}

}  // namespace resid::sweep
