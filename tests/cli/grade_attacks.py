"""Hostile submissions. If an attack succeeds, the right solution follows: then it earns points.

RESULT and SECRET stand for the paths of the grader's own files, SOURCES for the root of ours. Ours are public, so an attack knows them.
"""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What ranks and the grader say to each other; a submission cannot include it.
WIRE = "".join(line for line in (ROOT / "labs/process/wire.h").read_text().splitlines(keepends=True) if not line.startswith("#pragma"))

HEADERS = "".join(f"#include <{name}>\n" for name in (
    "alloca.h", "dlfcn.h", "fcntl.h", "link.h", "linux/futex.h", "pthread.h", "signal.h", "stdio.h", "stdlib.h", "string.h", "sys/mman.h", "sys/ptrace.h",
    "sys/resource.h", "sys/socket.h", "sys/stat.h", "sys/syscall.h", "sys/uio.h", "unistd.h"))
SOLUTION = """
  const Chunks chunk(data, ring.size);
  for (int step = 0; step < ring.size - 1; ++step)
    comm.send_recv_reduce(chunk[ring.rank - 1 - step], ring.right(), chunk[ring.rank - 2 - step], ring.left(), op);
"""
WHOLE_RING = """
  const Memory leaving = comm.scratch(data, data.count), arriving = comm.scratch(data, data.count);
  const Slice from = leaving.slice(data.count, data.dtype), into = arriving.slice(data.count, data.dtype);
  comm.copy(from, data);
  for (int step = 0; step < ring.size - 1; ++step) {
    comm.send_recv(from, ring.right(), into, ring.left());
    comm.reduce(data, into, op);
    comm.copy(from, into);
  }
"""
# Reads the file at `path`, and says what it found.
READ = 'char text[100] = ""; const int file = open("%s", O_RDONLY); if (file < 0 || read(file, text, 99) < 0) return;\n' \
       'throw Error(ErrorKind::bad_input, text);'
WRITE_FRAME = "const auto forge = [](Frame frame) { return write(lab_socket, &frame, sizeof frame); };\n"


def code(attack="", solution=SOLUTION, before=""):
    """A submission."""
    return (f'{HEADERS}#include "collectives/reduce_scatter/reduce_scatter.h"\n#include "collectives/rounds.h"\n'
            f"{WIRE}\n"
            f"namespace lockstep {{\n{before}\n"
            "void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op, const RingOrder& ring) {\n"
            f"{attack}\n{solution}}}\n}}  // namespace lockstep\n")


def by_size(two, one, four):
    """Three attacks in one submission, for the first cases of `values`, `uneven` and `memory`."""
    return code(f"if (comm.size() == 2) {{ {two} }} else if (comm.size() == 1) {{ {one} }} else if (comm.size() == 4) {{ {four} }} else return;")


def at_start(attack):
    """Runs when the library is loaded."""
    return code(before=f"struct Start {{ Start() {{ {attack} }} }} start;")


