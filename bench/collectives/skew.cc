#include "bench/collectives/skew.h"

#include <charconv>
#include <cmath>
#include <numeric>

#include "bench/collectives/collective.h"
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/base/checksum.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

// Reads one matrix. Lines and columns count from 1.
class MatrixReader {
 public:
  MatrixReader(const std::string& path, int ranks, DType widest)
      : path_(path), ranks_(ranks), widest_(widest) {}

  std::vector<Count> read(std::string_view text) {
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    for (line_ = 1; !text.empty(); ++line_) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      if (line_ > ranks_) refuse(1, fmt::format("more lines than the {} ranks", ranks_));
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (line_ <= ranks_)
      refuse(1, fmt::format("the file ends after {} of {} lines", line_ - 1, ranks_));
    return std::move(bytes_);
  }

 private:
  void read_line(std::string_view line) {
    constexpr std::string_view blanks = " \t\r";
    int sizes = 0;
    std::size_t begin = line.find_first_not_of(blanks);
    while (begin < line.size()) {
      const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
      if (++sizes > ranks_) refuse(begin + 1, fmt::format("more sizes than the {} ranks", ranks_));
      bytes_.push_back(size(line.substr(begin, end - begin), begin + 1));
      begin = std::min(line.find_first_not_of(blanks, end), line.size());
    }
    if (sizes < ranks_)
      refuse(line.size() + 1, fmt::format("the line ends after {} of {} sizes", sizes, ranks_));
  }
  Count size(std::string_view word, std::size_t column) const {
    const std::optional<std::int64_t> bytes = bytes_from(word);
    if (!bytes) refuse(column, fmt::format("'{}' is not a number of bytes", word));
    if (*bytes > most_buffer_bytes)
      refuse(column, fmt::format("{} is more than {}", word, most_buffer_bytes));
    if (*bytes % element_bytes(widest_) != 0)
      refuse(column, fmt::format("{} bytes are no whole elements of {}", word, name_of(widest_)));
    return *bytes;
  }
  [[noreturn]] void refuse(std::size_t column, const std::string& what) const {
    throw Error(ErrorKind::bad_input,
                fmt::format("--matrix {}, line {}, column {}: {}", path_, line_, column, what),
                {.hint = "write a line for each sending rank, with the bytes for each receiving "
                         "rank; K, M and G are powers of 1024"});
  }

  const std::string& path_;
  int ranks_, line_ = 0;
  DType widest_;
  std::vector<Count> bytes_;
};

}  // namespace

Skew skew_from_name(std::string_view text) {
  if (text == "uniform") return {};
  constexpr std::string_view zipf = "zipf:";
  Skew skew;
  const std::string_view number = text.starts_with(zipf) ? text.substr(zipf.size()) : "";
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), skew.zipf);
  constexpr double most = 16;
  require(!number.empty() && code == std::errc{} && end == number.data() + number.size() &&
              skew.zipf > 0 && skew.zipf <= most,
          fmt::format("--skew '{}'", text),
          fmt::format("choose uniform, or zipf:S with 0 < S <= {}", most));
  skew.name = fmt::format("zipf:{:g}", skew.zipf);
  return skew;
}

Skew read_matrix(const std::string& path, int ranks, std::span<const DType> dtypes) {
  constexpr std::int64_t most_text = std::int64_t{1} << 26;
  const DType widest = *std::ranges::max_element(dtypes, {}, element_bytes);
  std::vector<Count> bytes = MatrixReader(path, ranks, widest).read(read_text(path, most_text));
  const Count total = std::accumulate(bytes.begin(), bytes.end(), Count{0});
  const std::string_view contents(reinterpret_cast<const char*>(bytes.data()),
                                  bytes.size() * sizeof(Count));
  Skew skew{.mean_bytes = total / ranks, .name = fmt::format("matrix-{:016x}", checksum(contents))};
  skew.bytes = CountMatrix(ranks, std::move(bytes));
  return skew;
}

CountMatrix counts_of(const Skew& skew, Count count, int ranks, Count element_bytes) {
  if (!skew.bytes.empty()) return skew.bytes.divided_by(element_bytes);
  if (skew.zipf == 0) return {};
  std::vector<double> up_to(static_cast<std::size_t>(ranks) + 1);  // sums of the weights
  for (int j = 0; j < ranks; ++j) up_to[j + 1] = up_to[j] + std::pow(j + 1, -skew.zipf);
  // Every rank's chunks end where the shares do, rounded down, so that they sum to `count`.
  const auto end = [&](int chunks) {
    return chunks == ranks
               ? count
               : static_cast<Count>(static_cast<double>(count) * up_to[chunks] / up_to[ranks]);
  };
  std::vector<Count> row;
  for (int j = 0; j < ranks; ++j) row.push_back(end(j + 1) - end(j));
  return CountMatrix(ranks, std::move(row));
}

std::string described(const Skew& skew, const Problem& problem) {
  if (problem.counts.empty()) return "";
  const Busiest most = busiest(problem);
  return fmt::format(
      "{}: rank {} is the busiest, it {} {} bytes {} others, {:.3g} times what a rank sends on "
      "average",
      skew.name, most.rank, most.receives ? "receives" : "sends",
      most.elements * problem.element_bytes, most.receives ? "from" : "to",
      static_cast<double>(most.elements) / static_cast<double>(std::max<Count>(1, problem.count)));
}

}  // namespace lockstep
