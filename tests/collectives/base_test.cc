#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "collectives/base/counters.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/float8.h"
#include "collectives/base/half.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "collectives/base/shared_heap.h"
#include "collectives/base/stores.h"
#include "collectives/base/trace.h"

namespace lockstep {
namespace {

TEST(Chunks, CoverEverythingOnceAndWrapAround) {
  for (int parts = 1; parts <= 9; ++parts) {
    for (const Count count : {Count{0}, Count{1}, Count{7}, Count{8}, Count{9}, Count{100}}) {
      const Chunks chunk({.count = count, .dtype = DType::f32}, parts);
      Count total = 0;
      for (int i = 0; i < parts; ++i) {
        total += chunk[i].count;
        EXPECT_LE(chunk[i].count, chunk.largest());
        EXPECT_EQ(chunk[i].data, chunk[i - parts].data);
        EXPECT_EQ(chunk[i].data, chunk[i + 3 * parts].data);
        EXPECT_EQ(chunk[i].data + chunk[i].bytes() == chunk[i + 1].data,
                  i + 1 < parts || count == 0);
      }
      EXPECT_EQ(total, count);
    }
  }
}

TEST(Half, EveryValueSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(half)))
      EXPECT_TRUE(std::isnan(to_float(half_from_float(to_float(half)))));
    else
      EXPECT_EQ(half_from_float(to_float(half)).bits, bits);
    if (std::isnan(to_float(brain)))
      EXPECT_TRUE(std::isnan(to_float(bfloat16_from_float(to_float(brain)))));
    else
      EXPECT_EQ(bfloat16_from_float(to_float(brain)).bits, bits);
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(to_float(bfloat16_from_float(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(to_float(bfloat16_from_float(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);
  EXPECT_EQ(to_float(half_from_float(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(to_float(half_from_float(1.0F + 0x3p-11F)), 1.0F + 0x1p-9F);
  EXPECT_EQ(to_float(half_from_float(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(to_float(half_from_float(65520.0F))));
  EXPECT_EQ(to_float(half_from_float(0x1p-25F)), 0.0F);
  EXPECT_EQ(to_float(half_from_float(0x3p-25F)), 0x1p-23F);
}

// A value's bits by the specification's formula.
double eight_bits(std::uint32_t bits, int mantissa, int bias) {
  const auto exponent = static_cast<int>((bits & 0x7f) >> mantissa);
  const double fraction = (bits & ((1u << mantissa) - 1)) / std::exp2(mantissa);
  const double size =
      exponent == 0 ? std::exp2(1 - bias) * fraction : std::exp2(exponent - bias) * (1 + fraction);
  return bits < 0x80 ? size : -size;
}

template <typename F>
class EightBits : public testing::Test {};
using EightBitTypes = testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(EightBits, EightBitTypes);

TYPED_TEST(EightBits, EveryValueIsThatOfTheFormulaAndSurvives) {
  using F = TypeParam;
  for (std::uint32_t bits = 0; bits < 0x100; ++bits) {
    const float value = to_float(F{static_cast<std::uint8_t>(bits)});
    if ((bits & 0x7f) > F::most) {
      EXPECT_EQ(std::isinf(value), F::mantissa == 2 && (bits & 0x7f) == 0x7c) << bits;
      EXPECT_NE(std::isinf(value), std::isnan(value)) << bits;
      EXPECT_EQ(std::signbit(value), bits >= 0x80);
      continue;
    }
    EXPECT_EQ(value, eight_bits(bits, F::mantissa, F::bias)) << bits;
    EXPECT_EQ(float8_from_float<F>(value).bits, bits);
  }
}

// Between two neighbours, the nearer one; in the middle, the one whose last bit is 0.
TYPED_TEST(EightBits, RoundsToNearestEvenAndStopsAtTheLargest) {
  using F = TypeParam;
  const auto rounded = [](double value) {
    return float8_from_float<F>(static_cast<float>(value)).bits;
  };
  for (std::uint8_t bits = 0; bits < F::most; ++bits) {
    const auto next = static_cast<std::uint8_t>(bits + 1);
    const double low = to_float(F{bits}), high = to_float(F{next}), middle = (low + high) / 2;
    EXPECT_EQ(rounded(middle), bits % 2 == 0 ? bits : next);
    EXPECT_EQ(rounded(middle - (high - low) / 64), bits);
    EXPECT_EQ(rounded(middle + (high - low) / 64), next);
    EXPECT_EQ(rounded(-middle - (high - low) / 64), 0x80 | next);
  }
  const double largest = to_float(F{F::most});
  for (const double large : {1.04 * largest, 2 * largest, 1e30, HUGE_VAL}) {
    EXPECT_EQ(rounded(large), F::most);
    EXPECT_EQ(rounded(-large), 0x80 | F::most);
  }
  EXPECT_TRUE(std::isnan(to_float(float8_from_float<F>(std::nanf("")))));
}

TEST(HostDevice, CombinesEightBitsInFloat) {
  std::vector<Float8E4M3> sum(2), terms(2);
  const auto store = [](std::vector<Float8E4M3>& to, float a, float b) {
    to = {float8_from_float<Float8E4M3>(a), float8_from_float<Float8E4M3>(b)};
  };
  const auto slice = [](std::vector<Float8E4M3>& of) {
    return Slice{reinterpret_cast<std::byte*>(of.data()), 2, DType::f8e4m3, &host_device()};
  };
  store(sum, 15, 400), store(terms, 1.5, 400);
  host_device().reduce(slice(sum), slice(terms), ReduceOp::sum);
  EXPECT_EQ(to_float(sum[0]), 16) << "16.5 lies between 16 and 18";
  EXPECT_EQ(to_float(sum[1]), 448);
  host_device().divide(slice(sum), 3);
  EXPECT_EQ(to_float(sum[0]), 5.5) << "5.33 lies between 5 and 5.5";
}

TEST(HostDevice, ConvertsBetweenFloatingTypes) {
  std::vector<double> values = {1, -0.5, 1 + 0x1p-9, 65504, 0};
  std::vector<std::uint16_t> halves(values.size()), brains(values.size());
  std::vector<double> back(values.size());
  Device& device = host_device();
  const Count n = std::ssize(values);
  const Slice half{reinterpret_cast<std::byte*>(halves.data()), n, DType::f16, &device};
  const Slice brain{reinterpret_cast<std::byte*>(brains.data()), n, DType::bf16, &device};
  device.convert(half, host_slice(std::span(values)));
  device.convert(host_slice(std::span(back)), half);
  EXPECT_EQ(back, values) << "f16 holds all of them";
  device.convert(brain, host_slice(std::span(values)));
  device.convert(host_slice(std::span(back)), brain);
  EXPECT_EQ(back, (std::vector<double>{1, -0.5, 1, 65536, 0})) << "bf16 rounds to 8 bits";
  std::vector<std::int32_t> integers(values.size());
  EXPECT_THROW(device.convert(host_slice(std::span(integers)), half), Error);
}

TEST(HostDevice, IntegersWrapAndNanIsKept) {
  std::vector<std::int8_t> a = {127, -128}, b = {1, -1};
  host_device().reduce(host_slice(std::span(a)), host_slice(std::span(b)), ReduceOp::sum);
  EXPECT_EQ(a, (std::vector<std::int8_t>{-128, 127}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : all_reduce_ops) {
    std::vector<float> x = {nan, 1}, y = {1, nan};
    host_device().reduce(host_slice(std::span(x)), host_slice(std::span(y)), op);
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1])) << name_of(op);
  }
}

TEST(Ledger, KeepsPeaksByUseAndInTotal) {
  Ledger ledger;
  {
    const Memory a(host_device(), &ledger, MemoryUse::parameters, 100);
    const Memory b(host_device(), &ledger, MemoryUse::gradients, 50);
  }
  Memory c(host_device(), &ledger, MemoryUse::gradients, 60);
  const Memory moved = std::move(c);
  EXPECT_EQ(ledger.bytes(MemoryUse::parameters), 0);
  EXPECT_EQ(ledger.bytes(MemoryUse::gradients), 60);
  EXPECT_EQ(ledger.peak_bytes(MemoryUse::parameters), 100);
  EXPECT_EQ(ledger.peak_bytes(MemoryUse::gradients), 60);
  EXPECT_EQ(ledger.peak_total_bytes(), 150);
}

TEST(Error, TextNamesRankOperationAndWhatToDo) {
  const Error error(ErrorKind::timeout, "timed out",
                    {.rank = 3,
                     .size = 8,
                     .failed_rank = 2,
                     .peer = 2,
                     .sequence = 6,
                     .operation = "all_reduce/ring over mpi",
                     .expected = "a message",
                     .got = "none in 30.0 s",
                     .hint = "look at rank 2"});
  EXPECT_STREQ(error.what(),
               "rank 3 of 8, all_reduce/ring over mpi #6: [timeout] timed out (expected a message, "
               "got none in 30.0 s); look at rank 2");
  EXPECT_EQ(error.exit_status(), 4);
}

TEST(Trace, IsJsonWithNestedSpansArrowsAndMemory) {
  double now_s = 0;
  Trace trace(2, [&] { return now_s += 1e-6; });
  trace.name_track(0, "compute");
  trace.name_unnamed(0, "messages");
  trace.name_unnamed(3, "unused");
  Ledger ledger;
  ledger.add(MemoryUse::activations, 64);
  {
    const Trace::Span outer(&trace, 0, "step \"1\"", "step");
    const Trace::Span inner(&trace, 0, "forward", "compute", 12);
    trace.flow_begin(0, "world:0>1:0", {64, "all_reduce/ring", 128, "gradients", 4096});
    trace.memory(ledger);
  }
  const auto file = nlohmann::json::parse(trace_file({trace.events()}));
  int spans = 0, arrows = 0, counters = 0;
  double outer_begin = 0, inner_begin = 0;
  for (const auto& event : file.at("traceEvents")) {
    spans += event.at("ph") == "X";
    arrows += event.at("ph") == "s" && event.at("id") == "world:0>1:0" &&
              event.at("args") == nlohmann::json{{"bytes", 64},
                                                 {"operation", "all_reduce/ring"},
                                                 {"operation_bytes", 128},
                                                 {"label", "gradients"},
                                                 {"address", 4096}};
    counters += event.at("ph") == "C" && event.at("args").at("activations") == 64;
    if (event.at("name") == "thread_name") {
      EXPECT_EQ(event.at("args").at("name"), "compute");
    }
    if (event.at("name") == "forward") inner_begin = event.at("ts");
    if (event.at("name") == "step \"1\"") outer_begin = event.at("ts");
  }
  EXPECT_EQ(spans, 2);
  EXPECT_EQ(arrows, 1);
  EXPECT_EQ(counters, 1);
  EXPECT_DOUBLE_EQ(outer_begin, 1);
  EXPECT_DOUBLE_EQ(inner_begin, 2);
}

TEST(Counters, AddByLabel) {
  Counters counters;
  counters.add_sent("gradients", 10);
  counters.add_sent("gradients", 5);
  counters.add_received("loss", 8);
  EXPECT_EQ(counters.by_label()["gradients"], (Volume{.sent_bytes = 15, .sent_messages = 2}));
  EXPECT_EQ(
      counters.total(),
      (Volume{.sent_bytes = 15, .received_bytes = 8, .sent_messages = 2, .received_messages = 1}));
}

TEST(Stores, PastTheCachesWriteWhatTheyAreToldAndNothingBeside) {
  for (const std::size_t before : {0, 1, 8, 63})
    for (const std::size_t bytes : {0, 1, 15, 64, 65, 127, 128, 1000}) {
      std::vector<std::byte> from(bytes + 3), into(bytes + 200);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
      store_past_caches(into.data() + before, from.data() + 3, static_cast<Count>(bytes));
      stores_done();
      for (std::size_t i = 0; i < into.size(); ++i) {
        const bool written = i >= before && i < before + bytes;
        ASSERT_EQ(into[i], written ? from[i - before + 3] : std::byte{}) << before << ", " << bytes;
      }
    }
}

TEST(HostDevice, CombinesWhatOutgrowsTheCaches) {
  constexpr Count many = 6'000'001;
  std::vector<std::uint32_t> a(many + 1, 1), b(many + 1, 2), sum(many + 2, 7), other(many + 2, 7);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint32_t>(i);
  const auto part = [&](std::vector<std::uint32_t>& all) {
    return host_slice(std::span(all)).part(1, many);
  };
  const Slice into[] = {part(sum), part(other)}, from[] = {part(a), part(b)};
  host_device().reduce_all(into, from, ReduceOp::sum, 1);
  EXPECT_EQ(sum, other);
  EXPECT_EQ(sum.front(), 7U);
  EXPECT_EQ(sum.back(), 7U);
  for (std::size_t i = 1; i <= many; ++i) ASSERT_EQ(sum[i], i + 2);
}

TEST(SharedHeap, GivesMemoryApartAndTakesItBack) {
  constexpr Count all = Count{1} << 20;
  SharedHeap heap(all);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::byte*> blocks;
    while (std::byte* const block = heap.allocate(10'000)) {
      EXPECT_TRUE(heap.holds(block));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
      std::memset(block, static_cast<int>(blocks.size()), 10'000);
      blocks.push_back(block);
    }
    EXPECT_GE(blocks.size(), 90U) << "nearly everything, every time";
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i][0], static_cast<std::byte>(i));
      EXPECT_EQ(blocks[i][9'999], static_cast<std::byte>(i));
      heap.release(blocks[i]);
    }
    std::byte* const large = heap.allocate(all - 10'000);
    ASSERT_NE(large, nullptr) << "released blocks are merged";
    heap.release(large);
  }
  EXPECT_EQ(heap.allocate(all + 1), nullptr);
  std::byte elsewhere{};
  EXPECT_FALSE(heap.holds(&elsewhere));
}

TEST(SharedHeap, IsSeenByWhoKnowsItsName) {
  SharedHeap heap(Count{1} << 20);
  std::byte* const block = heap.allocate(100);
  const SharedHeap::View view(heap.name());
  std::strcpy(reinterpret_cast<char*>(block), "written after the view was made");
  const std::byte* const seen = view.at(heap.offset(block));
  EXPECT_NE(seen, block);
  EXPECT_STREQ(reinterpret_cast<const char*>(seen), "written after the view was made");
  heap.release(block);

  SharedHeap::Name wrong = heap.name();
  wrong.file = 1'000'000;
  EXPECT_THROW(SharedHeap::View{wrong}, std::system_error);
  EXPECT_THROW(SharedHeap{-1}, std::system_error);
}

TEST(Printable, EscapesWhatATerminalObeysAndWhatIsNotUtf8) {
  struct {
    std::string_view text, shown;
  } const cases[] = {
      {"plain \u00e9 \U0001f600", "plain \u00e9 \U0001f600"},
      {"\x1b[31mred", "\\x1b[31mred"},
      {std::string_view("a\0b\x7f\n\t", 6), "a\\x00b\\x7f\\x0a\\x09"},
      {"\u0080\u009f\u00a0", "\\xc2\\x80\\xc2\\x9f\u00a0"},   // control characters of C1; a blank
      {"\xff\xc3(\xc3", "\\xff\\xc3(\\xc3"},                  // not UTF-8, or cut off
      {"\xc0\xaf\xe0\x80\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf"},  // in more bytes than needed
      {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"}};
  for (const auto& [text, shown] : cases) {
    EXPECT_EQ(printable(text), shown);
    EXPECT_EQ(printable(printable(text)), shown);
    EXPECT_TRUE(is_utf8(printable(text)));
  }
  EXPECT_EQ(printable("a\n\tb\r", /*keeps_lines=*/true), "a\n\tb\\x0d");
  EXPECT_TRUE(is_utf8("\x1b\n\u00e9"));
  EXPECT_FALSE(is_utf8("\u00e9\xff"));
  EXPECT_EQ(html_text("<b a=\"1\">&\x1b\n"), "&lt;b a=&quot;1&quot;&gt;&amp;\\x1b\n");
  EXPECT_EQ(markdown_cell("a|<b>\n\x1b"), "a\\|&lt;b&gt;<br>\\x1b");
}

// Why a text is refused; empty: it is not.
std::string refusal_of_json(const std::string& text, std::int64_t most_values = 100) {
  std::string reasons[2];
  const auto note = [&](std::string& reason, auto parse) {
    try {
      parse();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      reason = error.what();
    }
  };
  note(reasons[0], [&] { parse_json(text, "f.json", most_values); });
  note(reasons[1], [&] { parse_json<nlohmann::ordered_json>(text, "f.json", most_values); });
  EXPECT_EQ(reasons[0], reasons[1]);
  return reasons[0];
}

std::string nested(int depth, const std::string& begin, const std::string& end) {
  std::string text = "1";
  for (int i = 0; i < depth; ++i) text = begin + text + end;
  return text;
}

TEST(Json, OfUnknownOriginIsBounded) {
  for (const auto& [begin, end] : {std::pair("[", "]"), {"{\"a\":", "}"}, {"[{\"a\":", "}]"}}) {
    const int levels = begin[1] == '{' ? 16 : 32;
    EXPECT_EQ(refusal_of_json(nested(levels - 1, begin, end)), "");
    EXPECT_NE(refusal_of_json(nested(levels + 1, begin, end)).find("f.json: its values are nested"),
              std::string::npos);
  }
  EXPECT_NE(refusal_of_json("[1,2,3,4]", 4).find("f.json: it holds more than 4 values"),
            std::string::npos);
  EXPECT_EQ(refusal_of_json("[1,2,3,4]", 5), "");
  for (const char* twice :
       {R"({"a":1,"b":2,"a":1})", R"({"a":1,"\u0061":1})", R"([{"b":{"a":{},"a":2}}])"})
    EXPECT_NE(refusal_of_json(twice).find("f.json: an object has the name \"a\" twice"),
              std::string::npos);
  EXPECT_NE(refusal_of_json("{\"\\u001b[31m\":1,\"\\u001b[31m\":1}").find("\\u001b[31m"),
            std::string::npos);
  EXPECT_EQ(refusal_of_json(R"([{"a":1},{"a":1},{"b":{"a":1}}])"), "");
  for (const char* text : {"", "{", "[1", "{}x", "\"\xff\"", "1e999", "nan", "{'a':1}"})
    EXPECT_TRUE(parse_json(text, "f.json").is_discarded()) << text;
}

TEST(Json, IsWrittenAsUtf8) {
  const nlohmann::ordered_json value = {{"path", "a\xff\x1b"}};
  EXPECT_EQ(json_text(value), "{\n \"path\": \"a\ufffd\\u001b\"\n}\n");
  EXPECT_EQ(json_line(value), "{\"path\":\"a\ufffd\\u001b\"}");
  EXPECT_EQ(shown(value), "{\"path\":\"a\\ufffd\\u001b\"}");
  EXPECT_EQ(shown(nlohmann::json(std::string(1000, 'x'))).size(), 60U);
}

}  // namespace
}  // namespace lockstep
