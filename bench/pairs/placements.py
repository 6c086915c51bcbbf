"""Measures how often `bench pairs` names the right link: on virtual hosts, one host's link, one pair of hosts, or nothing is slow.

python3 placements.py PROGRAM [--hosts 8] [--rate 400mbit] [--slow 40mbit] [--runs 20] [--seed 1] [-- FLAGS OF BENCH PAIRS]

Needs root, for bench/network.sh. Ends with status 1 if a run named anything else.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

NETWORK = pathlib.Path(__file__).resolve().parent.parent / "network.sh"


def named(program, arguments, flags, slow, path):
    """What a run names, as {("unit", 3)} or {("cable", 2, 5)}, by hosts, which are ranks here; and its words."""
    words = [NETWORK, *(["--slow", f"{slow}={arguments.slow}"] if slow else []), str(arguments.hosts), arguments.rate, program, "bench", "pairs",
             *flags, "--json", path]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env={**os.environ, "BURST": "128k"})
    if done.returncode != 0:
        sys.exit(f"placements.py: a run failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    entries = json.loads(pathlib.Path(path).read_text())["slow_links"]
    return {(entry["part"], *sorted({entry["from"], entry["to"]})) for entry in entries}, [entry["text"] for entry in entries]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[2])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--slow", default="40mbit")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    words = [*sys.argv[1:], "--"]
    end = words.index("--")
    arguments, flags = parser.parse_args(words[:end]), words[end + 1 : -1]
    if arguments.hosts < 4 or arguments.runs < 1:
        parser.error("use 4 hosts or more, and one run or more")
    chance = random.Random(arguments.seed)
    right = {"healthy": 0, "host": 0, "cable": 0}
    with tempfile.TemporaryDirectory() as folder:
        for run in range(arguments.runs):
            host, (a, b) = chance.randrange(arguments.hosts), sorted(chance.sample(range(arguments.hosts), 2))
            for kind, slow, wanted in (("healthy", "", set()), ("host", f"{host}", {("unit", host)}), ("cable", f"{a}-{b}", {("cable", a, b)})):
                found, texts = named(arguments.program.absolute(), arguments, flags, slow, pathlib.Path(folder) / "pairs.json")
                right[kind] += found == wanted
                if found != wanted:
                    print(f"run {run}, {kind} {slow}:", *texts or ["nothing named"], sep="\n  ", flush=True)
    for kind, number in right.items():
        print(f"{kind:<8} {number} of {arguments.runs} right")
    return 0 if all(number == arguments.runs for number in right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