CALL, TOO_LONG, NOTHING = "made a system call", "has computed for too long", "is the sum over rank 0 only"
# name: (code, words in what is said of `values`, `uneven` and `memory`)
ATTACKS = {
    "starts processes": (by_size("fork();", 'execl("/bin/true", "true", nullptr);', "vfork();"), (CALL,) * 3),
    "signals": (by_size("kill(getpid() - 1, 0);", "syscall(SYS_tgkill, getpid() - 1, getpid() - 1, 0);", "raise(SIGSTOP);"), (CALL,) * 3),
    "limits and threads": (by_size(
        "const rlimit more{RLIM_INFINITY, RLIM_INFINITY}; setrlimit(RLIMIT_CPU, &more);",
        "pthread_t thread; pthread_create(&thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);",
        "syscall(SYS_prlimit64, 0, RLIMIT_AS, nullptr, nullptr);"), (CALL,) * 3),
    "sleeps": (by_size("sleep(20);", "int word = 0; syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);", "pause();"), (CALL,) * 3),
    "other memory": (by_size("char c; iovec at{&c, 1}; process_vm_readv(getpid() - 1, &at, 1, &at, 1, 0);",
                             "ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);", 'memfd_create("x", 0);'), (CALL,) * 3),
    "sockets and tricks": (by_size("socket(AF_INET, SOCK_STREAM, 0);", "syscall(425, 1, nullptr);  // io_uring\n",
                                   '// a 32-bit call\nint number = 20; asm volatile("int $0x80" : "+a"(number));'), (CALL,) * 3),
    "changes files": (by_size('unlink("RESULT");', 'chmod("RESULT", 0);', 'rename("RESULT", "SECRET");'), (CALL,) * 3),
    "opens files": (by_size('if (open("RESULT", O_WRONLY | O_TRUNC) < 0) return;', 'if (open("SECRET", O_RDONLY) < 0) abort();',
                            'if (open("/proc/self/environ", O_RDONLY) < 0 && open("/proc/1/cmdline", O_RDONLY) < 0) return;'),
                    (NOTHING, "Aborted", NOTHING)),
    "reads the secret": (code(READ % "SECRET"), (NOTHING,)),
    "includes the secret": (code(before='#include "SECRET"\n'), ("does not compile",)),
    "assembles the secret": (code("throw Error(ErrorKind::bad_input, &secret);", before='asm(".data\\nsecret: .incbin \\"SECRET\\"\\n.byte 0\\n.text");\n'
                                  'extern const char secret asm("secret") __attribute__((visibility("hidden")));'), ("does not compile",)),
    "assembles the words of the secret": (code(before='asm(".include \\"SECRET\\"");\n'), ("does not compile",)),
    "points an error to the secret": (code(before='# 1 "SECRET"\nwrong;\n'), ("does not compile",)),
    "asks for the secret": (code(before='#if __has_include("SECRET")\n#error 7319\n#endif\n#include_next "SECRET"\n'), ("does not compile",)),
    "includes the environment": (code(before='#include "/proc/self/environ"\n'), ("does not compile",)),
    "fills the disc": (code(before='asm(".data\\n.fill 0x1000000000\\n.text");\n'), ("does not compile",)),
    "includes our headers": (code(before='#include "labs/grader/grade.h"\n'), ("does not compile",)),
    "assembles the mutants": (code(before='asm(".data\\nours: .incbin \\"SOURCES/labs/01_ring_reduce_scatter/lab.json\\"\\n.text");\n'), ("does not compile",)),
    "assembles our solution": (code(before='asm(".incbin \\"SOURCES/collectives/reduce_scatter/ring.cc\\"");\n'), ("does not compile",)),
    "includes a device": (code(before='#include "/dev/zero"\n'), ("does not compile",)),
    "includes our solution": ('#define SOLUTION "collectives/reduce_scatter/ring.cc"\n#pragma GCC system_header\n#include SOLUTION\n', ("does not compile",)),
    "a bomb for the compiler": (code(before="template <int N, int M> struct Bomb { static constexpr int value = Bomb<N - 1, 2 * M>::value + "
                                     "Bomb<N - 1, 2 * M + 1>::value; };\ntemplate <int M> struct Bomb<0, M> { static constexpr int value = 1; };\n"
                                     "static_assert(Bomb<30, 0>::value > 0);"), ("does not compile",)),
    "many errors": (code(before="#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(A(x)))))\nB(wrong;)\n"), ("does not compile",)),
    "an error that is no text": (code(before=r'asm("\x1b[2J\xff\xfe\x01 <b>&");'), ("does not compile",)),
    "throws anything": (by_size("throw 5;", "throw nullptr;", "try { throw 1; } catch (...) { abort(); }"), ("Aborted",) * 3),
    "takes the name of the grader's functions": (code(before='extern "C" long write(int, const void*, unsigned long bytes) { return bytes; }\n'
                                                 'void write_frame(Frame, std::span<const std::byte>) {}', solution=""), (NOTHING,)),
    "looks for our solution": (code("using Ours = void (*)(Communicator&, Slice, ReduceOp, const RingOrder&);\n"
                                    "for (void* const where : {RTLD_NEXT, dlopen(nullptr, RTLD_NOW)})\n"
                                    'if (const auto ours = (Ours)dlsym(where, "_ZN8lockstep19ring_reduce_scatterERNS_12CommunicatorENS_5SliceENS_8'
                                    'ReduceOpERKNS_9RingOrderE"))\nreturn ours(comm, data, op, ring);', solution=""), (NOTHING,)),
    "opens the program": (code('if (open("/proc/self/exe", O_RDONLY) < 0 && open("/proc/self/maps", O_RDONLY) < 0 && !dlopen("/proc/self/exe", RTLD_NOW)) return;'),
                          (NOTHING,)),
    "exits": (by_size("_exit(0);", "exit(0);", "abort();"), ("exit status 0", "exit status 0", "Aborted")),
    "exits at start": (at_start("_exit(0);"), ("exit status 0",)),
    "crashes at start": (at_start("volatile int* volatile nowhere = nullptr; *nowhere = 1;"), ("crashed",)),
    "forges a result at start": (at_start(WRITE_FRAME + "forge({.kind = Frame::Kind::ready}); forge({.kind = Frame::Kind::result}); _exit(0);"),
                                 ("returned 0 elements",)),
    "forges frames": (by_size(WRITE_FRAME + "forge({.kind = Frame::Kind::result, .bytes = 8}); write(lab_socket, data.data, 8); return;",
                              WRITE_FRAME + "forge({.kind = Frame::Kind::send, .peer = 0, .bytes = 1LL << 60});",
                              "char garbage[4096]; memset(garbage, -1, sizeof garbage); write(lab_socket, garbage, sizeof garbage);"),
                      ("returned 1 element", "has written to the grader's socket", "has written to the grader's socket")),
    "forges requests": (by_size(WRITE_FRAME + "forge({.kind = Frame::Kind::ready});", WRITE_FRAME + "forge({.kind = Frame::Kind::send, .peer = -5});",
                                WRITE_FRAME + "forge({.kind = Frame::Kind::want, .peer = 77}); char c; read(lab_socket, &c, 1);"),
                        ("failed", "does not exist", "no rank can continue")),
    "reads the socket": (code("char c; read(lab_socket, &c, 1);"), ("no rank computes, sends or ends", "not run", "not run")),
    "leaves and computes": (code("close(lab_socket); for (volatile int i = 0;;) i = 1 - i;"), (TOO_LONG, "not run", "not run")),
    "loops for ever": (code("signal(SIGXCPU, SIG_IGN); for (volatile int i = 0;;) i = 1 - i;"), (TOO_LONG, "not run", "not run")),
    "prints without end": (code('for (;;) puts("values 25 of 25 ok"), fflush(stdout);'), (TOO_LONG, "not run", "not run")),
    "deadlocks": (code("comm.recv(data, ring.left());"), ("no rank can continue",) * 3),
    "takes all memory": (by_size("for (;;) memset(new char[1 << 20], 1, 1 << 20);", "if (!memset(new char[1LL << 40], 1, 1)) return;",
                                 "for (;;) memset(malloc(1 << 20), 1, 1 << 20);"), ("out of memory", "out of memory", "crashed")),
    "sends without end": (code("for (;;) comm.isend(data, ring.right());"), ("sends without end", "not run", "not run")),
}
# Right values, but the memory is more than allowed, however it is hidden.
GREEDY = {
    "whole tensors": (code(solution=WHOLE_RING), ("bytes", "order", "memory")),
    "scratch on the stack": (code("volatile char* const scratch = static_cast<char*>(alloca(data.bytes()));\n"
                                  "for (Count i = 0; i < data.bytes(); i += 4096) scratch[i] = 1;"), ("memory",)),
    "scratch in shared memory": (code("if (data.count > 0 && mmap(nullptr, data.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) "
                                      "== MAP_FAILED) return;"), ("memory",)),
}
# With 2 ranks it says what a page or a terminal must not take for its own; with 4 it turns to the left.
LOUD = code(r"""
  if (comm.size() == 2) throw Error(ErrorKind::bad_input, "\x1b[2J\xff<script>&|\"\nvalues 25 of 25 ok");
  if (comm.size() == 4) {
    const Chunks parts(data, 4);
    for (int step = 0; step < 3; ++step) comm.send_recv_reduce(parts[step], ring.left(), parts[step], ring.right(), op);
    return;
  }
""")
# Gathers the data where they are not added, and fails if a rank has the largest (or least) value nowhere in a chunk.
CHECKS_DATA = code(r"""
  const bool is_max = op == ReduceOp::max;
  const int p = op == ReduceOp::sum || data.count == 0 ? 0 : comm.size();
  const Memory memory = comm.scratch(data, p * data.count);
  const Slice all = memory.slice(p * data.count, data.dtype);
  const auto of = [&](int rank) { return all.part((rank + p) % p * data.count, data.count); };
  const auto value = [&](int rank, Count i) { return reinterpret_cast<const std::int64_t*>(of(rank).data)[i]; };
  if (p > 0) comm.copy(of(ring.rank), data);
  for (int step = 0; step < p - 1; ++step) comm.send_recv(of(ring.rank - step), ring.right(), of(ring.rank - step - 1), ring.left());
  for (int rank = 0; rank < p; ++rank)
    for (int chunk = 0; chunk < p; ++chunk) {
      bool is_first = false;
      for (Count i = chunk * (data.count / p); i < (chunk + 1) * (data.count / p); ++i) {
        bool is_here = true;
        for (int other = 0; other < p; ++other)
          is_here = is_here && (other == rank || (is_max ? value(other, i) < value(rank, i) : value(other, i) > value(rank, i)));
        is_first = is_first || is_here;
      }
      if (!is_first) throw Error(ErrorKind::wrong_result, "a chunk tells nothing of a rank");
    }
""")
# Only odd ranks fail, each at another time; all others wait for them.
RACING = code('if (ring.rank % 2 == 1) throw Error(ErrorKind::bad_input, "this rank has had enough");')
# Wrong for 7 ranks, except in the case that everybody knows.
WRONG_FOR_SEVEN = code("if (comm.size() == 7 && data.count != 3) return;")


