#include "labs/gradebook/similar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"
#include "labs/gradebook/fingerprints.h"
#include "labs/grader/regions.h"
#include "labs/grader/submission.h"

namespace lockstep {
namespace {

struct Source {
  std::string student, name, text;
  std::map<std::uint64_t, Fingerprint> prints;  // by hash; of equal ones the first
};

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines.push_back(line);
  return lines;
}

// Adds lines to those before, if they go on.
void add_lines(std::vector<SimilarLines>& all, const SimilarLines& more) {
  if (!all.empty() && more.first_begin <= all.back().first_end + 1 &&
      more.second_begin <= all.back().second_end + 1 &&
      more.second_begin >= all.back().second_begin) {
    all.back().first_end = std::max(all.back().first_end, more.first_end);
    all.back().second_end = std::max(all.back().second_end, more.second_end);
  } else {
    all.push_back(more);
  }
}

class Comparison {
 public:
  Comparison(const LabFile& file, const std::string& source_folder) : file_(file) {
    for (const Fingerprint& print : all_fingerprints(tokens_of(cut(file, source_folder, false))))
      given_.insert(print.hash);
    add({}, our_solution, cut(file, source_folder, true));
  }

  void add(const std::string& student, const std::string& name, const std::string& text) {
    Source& source = sources_.emplace_back(Source{student, name, text, {}});
    for (const Fingerprint& print : kept_fingerprints(all_fingerprints(tokens_of(text))))
      if (!given_.contains(print.hash)) source.prints.try_emplace(print.hash, print);
    for (const auto& [hash, print] : source.prints) ++owners_[hash];
  }

  std::vector<SimilarPair> pairs() const {
    std::vector<SimilarPair> found;
    for (std::size_t i = 0; i < sources_.size(); ++i)
      for (std::size_t j = i + 1; j < sources_.size(); ++j)
        if (sources_[i].student != sources_[j].student) compare(sources_[i], sources_[j], found);
    return found;
  }

 private:
  void compare(const Source& first, const Source& second, std::vector<SimilarPair>& found) const {
    SimilarPair pair{.first = first.name, .second = second.name, .file = file_.name};
    std::vector<std::pair<Fingerprint, Fingerprint>> shared;
    for (const auto& [hash, print] : first.prints)
      if (const auto other = second.prints.find(hash); other != second.prints.end()) {
        shared.emplace_back(print, other->second);
        pair.rarity += 1.0 / (owners_.at(hash) - 1);
      }
    if (shared.empty()) return;
    pair.share = static_cast<double>(shared.size()) /
                 static_cast<double>(std::min(first.prints.size(), second.prints.size()));
    std::ranges::sort(shared, {}, [](const auto& each) {
      return std::tuple(each.first.first_line, each.first.last_line, each.second.first_line,
                        each.second.last_line);
    });
    for (const auto& [of_first, of_second] : shared)
      add_lines(pair.lines, {.first_begin = of_first.first_line,
                             .first_end = of_first.last_line,
                             .second_begin = of_second.first_line,
                             .second_end = of_second.last_line});
    pair.first_text = lines_in(first.text);
    pair.second_text = lines_in(second.text);
    found.push_back(std::move(pair));
  }

  const LabFile& file_;
  std::set<std::uint64_t> given_;
  std::vector<Source> sources_;
  std::map<std::uint64_t, int> owners_;
};

}  // namespace

SimilarSources similar_sources(const ClassFolder& all, const Lab& lab,
                               const std::string& source_folder, std::size_t most) {
  SimilarSources result;
  for (const LabFile& file : lab.files) {
    Comparison comparison(file, source_folder);
    for (const HandedIn& each : all.handed_in) {
      if (each.lab != &lab) continue;
      try {
        comparison.add(each.student, each.folder,
                       read_submitted(all.path + "/" + each.folder, file.name));
      } catch (const Error& error) {
        result.unreadable.emplace_back(error.what());
      }
    }
    for (SimilarPair& pair : comparison.pairs()) result.pairs.push_back(std::move(pair));
  }
  std::ranges::stable_sort(result.pairs, [](const SimilarPair& a, const SimilarPair& b) {
    return std::pair(a.rarity, a.share) > std::pair(b.rarity, b.share);
  });
  if (result.pairs.size() > most) result.pairs.resize(most);
  return result;
}

std::string table_of(const Lab& lab, const SimilarSources& similar) {
  std::string text = fmt::format("lab {}: {}\n  rarity  share  first | second: file, lines\n",
                                 lab.number, lab.title);
  for (const SimilarPair& pair : similar.pairs) {
    std::string lines;
    for (const SimilarLines& each : pair.lines)
      lines += fmt::format("{}{}-{} | {}-{}", lines.empty() ? "" : ", ", each.first_begin,
                           each.first_end, each.second_begin, each.second_end);
    text += fmt::format("  {:>6.2f}  {:>4.0f}%  {} | {}: {}, {}\n", pair.rarity, 100 * pair.share,
                        printable(pair.first), printable(pair.second), pair.file, lines);
  }
  return text + (similar.pairs.empty() ? "  no two resemble each other\n" : "");
}

}  // namespace lockstep
