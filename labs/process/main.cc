// One rank of a lab: loads a library of a lab's code after it has confined itself, and runs it on data that
// the grader sends. Started by the grader only: lockstep_lab_process LIBRARY
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "labs/functions.h"
#include "labs/process/socket_transport.h"
#include "labs/sandbox.h"
#include "parallel/pipeline/schedules/text.h"

namespace lockstep {
namespace {

template <typename T>
T read_value() {
  T value;
  read_content({reinterpret_cast<std::byte*>(&value), sizeof value});
  return value;
}

// Opened before the process is confined.
int status_file = -1;

// Address space, which is what the limit of memory counts: VmSize now, VmPeak at most so far.
std::int64_t address_bytes(const char* name) {
  std::array<char, 4096> text{};
  if (pread(status_file, text.data(), text.size() - 1, 0) < 0) return 0;
  const char* const found = std::strstr(text.data(), name);
  return found ? std::strtoll(found + std::strlen(name), nullptr, 10) * 1024 : 0;
}

std::int64_t bytes_when_ready = 0;

void finish(Frame::Kind kind, std::span<const std::byte> content) {
  write_frame({.kind = kind, .number = address_bytes("VmPeak:") - bytes_when_ready}, content);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void run_schedule(const LabFunctions& functions, const LabJob& job) {
  using enum LabJob::Kind;
  const PipelineShape shape{.ranks = job.ranks, .micro_batches = job.micro_batches};
  const auto make = job.kind == gpipe         ? functions.gpipe
                    : job.kind == one_f_one_b ? functions.one_f_one_b
                    : job.kind == zb_h1       ? functions.zb_h1
                                              : functions.zb_h2;
  finish(Frame::Kind::result, bytes_of(csv_of(make(shape))));
}

void run_collective(const LabFunctions& functions, const LabJob& job, Slice data, Slice out) {
  using enum LabJob::Kind;
  Ledger ledger;
  Communicator comm(socket_transport(job.rank, job.ranks), {.ledger = &ledger});
  if (job.kind == answer_on_rank)
    return finish(Frame::Kind::result,
                  bytes_of(functions.answer_on_rank(comm, host_span<const std::int64_t>(data))));
  if (job.kind == reduce_scatter) functions.reduce_scatter(comm, data, job.op);
  if (job.kind == all_gather) functions.all_gather(comm, data);
  if (job.kind == all_reduce) functions.all_reduce(comm, data, job.op);
  if (job.kind == all_to_all) functions.all_to_all(comm, out, data);
  const Slice result = out.count > 0 ? out : data;
  finish(Frame::Kind::result, {result.data, static_cast<std::size_t>(result.bytes())});
}

void run(const std::string& library) {
  read_frame();
  const auto job = read_value<LabJob>();
  const Count count = job.is_schedule() ? 0 : job.count;
  const Memory data(host_device(), nullptr, MemoryUse::workspace, count * 8);
  const Memory out(host_device(), nullptr, MemoryUse::workspace,
                   job.kind == LabJob::Kind::all_to_all ? count * 8 : 0);
  read_content({data.data(), static_cast<std::size_t>(data.bytes())});
  if (out.bytes() > 0) std::memset(out.data(), 0xff, static_cast<std::size_t>(out.bytes()));
  status_file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  restrict_files({library}, {});
  limit_process({.memory_bytes = job.memory_bytes});
  restrict_system_calls();
  const LabFunctions functions = load_functions(library);
  write_frame({.kind = Frame::Kind::ready}, {});
  read_frame();
  bytes_when_ready = address_bytes("VmSize:");
  if (job.is_schedule()) return run_schedule(functions, job);
  const auto problem = host_span<const std::int64_t>(data.slice(count, DType::i64));
  if (job.kind == LabJob::Kind::causes)
    return finish(Frame::Kind::result,
                  bytes_of(functions.causes ? functions.causes(job.rank, job.ranks, problem) : ""));
  if (job.is_alone()) return finish(Frame::Kind::result, bytes_of(functions.answer(problem)));
  run_collective(functions, job, data.slice(count, DType::i64),
                 out.slice(out.bytes() / 8, DType::i64));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    lockstep::run(argv[1]);
    return 0;
  } catch (const lockstep::Error& error) {
    lockstep::finish(lockstep::Frame::Kind::fault, lockstep::bytes_of(error.what()));
  } catch (const std::bad_alloc&) {
    lockstep::finish(lockstep::Frame::Kind::fault, lockstep::bytes_of("out of memory"));
  } catch (const std::exception& error) {
    lockstep::finish(lockstep::Frame::Kind::fault, lockstep::bytes_of(error.what()));
  }
  return 1;
}
