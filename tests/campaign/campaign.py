"""Plants faults in real training runs and judges how each run ends: its status, the rank it names, its time, what it leaves behind.

python3 campaign.py PROGRAM SOURCE_FOLDER [--transport threads|openmpi|mpich] [--share N]

With --share N only every N-th cell of each kind of fault runs, unless LOCKSTEP_CAMPAIGN=whole is in the environment. Prints a table,
and each cell that is wrong.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "cli"))
import processes
from processes import KILLED_BY_MPIRUN, MPIRUN, status_asked_for

TIMEOUT_S = 1
# Runs at once: with more, ranks that wait for a core are taken for ranks that hang.
AT_ONCE = 2
# Ranks and options of each technique. Two ranks cannot tell which of them is wrong, so most have more.
TECHNIQUES = {"ddp": (3, []), "ps": (3, []), "pipeline": (3, ["--micro-batches", "3"]), "tp": (2, []), "sp": (2, ["--tp-overlap"]),
              "ring-attention": (4, []), "ulysses": (2, []),
              "3d": (8, ["--tp", "2", "--pp", "2"])}
IN_A_RANK = ["throw", "delay", "hang", "skip", "count", "dtype", "op", "root", "order", "nan"]
OF_A_PROCESS = ["kill", "stop", "exit", "leave"]
MOMENTS = {"first": 0.0, "early": 0.3, "late": 0.7, "last": 1.0}
OLD_RESULT = "the result of an earlier run"

Cell = collections.namedtuple("Cell", "transport technique kind rank moment")
# How a run ended: its status (None: not in time), what it said, its output files, its seconds, what it left behind.
End = collections.namedtuple("End", "status said outputs seconds left")


def all_cells(transport):
    kinds = IN_A_RANK + (OF_A_PROCESS if transport != "threads" else [])
    for technique, (ranks, _) in TECHNIQUES.items():
        for kind, rank, moment in itertools.product(kinds, (0, ranks - 1), MOMENTS):
            yield Cell(transport, technique, kind, rank, moment)


def chosen(cells, share):
    """Every `share`-th cell of each kind of fault, beginning elsewhere for each, so that all axes are met."""
    groups = collections.defaultdict(list)
    for cell in cells:
        groups[cell.kind].append(cell)
    for number, group in enumerate(groups.values()):
        yield from group[number % share::share] or group[:1]


class Campaign:
    """Trainings with a fault, each in a folder of its own."""

    def __init__(self, program, source):
        golden = source / "tests" / "golden" / "tiny"
        self.program = program
        self.words = ["--model", golden / "config.json", "--init", golden / "init.safetensors", "--data", golden / "tokens.bin",
                      "--order", "sequential", "--global-batch", "12", "--steps", "2", "--timeout", str(TIMEOUT_S), "--json", "r.json",
                      "--trace", "t.json"]
        self.made = {}

    def run(self, transport, technique, fault):
        ranks, words = TECHNIQUES[technique]
        count = ["-np", str(ranks), self.program] if MPIRUN[transport] else [self.program]
        many = [] if MPIRUN[transport] else ["--ranks", str(ranks)]
        before, begin = processes.segments(), time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for output in ("r.json", "t.json"):
                (folder / output).write_text(OLD_RESULT)
            with open(folder / "said", "w") as said:
                try:
                    status = subprocess.run([*MPIRUN[transport], *count, "train", technique, *self.words, *words, *many, "--fault", fault],
                                            cwd=folder, stdout=said, stderr=said, timeout=60).returncode
                except subprocess.TimeoutExpired:
                    status = None
            seconds = time.monotonic() - begin
            outputs = {output: (folder / output).read_text() for output in ("r.json", "t.json")}
            left = [f"/dev/shm/{segment}" for segment in processes.segments_left(before, 10)]
            left += processes.still_left(lambda: self.leftovers(folder), 10)
            return End(status, (folder / "said").read_text(), outputs, seconds, left)

    @staticmethod
    def leftovers(folder):
        # A process that fails writes a trace of its own, t-RANK.json.
        left = [path.name for path in folder.iterdir() if path.name not in ("said", "out", "r.json") and not path.match("t*.json")]
        return left + [f"process {process}" for process in processes.processes_in(folder)]

    def operations(self, transport, technique, rank):
        """How many a rank makes: a fault after all of them is refused with their number."""
        key = (technique, rank, transport)
        if key not in self.made:
            said = self.run(transport, technique, f"rank={rank},op=1000000,kind=delay").said
            self.made[key] = int(re.search(r"made only (\d+) operations", said).group(1))
        return self.made[key]

    def judge(self, cell):
        """What is wrong with a cell, empty if nothing is; and how it ended."""
        operation = round(MOMENTS[cell.moment] * (self.operations(cell.transport, cell.technique, cell.rank) - 1))
        end = self.run(cell.transport, cell.technique, f"rank={cell.rank},op={operation},kind={cell.kind}")
        status = status_asked_for(end.status, end.said)
        wrong = []
        if status is None:
            wrong.append("no end")
        elif status == 2 and "no effect" in end.said:
            return [f"left {end.left}"] if end.left else [], end  # such a fault is refused
        elif status not in statuses(cell):
            wrong.append(f"status {status}")
        if end.seconds > TIMEOUT_S + 8:
            wrong.append(f"{end.seconds:.0f} s")
        if status != 0 and not names_culprit(cell, end.said):
            wrong.append("names another rank")
        if end.left:
            wrong.append(f"left {', '.join(end.left)}")
        for name, content in end.outputs.items():
            if content != OLD_RESULT and ((status != 0 and name != "t.json") or not is_json(content)):
                wrong.append(f"{name} is broken")
            if content == OLD_RESULT and status == 0:
                wrong.append(f"{name} is missing")
        return wrong, end


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def statuses(cell):
    killed = set(KILLED_BY_MPIRUN[cell.transport])
    if cell.kind == "delay":
        return {0}
    if cell.kind == "nan":
        return {0, 1, 2} | killed  # no effect, a loss that is no number, or no floating-point numbers there
    if cell.kind == "kill":
        return {137, 9}
    if cell.kind in ("skip", "count", "dtype", "op", "root", "order"):
        return {1, 4} | killed
    return {4} | killed


def names_culprit(cell, said):
    if cell.kind in ("nan", "kill") or (cell.transport == "mpich" and "[" not in said):
        return True  # a number has no rank; MPICH's mpirun lets nobody speak
    first = next((line for line in said.splitlines() if line.startswith("lockstep: ")), "")
    blamed = re.search(r"rank (\d+) (keeps|calls|has skipped|failed|has died|has ended)", first)
    if blamed:
        return int(blamed.group(1)) == cell.rank
    spoken = re.match(rf"lockstep: rank {cell.rank} of", first)  # its own error
    says_both = re.search("disagree|wait for each other|different calls", first) and re.search(rf"\branks? {cell.rank}\b", first)
    return bool(spoken or says_both)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--transport", choices=MPIRUN, default="threads")
    parser.add_argument("--share", type=int, default=1)
    options = parser.parse_args()
    campaign = Campaign(options.program.absolute(), options.source.absolute())
    share = 1 if os.environ.get("LOCKSTEP_CAMPAIGN") == "whole" else options.share
    table = collections.defaultdict(lambda: [0, 0])
    failures = 0
    cells = list(chosen(all_cells(options.transport), share))
    for cell, (wrong, end) in zip(cells, processes.at_once(AT_ONCE, campaign.judge, cells), strict=True):
        table[cell.kind][bool(wrong)] += 1
        failures += bool(wrong)
        if wrong:
            print(f"WRONG {' '.join(map(str, cell))}: {'; '.join(wrong)}\n{end.said}", flush=True)
    print(f"{options.transport:<8} {'right':>5} {'wrong':>5}")
    for kind, (right, bad) in table.items():
        print(f"{kind:<8} {right:>5} {bad:>5}")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
