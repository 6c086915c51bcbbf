"""Starts processes under an MPI launcher, reads how they ended, and finds those that a test left behind."""

import os
import pathlib
import re
import time

MPIRUN = {"threads": [], "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
          "mpich": ["mpirun.mpich"]}
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
                command = (process / "cmdline").read_text()
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