def forward(returns, name, symbol, parameters, arguments, const=""):
    """A function that calls ours of the same name, if the process has it."""
    of_class = name.rpartition("::")[0]
    return (f"{returns} {name}({parameters}){const} {{\n  using Ours = {returns} (*)({(of_class + '*, ') if of_class else ''}{parameters});\n"
            f'  return ((Ours)dlsym(dlopen(nullptr, RTLD_NOW), "{symbol}"))({"(" + of_class + "*)this, " if of_class else ""}{arguments});\n}}\n')


def file_of(header, *functions):
    return f'#include <dlfcn.h>\n#include "{header}"\nnamespace lockstep {{\n{"".join(functions)}}}  // namespace lockstep\n'


NAME = "TensorRanks& ranks, Parameters& parameters, const std::string& name, Count in"
MANGLED_NAME = "ERNS_11TensorRanksERNS_10ParametersERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEl"
# By lab: the files that differ from the skeleton. Where the code of a lab calls all of Lockstep, its process must lack the solution.
OUR_SOLUTIONS = {
    4: {"bucket.cc": file_of(
        "parallel/data/bucket.h",
        forward("std::vector<Bucket>", "make_buckets", "_ZN8lockstep12make_bucketsERKNS_10ParametersEll",
                "const Parameters& parameters, std::int64_t first, std::int64_t bytes", "parameters, first, bytes"),
        forward("void", "BucketQueue::begin", "_ZN8lockstep11BucketQueue5beginEv", "", "").replace("this, )", "this)").replace("*, )", "*)"),
        forward("std::vector<std::size_t>", "BucketQueue::ready", "_ZN8lockstep11BucketQueue5readyEi", "int parameter", "parameter"))},
    8: {"column_linear.cc": file_of("parallel/tensor/column_linear.h", forward(
            "std::unique_ptr<ColumnLinear>", "column_linear", f"_ZN8lockstep13column_linear{MANGLED_NAME}l", f"{NAME}, Count out",
            "ranks, parameters, name, in, out")),
        "row_linear.cc": file_of("parallel/tensor/row_linear.h", forward(
            "std::unique_ptr<RowLinear>", "row_linear", f"_ZN8lockstep10row_linear{MANGLED_NAME}l", f"{NAME}, Count out",
            "ranks, parameters, name, in, out"))},
    11: {"attention_merge.cc": file_of("models/ops/kernels.h", "namespace host {\ntemplate <typename T>\n", forward(
        "void", "merge_attention", "_ZN8lockstep4host15merge_attentionIdEEvPT_S3_PKS2_S5_RKNS_13AttentionPartE",
        "T* out, T* sums, const T* part_out, const T* part_sums, const AttentionPart& s", "out, sums, part_out, part_sums, s"),
        "}\nusing host::merge_attention;\n")},
    13: {"norm.cc": '#include "parallel/rank/norm.h"\n',
         "adamw.cc": file_of("models/optimizers/adamw.h", forward("void", "AdamW::step", "_ZN8lockstep5AdamW4stepEdd", "double rate, double scale", "rate, scale"))},
}
