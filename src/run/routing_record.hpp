#pragma once
// The routing trace of a run (`--routing`): what the program's routers chose, taken out of the
// spool and put in the order of tokens.
//
// A graph computes its layers one after the other, each for all tokens of a batch; a trace names
// token after token, each with all its layers. llama.cpp leaves out of the last layer those tokens
// of a prompt whose output nobody wants: they are not in the trace. Programs do not say which
// sequence or word a token belongs to, so all are of sequence 0, counted through, with id 0.

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/status.hpp"

namespace resid::run {

class RoutingRecord {
 public:
  // Makes the spool beside the run page and sees that `path` can be written.
  static Result<RoutingRecord> create(const std::string& path, const std::string& run_page_path);
  RoutingRecord(RoutingRecord&&) noexcept = default;
  RoutingRecord& operator=(RoutingRecord&&) = delete;
  ~RoutingRecord();  // removes the spool

  struct Counts {
    std::uint64_t tokens = 0;    // in the trace
    std::uint64_t left_out = 0;  // of prompts, without a last layer
  };
  // Writes the trace. nothing_mapped when no routing was seen, write_failed.
  Result<Counts> finish();

 private:
  RoutingRecord(std::string path, std::string spool, Fd fd)
      : path_(std::move(path)), spool_(std::move(spool)), fd_(std::move(fd)) {}
  std::string path_;
  std::string spool_;
  Fd fd_;
};

}  // namespace resid::run
