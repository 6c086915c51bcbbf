"""Starts processes under an MPI launcher, reads how they ended, and finds what a test left behind. Runs several tests at once."""

import concurrent.futures
import os
import pathlib
import re
import sys
import time
import unittest

MPIRUN = {"threads": [], "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
          "mpich": ["mpirun.mpich"]}
# How many runs there are at once in tests that mostly wait. MPICH starts and ends its ranks without yielding their cores.
AT_ONCE = {"threads": 2, "openmpi": 4, "mpich": 2}
# MPICH's mpirun may kill a rank that is about to end with the same status, and then reports the kill.
KILLED_BY_MPIRUN = {"threads": [], "openmpi": [], "mpich": [9]}


def status_asked_for(status, said):
    """The status with which a rank ended the program. MPICH's mpirun prints it, and itself ends with 1 at times."""
    asked = re.search(r"application called MPI_Abort\(.*, (\d+)\)", said)
    return int(asked[1]) if asked else status


def processes_in(folder, program=""):
    """The ids of running processes whose working directory is `folder`, and whose program's path ends with `program`."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.readlink(process / "cwd") == str(folder):
                command = (process / "cmdline").read_text(errors="replace")
                if command and command.split("\0")[0].endswith(program):
                    found.append(process.name)
        except OSError:  # it has ended
            pass
    return found


def still_left(find, seconds):
    """What `find` returns once it finds nothing, or after so many seconds: what ends on its own is not left over."""
    deadline = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def segments():
    return set(os.listdir("/dev/shm"))


def mapped_segments():
    mapped = set()
    for process in os.listdir("/proc"):
        try:
            if process.isdigit():
                mapped.update(re.findall(r" /dev/shm/(\S+)", pathlib.Path("/proc", process, "maps").read_text(errors="replace")))
        except OSError:  # the process has ended, or is another user's
            pass
    return mapped


def segments_left(before, seconds):
    """The segments of shared memory that are new since `before` and that no process maps: others are of runs at the same time."""
    return still_left(lambda: segments() - before - mapped_segments(), seconds)


def at_once(number, function, items):
    """Yields what `function` returns for each item, with so many calls at once."""
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        yield from pool.map(function, items)


def all_pass(number, tests):
    """Runs so many tests at once, prints those that fail, and returns whether none does."""
    def run(test):
        result, start = unittest.TestResult(), time.monotonic()
        test.run(result)
        how = "FAILED" if not result.wasSuccessful() else "skipped" if result.skipped else "ok"
        print(f"{test.id()}: {how}, {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        for failed, trace in result.failures + result.errors:
            print(f"{failed}\n{trace}", file=sys.stderr, flush=True)
        return result.testsRun == 1 and result.wasSuccessful()

    passed = list(at_once(number, run, tests))
    return bool(passed) and all(passed)
