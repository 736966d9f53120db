#pragma once
// The folder of one sweep: what was asked (manifest.json), what is done (cells.jsonl), what came
// out of it. Survives being killed at any moment.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/fd.hpp"
#include "base/status.hpp"
#include "sweep/record.hpp"

namespace resid::sweep {

// `manifest` must have the members `settings` (an object of strings, see identity()).
class SweepFolder {
 public:
  // Makes the folder where there is none and takes it for this process. A folder that holds a sweep
  // is gone on with when its settings are those of `manifest`, whose other members then are the
  // first call's; other settings are refused (usage, naming the first that differs). `force`
  // removes what an earlier sweep left, and nothing else, and starts over. write_failed where the
  // folder cannot be written, usage where another sweep is working in it or files of that name are
  // there that no sweep wrote, malformed where a line of cells.jsonl other than a torn last one is
  // damaged.
  static Result<SweepFolder> open(const std::string& path, const nlohmann::ordered_json& manifest,
                                  bool force);

  // Makes the folder alone, with what lies above it: usage or write_failed.
  static Result<void> prepare(const std::string& path);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  const nlohmann::ordered_json& manifest() const { return manifest_; }
  // What earlier calls finished, in order; a cell that was tried again has its last record only.
  const std::vector<Record>& records() const { return records_; }
  bool resumed() const { return resumed_; }
  // A last line was torn, by a power cut or a full disk, and has been dropped.
  bool dropped_torn_line() const { return dropped_; }

  // On disk when it returns. After write_failed the file is as it was before.
  Result<void> append(const Record& record);

  // Writes a file of the folder so that it is either whole or as before.
  Result<void> write(std::string_view name, std::string_view text) const;

  // Removes the store if this sweep, in whichever call, has made it.
  void remove_store() const;

 private:
  SweepFolder() = default;
  Result<void> read_records();
  void keep(Record record);
  std::string path_;
  nlohmann::ordered_json manifest_;
  std::vector<Record> records_;
  Fd lock_;
  Fd journal_;
  std::uint64_t journal_bytes_ = 0;
  bool resumed_ = false;
  bool dropped_ = false;
};

// The files that a sweep writes into its folder, and may therefore remove.
const std::vector<std::string>& sweep_files();

inline constexpr std::string_view kStoreFile = "store.bin";
// Holds the path of a store that this sweep has made and may remove.
inline constexpr std::string_view kStoreMark = "store.made";

}  // namespace resid::sweep
