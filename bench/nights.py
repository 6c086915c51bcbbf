"""How far `lockstep history trend` can be trusted with real results: all-reduces over real TCP between two virtual hosts, one result for each
night. In every second series the links are slower from a random night on; in the others nothing changes.

python3 nights.py PROGRAM [--nights 30] [--series 10] [--rate 1000] [--slow 900] [--seed 1]

Rates are in Mbit/s. Needs root, for network.sh. Exits with status 1 if a change is missed by more than one night, or if there is a false alarm.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

NETWORK = pathlib.Path(__file__).resolve().parent / "network.sh"
MEASURED = ("bench", "all_reduce", "-b", "256K", "-e", "1M", "-f", "2", "-n", "10", "-w", "2", "--repetitions", "3", "--algorithm", "ring")


def run(words, allowed=(0,)):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode not in allowed:
        sys.exit(f"nights.py: a run failed with status {done.returncode}:\n{done.stdout}{done.stderr}")


def changes_found(program, arguments, slow_from, folder):
    """[(row, night)] of all changes that trend finds in a series, and the number of rows."""
    nights = []
    for night in range(arguments.nights):
        rate = arguments.slow if slow_from is not None and night >= slow_from else arguments.rate
        nights.append(folder / f"{night:03}.json")
        run([NETWORK, 2, f"{rate}mbit", program, *MEASURED, "--json", nights[-1]])
    run([program, "history", "trend", *nights, "--json", folder / "trend.json"], allowed=(0, 3))
    rows = json.loads((folder / "trend.json").read_text())["rows"]
    return [(row["name"], change["night"]) for row in rows for change in row["changes"]], len(rows)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[3])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--series", type=int, default=10)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    ends = 8  # nights before and after a change, so that both levels are known
    if arguments.nights < 2 * ends or arguments.series < 2 or not 0 < arguments.slow < arguments.rate:
        parser.error(f"use {2 * ends} nights or more, two series or more, and a slow rate below the other")
    chance = random.Random(arguments.seed)
    right = {"changed": 0, "unchanged": 0}
    for series in range(arguments.series):
        slow_from = chance.randrange(ends, arguments.nights - ends + 1) if series % 2 == 0 else None
        with tempfile.TemporaryDirectory() as folder:
            found, rows = changes_found(arguments.program.absolute(), arguments, slow_from, pathlib.Path(folder))
        if slow_from is None:
            is_right = not found
        else:
            is_right = len(found) == rows > 0 and all(abs(night - slow_from) <= 1 for _, night in found)
        right["unchanged" if slow_from is None else "changed"] += is_right
        if not is_right:
            print(f"series {series}, {'no change' if slow_from is None else f'slow from night {slow_from}'}: found {found}", flush=True)
    for kind, number in right.items():
        print(f"{kind:<9} {number} of {(arguments.series + (kind == 'changed')) // 2} right")
    return 0 if sum(right.values()) == arguments.series else 1


if __name__ == "__main__":
    sys.exit(main())
