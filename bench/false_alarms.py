"""How far `lockstep compare` can be trusted on this machine: measures the same sweep again and again and compares each with
the one before. Every row called slower is a false alarm. Then slows a copy by 10 %: every row not called slower is missed.

python3 bench/false_alarms.py PROGRAM [--sweeps N] [FLAG OF lockstep bench all_reduce ...]
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

SLOWDOWN = 1.1
DEFAULT = ["--ranks", "2", "-b", "4K", "-e", "1M", "-f", "4", "-n", "10", "-w", "2", "--repetitions", "300", "--algorithm",
           "ring,recursive_doubling"]


def row_of(entry):
    """The name of an entry's row in the table of compare."""
    return re.sub(r"/(iterations:\d+|repeats:\d+|manual_time)", "", entry["run_name"])


def write_slower(source, target, rows=None):
    """A copy whose samples are slower: those of all rows, or of the given ones."""
    file = json.loads(source.read_text())
    for entry in file["benchmarks"]:
        if "samples_us" in entry and (rows is None or row_of(entry) in rows):
            entry["samples_us"] = [sample * SLOWDOWN for sample in entry["samples_us"]]
    target.write_text(json.dumps(file))


def slower_rows(program, old, new):
    """The rows that compare calls slower, and all rows."""
    done = subprocess.run([program, "compare", old, new], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"lockstep compare failed:\n{done.stdout}{done.stderr}")
    rows = [line for line in done.stdout.splitlines() if line.startswith("all_reduce/")]
    slower = {line.split()[0] for line in rows if line.endswith("SLOWER")}
    assert (done.returncode == 3) == bool(slower), "the exit status tells what the table tells"
    return slower, [line.split()[0] for line in rows]


def measured(program, flags, path):
    words = [program, "bench", "all_reduce", *(flags or DEFAULT), "--json", path]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--sweeps", type=int, default=50)
    arguments, flags = parser.parse_known_args()
    random.seed(1)
    alarms = alarm_rows = found_sweeps = found_rows = found_alone = rows_in_all = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        old = measured(arguments.program, flags, folder / "0.json")
        for sweep in range(1, arguments.sweeps + 1):
            new = measured(arguments.program, flags, folder / f"{sweep}.json")
            slower, rows = slower_rows(arguments.program, old, new)
            rows_in_all += len(rows)
            alarms, alarm_rows = alarms + bool(slower), alarm_rows + len(slower)
            write_slower(new, folder / "slow.json")
            slower, _ = slower_rows(arguments.program, old, folder / "slow.json")
            found_sweeps, found_rows = found_sweeps + bool(slower), found_rows + len(slower)
            one = random.choice(rows)
            write_slower(new, folder / "slow.json", {one})
            found_alone += one in slower_rows(arguments.program, old, folder / "slow.json")[0]
            old.unlink()
            old = new
    total = arguments.sweeps
    print(f"{total} sweeps of {rows_in_all // total} rows, each compared with the one before")
    print(f"false alarms: {alarms} of {total} sweeps, {alarm_rows} of {rows_in_all} rows")
    print(f"all rows 10 % slower: found in {found_sweeps} of {total} sweeps, {found_rows} of {rows_in_all} rows")
    print(f"one row 10 % slower: found in {found_alone} of {total} sweeps")


if __name__ == "__main__":
    main()
