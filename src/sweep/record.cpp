#include "sweep/record.hpp"

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace resid::sweep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostWords = 300;
constexpr double kSameRatio = 0.01;  // budgets are whole pages
constexpr int kCensored = 4;         // exit code of an infeasible budget

Outcome failed(std::string reason, Json figures = nullptr) {
  return {State::failed, std::move(reason), std::move(figures)};
}

const Json* at(const Json& figures, const char* pointer) {
  if (!figures.is_object()) return nullptr;
  const Json::json_pointer where(pointer);
  if (!figures.contains(where)) return nullptr;
  return &figures.at(where);
}

// The first number in `value` that no measurement gives, by its name.
std::string absurd_number(const Json& value, const std::string& where) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      const std::string found = absurd_number(inner, where.empty() ? key : where + "." + key);
      if (!found.empty()) return found;
    }
  } else if (value.is_number() &&
             !(value.get<double>() >= 0 && std::isfinite(value.get<double>()))) {
    return where;
  }
  return {};
}

std::string text_at(const Json& figures, const char* pointer) {
  const Json* value = at(figures, pointer);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// Why figures that claim to be a result are none; empty when they may be believed.
std::string objection(const Cell& cell, const Json& figures) {
  if (const Json* schema = at(figures, "/schema"); schema == nullptr || *schema != 1) {
    return "its document is not of schema 1";
  }
  if (text_at(figures, "/arm") != cell.arm) {
    return fmt::format("it ran arm '{}'", text_at(figures, "/arm"));
  }
  const Json* ratio = at(figures, "/ratio");
  if (ratio == nullptr || !ratio->is_number() ||
      !(std::fabs(ratio->get<double>() - cell.ratio) <= kSameRatio)) {
    return fmt::format("it ran at another budget than {}", ratio_text(cell.ratio));
  }
  if (const std::string bad = absurd_number(figures, ""); !bad.empty()) {
    return fmt::format("'{}' is no possible figure", bad);
  }
  for (const char* field : {"/wall_s", "/bytes_read"}) {
    const Json* value = at(figures, field);
    // OPT is computed, not run.
    if (cell.arm == "OPT" && std::string_view(field) == "/wall_s") continue;
    if (value == nullptr || !value->is_number()) {
      return fmt::format("its document has no {}", field + 1);
    }
  }
  if (const Json* wrong = at(figures, "/mismatches");
      wrong != nullptr && wrong->is_number() && *wrong != 0) {
    return fmt::format("{} reads differed from the store", wrong->dump());
  }
  if (const Json* kept = at(figures, "/budget_kept"); kept != nullptr && *kept == false) {
    return "the budget was not kept";
  }
  // The kernel's own arms have no exact budget: their group's limit is one for everything. And of
  // an optimum that is not exact only a lower bound is known.
  const Json* floor = at(figures, "/floor_bytes");
  const Json* read = at(figures, "/bytes_read");
  const Json* exact = at(figures, "/opt_exact");
  const bool bounded =
      cell.arm == "OPT" ? exact != nullptr && *exact == true : cell.arm != "A" && cell.arm != "B";
  if (bounded && floor != nullptr && floor->is_number() &&
      read->get<double>() < floor->get<double>()) {
    return fmt::format("it read {}, less than the {} that any policy must", read->dump(),
                       floor->dump());
  }
  return {};
}

}  // namespace

std::string_view name(State state) {
  switch (state) {
    case State::done:
      return "done";
    case State::censored:
      return "censored";
    case State::failed:
      return "failed";
    case State::stopped:
      return "stopped";
  }
  return "?";
}

