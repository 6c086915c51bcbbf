"""Faults of one rank of four, on one transport: the rank named, the time until then, and no leftovers.

python3 faults_test.py FAULTS_PROGRAM threads|openmpi|mpich
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import processes

PROGRAM, TRANSPORT = pathlib.Path(sys.argv[1]), sys.argv[2]
MPIRUN = [] if TRANSPORT == "threads" else [*processes.MPIRUN[TRANSPORT], "-np", "4"]
TIMEOUT_S = 2
SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
# Messages of a dead process stay valid for half a second; other failures are reported at once.
BOUNDS_S = {"lost rank": 1, "mismatch": 1, "timeout": TIMEOUT_S + 1}
SLOWNESS = 4 if SANITIZED else 1
DEATHS = {"kill": "lost rank", "exit0": "lost rank", "exit3": "lost rank", "stop": "timeout"}
MISTAKES = {"throw": "lost rank", "count": "mismatch", "count_large": "mismatch", "dtype": "mismatch", "op": "mismatch", "root": "mismatch",
            "order": "mismatch", "order_large": "mismatch", "skip": "mismatch"}
# Rank 1 sends rank 2 another count than that rank expects. Nobody can tell which of them is wrong.
PAIRS = {"pair": "mismatch", "pair_empty": "mismatch", "pair_large": "mismatch"}
FAULTS = {**MISTAKES, **PAIRS, "absent": "timeout"} if TRANSPORT == "threads" else {**DEATHS, **MISTAKES, **PAIRS}
SPOKEN = re.compile(r"^error rank=(\d) failed=(-?\d+) sequence=(-?\d+) kind=(.*) time=(.*) in (.*)$", re.MULTILINE)


class Faults(unittest.TestCase):
    def run_with(self, fault, flags=()):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        # Memory that a killed process has not freed is no leak.
        environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        # Output goes to files: a process that outlives mpirun would keep a pipe open.
        with open(self.path / "said", "w") as said:
            status = subprocess.run([*MPIRUN, *flags, PROGRAM, fault, str(TIMEOUT_S)], cwd=self.path, stdout=said, stderr=said,
                                    env=environment, timeout=60).returncode
        return status, (self.path / "said").read_text()

    def check_error(self, fault, kind, said):
        """The surviving ranks report the same cause and the right operation, soon."""
        begun = float(re.search(r"^fault time=(.*) process", said, re.MULTILINE).group(1))
        errors = [e for e in SPOKEN.findall(said) if e[0] != "1"]
        self.assertEqual(sorted(e[0] for e in errors), ["0", "2", "3"], said)
        for rank, failed, sequence, spoken_kind, when, operation in errors:
            self.assertEqual((failed, spoken_kind), ("-1" if fault in PAIRS else "1", kind), said)
            self.assertLess(float(when) - begun, BOUNDS_S[kind] * SLOWNESS, said)
            # In a broadcast, ranks that need nothing from rank 1 continue and report it in the next operation; as do those that
            # agree with it on what they exchange.
            self.assertIn((sequence, operation.split("/")[0]), [("3", "broadcast"), ("4", "all_reduce")] if fault in ("root", "skip")
                          else [("3", "all_to_all_v"), ("4", "all_reduce")] if fault in PAIRS else [("3", "all_reduce")], said)
        if fault in PAIRS:
            self.assertRegex(said, r"rank 2 of 4, all_to_all_v/pairwise over \w+ #3: \[mismatch\] a message from rank 1 has the wrong size")
        if fault != "throw":  # it fails between operations
            self.assertRegex(said, r"over \w+ #3: \[")

    def check_flight(self, fault):
        files = sorted(self.path.glob("flight*.json"))
        ranks = set()
        for file in files:
            flight = json.loads(file.read_text())
            self.assertEqual(flight["schema"], "lockstep.flight/1")
            self.assertEqual(flight["error"]["failed_rank"], -1 if fault in PAIRS else 1)
            self.assertIn("disk on fire" if fault == "throw" else "#3", flight["error"]["verdict"])
            events = [e for e in flight["traceEvents"] if e["ph"] in "iB"]
            ranks |= {e["pid"] for e in events}
            for rank in {0, 2, 3} & {e["pid"] for e in events}:
                last = [e for e in events if e["pid"] == rank][-1]
                self.assertEqual(last["ph"], "B", "the rank was in an operation at the end")
                self.assertIn(last["args"]["sequence"], [3, 4] if fault in ("root", "skip", *PAIRS) else [3])
            if fault in ("absent", "stop"):
                self.assertIn("rank 1 never entered all_reduce/ring #3", flight["error"]["verdict"])
        self.assertLessEqual({0, 2, 3}, ranks)

    def check_nothing_is_left(self, segments_before):
        self.assertEqual(processes.still_left(lambda: processes.processes_in(self.path), 10), [], "processes are left over")
        self.assertEqual(processes.segments_left(segments_before, 10), set(), "shared memory is left over")
        self.assertEqual({p.name for p in self.path.iterdir() if not re.fullmatch(r"said|flight(-\d)?\.json", p.name)}, set(), "files are left over")

    def check_fault(self, fault, kind):
        before = processes.segments()
        # MPICH's mpirun kills the others before they can report, unless asked not to; after a kill it always does.
        spared = TRANSPORT == "mpich" and fault in ("exit0", "exit3")
        status, said = self.run_with(fault, ["-disable-auto-cleanup"] if spared else [])
        self.check_nothing_is_left(before)
        if spared or (fault, TRANSPORT) == ("exit0", "mpich"):
            self.assertIn("[lost rank]", said)
        else:
            self.assertNotEqual(status, 0, said)
        if (fault, TRANSPORT) != ("kill", "mpich"):
            self.check_error(fault, kind, said)
            self.check_flight(fault)


for fault, kind in FAULTS.items():
    setattr(Faults, f"test_{fault}", functools.partialmethod(Faults.check_fault, fault, kind))

if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Faults)
    sys.exit(not processes.all_pass(processes.AT_ONCE[TRANSPORT], tests))
