// The host as a device: ordinary memory, or shared memory that other processes map, and arithmetic
// in plain loops that the compiler vectorises.
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <new>
#include <type_traits>
#include <utility>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/float8.h"
#include "collectives/base/half.h"
#include "collectives/base/shared_heap.h"
#include "collectives/base/stores.h"
#include "collectives/base/with_type.h"

namespace lockstep {
namespace {

// Arithmetic on types of 16 and 8 bits is in f32, on all others in their own type.
template <typename T>
struct Arithmetic {
  using Wide = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
template <>
struct Arithmetic<Half> {
  using Wide = float;
  static float widen(Half value) { return to_float(value); }
  static Half narrow(float value) { return half_from_float(value); }
};
template <>
struct Arithmetic<BFloat16> {
  using Wide = float;
  static float widen(BFloat16 value) { return to_float(value); }
  static BFloat16 narrow(float value) { return bfloat16_from_float(value); }
};
template <int mantissa, int bias, std::uint32_t most>
struct Arithmetic<Float8<mantissa, bias, most>> {
  using Wide = float;
  using Narrow = Float8<mantissa, bias, most>;
  static float widen(Narrow value) { return to_float(value); }
  static Narrow narrow(float value) { return float8_from_float<Narrow>(value); }
};

// Signed overflow is undefined in C++; collectives wrap around, as MPI's and NCCL's do.
template <typename T, typename Function>
T wrapping(T a, T b, Function function) {
  if constexpr (std::is_integral_v<T>) {
    // At least unsigned int: narrower types would promote to int and overflow again.
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(function(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return function(a, b);
  }
}

template <typename T, typename Function>
void combine(T* __restrict into, const T* __restrict from, Count count, Function function) {
  using A = Arithmetic<T>;
  for (Count i = 0; i < count; ++i)
    into[i] = A::narrow(function(A::widen(into[i]), A::widen(from[i])));
}

template <typename T, typename Function>
void combine(T* __restrict into, const T* __restrict a, const T* __restrict b, Count count,
             Function function) {
  using A = Arithmetic<T>;
  for (Count i = 0; i < count; ++i) into[i] = A::narrow(function(A::widen(a[i]), A::widen(b[i])));
}

// Copies cache line by cache line. Measured: another core then reads the result up to twice as fast
// as after one memcpy.
void copy_bytes(std::byte* into, const std::byte* from, Count bytes) {
  constexpr Count line = 64;
  Count i = 0;
  for (; i + line <= bytes; i += line) std::memcpy(into + i, from + i, line);
  if (i < bytes) std::memcpy(into + i, from + i, static_cast<std::size_t>(bytes - i));
}

// Calls use(function), where function(a, b) reduces two values of type W.
template <typename W, typename Use>
void with_reduction(ReduceOp op, Use use) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return use([](W a, W b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
    case ReduceOp::prod:
      return use([](W a, W b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
    // Keeps a NaN of either operand, so that every rank sees it.
    case ReduceOp::min:
      return use([](W a, W b) { return b < a || b != b ? b : a; });
    case ReduceOp::max:
      return use([](W a, W b) { return a < b || b != b ? b : a; });
  }
}

std::atomic<SharedHeap*> shared_heap = nullptr;
std::atomic<bool> is_poisoned = false;

// Size of the last-level cache; a typical size if the system does not report it.
Count cache_bytes() {
  static const Count bytes = [] {
    constexpr Count usual_kib = Count{32} << 10;
    Count kib = 0;
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
    return (kib > 0 ? kib : usual_kib) << 10;
  }();
  return bytes;
}

class HostDevice final : public Device {
 public:
  std::string_view name() const override { return "host"; }
  bool is_host() const override { return true; }

  std::byte* allocate(Count bytes) override {
    constexpr Count small = 4096;
    if (SharedHeap* const heap = shared_heap.load(); heap && bytes >= small)
      if (std::byte* const memory = heap->allocate(bytes)) return poisoned(memory, bytes);
    auto* const memory = static_cast<std::byte*>(
        ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{64}));
    return poisoned(memory, bytes);
  }
  void release(std::byte* memory, Count bytes) noexcept override {
    poisoned(memory, bytes);
    if (SharedHeap* const heap = shared_heap.load(); heap && heap->holds(memory))
      return heap->release(memory);
    ::operator delete (memory, std::align_val_t{64});
  }

  void copy(Slice into, Slice from) override {
    if (Device* const other = other_device(into, from)) return other->copy(into, from);
    copy_bytes(into.data, from.data, from.bytes());
  }
  void zero(Slice data) override {
    std::memset(data.data, 0, static_cast<std::size_t>(data.bytes()));
  }

  void reduce(Slice into, Slice from, ReduceOp op) override {
    with_type(into.dtype, [&]<typename T>(T) {
      with_reduction<typename Arithmetic<T>::Wide>(op, [&](auto function) {
        combine(reinterpret_cast<T*>(into.data), reinterpret_cast<const T*>(from.data), into.count,
                function);
      });
    });
  }

  void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                  Count divisor) override {
    // Small enough that a block of all slices stays in the first-level cache.
    constexpr Count block_bytes = 8192;
    alignas(64) std::array<std::byte, block_bytes> result;
    const bool past_caches = outgrows_caches(into, from);
    const Count step = block_bytes / element_bytes(into[0].dtype);
    for (Count begin = 0; begin < into[0].count; begin += step) {
      const auto block = [&](const Slice& whole) {
        return whole.part(begin, std::min(step, into[0].count - begin));
      };
      Slice first = block(into[0]);
      if (past_caches) first.data = result.data();
      std::size_t taken = 1;
      if (first.data != block(from[0]).data) {
        if (from.size() == 1)
          copy(first, block(from[0]));
        else
          combine_two(first, block(from[0]), block(from[1]), op), ++taken;
      }
      for (const Slice& other : from.subspan(taken)) reduce(first, block(other), op);
      if (divisor > 1) divide(first, divisor);
      if (past_caches)
        for (const Slice& each : into)
          store_past_caches(block(each).data, first.data, first.bytes());
      else
        for (const Slice& other : into.subspan(1)) copy(block(other), first);
    }
    if (past_caches) stores_done();
  }

  void convert(Slice into, Slice from) override {
    if (Device* const other = other_device(into, from)) return other->convert(into, from);
    with_type(from.dtype, [&]<typename From>(From) {
      with_type(into.dtype, [&]<typename Into>(Into) {
        using Wide = typename Arithmetic<Into>::Wide;
        if constexpr (std::is_floating_point_v<Wide> &&
                      std::is_floating_point_v<typename Arithmetic<From>::Wide>) {
          const auto* values = reinterpret_cast<const From*>(from.data);
          auto* converted = reinterpret_cast<Into*>(into.data);
          for (Count i = 0; i < into.count; ++i)
            converted[i] =
                Arithmetic<Into>::narrow(static_cast<Wide>(Arithmetic<From>::widen(values[i])));
        } else {
          require(false, "integers cannot be converted on any device");
        }
      });
    });
  }

  void divide(Slice data, Count divisor) override {
    with_type(data.dtype, [&]<typename T>(T) {
      using A = Arithmetic<T>;
      T* values = reinterpret_cast<T*>(data.data);
      for (Count i = 0; i < data.count; ++i)
        values[i] = A::narrow(static_cast<typename A::Wide>(
            A::widen(values[i]) / static_cast<typename A::Wide>(divisor)));
    });
  }

 private:
  static std::byte* poisoned(std::byte* memory, Count bytes) {
    constexpr int of_nan = 0xff;  // the byte of a NaN in every floating-point type
    if (is_poisoned.load(std::memory_order_relaxed))
      std::memset(memory, of_nan, static_cast<std::size_t>(bytes));
    return memory;
  }
  // The other device of the two, which can reach the host's memory. Null if both are this one.
  Device* other_device(const Slice& into, const Slice& from) {
    Device* const other = into.device == this ? from.device : into.device;
    return other == this ? nullptr : other;
  }
  // Whether the results leave the caches before anyone reads them. Each of p ranks combines one
  // chunk, so all data together are p times these slices, and the caches also hold other data. In
  // place the destination was just read, so it is still cached.
  static bool outgrows_caches(std::span<const Slice> into, std::span<const Slice> from) {
    const auto all = static_cast<Count>((into.size() + from.size()) * into.size());
    return into[0].data != from[0].data && 4 * all * into[0].bytes() > 3 * cache_bytes();
  }
  static void combine_two(Slice into, Slice a, Slice b, ReduceOp op) {
    with_type(into.dtype, [&]<typename T>(T) {
      with_reduction<typename Arithmetic<T>::Wide>(op, [&](auto function) {
        combine(reinterpret_cast<T*>(into.data), reinterpret_cast<const T*>(a.data),
                reinterpret_cast<const T*>(b.data), into.count, function);
      });
    });
  }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

void poison_host_memory(bool is_poisoned_now) { is_poisoned.store(is_poisoned_now); }

void take_host_memory_from(SharedHeap& heap) { shared_heap.store(&heap); }

}  // namespace lockstep
