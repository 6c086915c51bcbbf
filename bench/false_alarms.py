"""How far `lockstep compare` can be trusted on this machine: measures a program in turn with itself, again and again. Every row
called slower is a false alarm. Then slows one of the results by 10 %: every row not called slower is missed.

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

import in_turn

SLOWDOWN = 1.1
DEFAULT = ["--ranks", "2", "-b", "4K", "-e", "1M", "-f", "4", "-n", "10", "-w", "2", "--algorithm", "ring,recursive_doubling"]


def row_of(entry):
    """The name of an entry's row in the table of compare."""
    return re.sub(r"/(iterations:\d+|repeats:\d+|manual_time)", "", entry["run_name"])


def slowed(result, rows):
    """The result with slower samples in these rows."""
    def entry_of(entry):
        return {**entry, "samples_us": [sample * SLOWDOWN for sample in entry["samples_us"]]} if row_of(entry) in rows else entry
    return {**result, "benchmarks": [entry_of(entry) for entry in result["benchmarks"]]}


def slower_rows(program, folder, old, new):
    """The rows that compare calls slower, and all rows."""
    paths = folder / "old.json", folder / "new.json"
    for path, result in zip(paths, (old, new)):
        path.write_text(json.dumps(result))
    done = subprocess.run([program, "compare", *paths], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"lockstep compare failed:\n{done.stdout}{done.stderr}")
    rows = [line for line in done.stdout.splitlines() if line.startswith("all_reduce/")]
    slower = {line.split()[0] for line in rows if line.endswith("SLOWER")}
    assert (done.returncode == 3) == bool(slower), "the exit status tells what the table tells"
    return slower, [line.split()[0] for line in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=in_turn.ROUNDS)
    arguments, flags = parser.parse_known_args()
    program, total = arguments.program, arguments.sweeps
    random.seed(1)
    alarms = alarm_rows = found_sweeps = found_rows = found_alone = rows_in_all = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for _ in range(total):
            old, new = in_turn.measure_in_turn(program, program, ["all_reduce", *(flags or DEFAULT)], arguments.rounds)
            slower, rows = slower_rows(program, folder, old, new)
            rows_in_all += len(rows)
            alarms, alarm_rows = alarms + bool(slower), alarm_rows + len(slower)
            slower, _ = slower_rows(program, folder, old, slowed(new, rows))
            found_sweeps, found_rows = found_sweeps + bool(slower), found_rows + len(slower)
            one = random.choice(rows)
            found_alone += one in slower_rows(program, folder, old, slowed(new, {one}))[0]
    print(f"{total} sweeps of {rows_in_all // total} rows, of the same program twice, in turn")
    print(f"false alarms: {alarms} of {total} sweeps, {alarm_rows} of {rows_in_all} rows")
    print(f"all rows 10 % slower: found in {found_sweeps} of {total} sweeps, {found_rows} of {rows_in_all} rows")
    print(f"one row 10 % slower: found in {found_alone} of {total} sweeps")


if __name__ == "__main__":
    main()