std::string record_line(const Record& r) {
  const Json line{{"schema", 1},
                  {"arm", r.cell.arm},
                  {"ratio", r.cell.ratio},
                  {"repeat", r.cell.repeat},
                  {"config_hash", r.config_hash},
                  {"state", name(r.outcome.state)},
                  {"reason", r.outcome.reason.empty() ? Json(nullptr) : Json(r.outcome.reason)},
                  {"elapsed_s", r.elapsed_s},
                  {"load", r.load},
                  {"figures", r.outcome.figures}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Record> parse_record(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  const auto bad = [](const char* why) { return fail(Status::malformed, "record", why); };
  if (!json.is_object()) return bad("not a JSON object");
  Record r;
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number() ? json[key].get<double>()
                                                       : std::numeric_limits<double>::quiet_NaN();
  };
  if (number("schema") != 1) return bad("not of schema 1");
  r.cell.arm = text_at(json, "/arm");
  r.cell.ratio = number("ratio");
  const double repeat = number("repeat");
  if (r.cell.arm.empty() || !(r.cell.ratio > 0) || !(repeat >= 1 && repeat <= 1e6)) {
    return bad("names no cell");
  }
  r.cell.repeat = static_cast<std::uint32_t>(repeat);
  r.config_hash = text_at(json, "/config_hash");
  r.outcome.reason = text_at(json, "/reason");
  const std::string state = text_at(json, "/state");
  if (state == name(State::done)) {
    r.outcome.state = State::done;
  } else if (state == name(State::censored)) {
    r.outcome.state = State::censored;
  } else if (state == name(State::failed)) {
    r.outcome.state = State::failed;
  } else {
    return bad("has no state");
  }
  if (!json.contains("figures")) return bad("has no figures");
  r.outcome.figures = json["figures"];
  if (r.outcome.state == State::done && !r.outcome.figures.is_object())
    return bad("has no figures");
  r.elapsed_s = number("elapsed_s");
  r.load = number("load");
  if (!std::isfinite(r.elapsed_s) || !std::isfinite(r.load)) return bad("has no times");
  return r;
}

double figure_of(const Record& record, const char* pointer) {
  const Json* value = at(record.outcome.figures, pointer);
  if (value != nullptr && value->is_number()) return value->get<double>();
  if (value != nullptr && value->is_boolean()) return value->get<bool>() ? 1 : 0;
  return std::numeric_limits<double>::quiet_NaN();
}

std::string last_words(std::string_view text) {
  std::string_view chosen;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (const std::size_t back = line.rfind('\r'); back != std::string_view::npos) {
      line.remove_prefix(back + 1);  // a rewritten line
    }
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const bool ours = line.starts_with("residctl: ");
    // A failure has the shape what : why : what to do; a remark has not.
    const bool failure = ours && line.find(" : ") != std::string_view::npos;
    const bool had_failure =
        chosen.starts_with("residctl: ") && chosen.find(" : ") != std::string_view::npos;
    if (failure || !had_failure) chosen = line;
  }
  std::string out;
  for (const char c : chosen.substr(0, kMostWords)) {
    out += (c >= 0 && c < ' ') || c == 0x7F ? '?' : c;
  }
  // JSON wants UTF-8: what is not becomes a replacement character there; a cut one is cut off.
  while (chosen.size() > kMostWords && !out.empty() && (out.back() & 0x80) != 0)
    out.pop_back();
  return out;
}

Outcome judge_replay(const Cell& cell, int exit_code, int signal, std::string_view out,
                     std::string_view err) {
  const std::string words = last_words(err);
  if (signal != 0) {
    return failed(fmt::format("killed by signal {}{}{}", signal, words.empty() ? "" : ": ", words));
  }
  Json figures = Json::parse(out, nullptr, false);
  const bool document = figures.is_object();
  if (exit_code == kCensored) {
    std::string reason = document ? text_at(figures, "/censored_reason") : std::string();
    if (reason.empty()) reason = words.empty() ? "infeasible at this budget" : words;
    return {State::censored, std::move(reason), document ? std::move(figures) : Json(nullptr)};
  }
  if (exit_code != 0) {
    return failed(words.empty() ? fmt::format("exit code {}", exit_code) : words);
  }
  if (!document) return failed("it printed no JSON document");
  if (const Json* censored = at(figures, "/censored"); censored != nullptr && *censored == true) {
    std::string reason = text_at(figures, "/censored_reason");
    return {State::censored, reason.empty() ? "censored" : std::move(reason), std::move(figures)};
  }
  if (std::string why = objection(cell, figures); !why.empty()) {
    return failed(std::move(why), std::move(figures));
  }
  return {State::done, {}, std::move(figures)};
}

}  // namespace resid::sweep
