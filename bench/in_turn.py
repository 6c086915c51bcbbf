"""Compares two programs on a machine whose speed changes from one second to the next: they run in turn, a short process each,
and `lockstep compare` judges all their samples together. Whatever slows the machine for a while then slows both.

python3 bench/in_turn.py [--rounds N] [--out FOLDER] OLD NEW OPERATION [FLAG OF lockstep bench ...]

Exit status: as of lockstep compare, 3 if the new program is slower.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import uuid

ROUNDS = 60
REPETITIONS = 2  # of a process


def fail(reason):
    print(reason, file=sys.stderr)
    sys.exit(2)


def measure(program, words, path):
    """One short process: its result file."""
    command = [program, "bench", *words, "--repetitions", str(REPETITIONS), "--json", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        fail(f"{program}: {error.strerror}; name a lockstep program, as build/release/bin/lockstep")
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return json.loads(pathlib.Path(path).read_text())


def merged(files, name):
    """One result with the samples of all, each process's as further repetitions. `name` marks the two that compare pairs."""
    entries, repetitions = [], {}
    for file in files:
        for entry in file["benchmarks"]:
            if entry["run_type"] == "iteration":
                row = entry["run_name"]
                entries.append({**entry, "repetition_index": repetitions.get(row, 0)})
                repetitions[row] = repetitions.get(row, 0) + 1
    for entry in entries:
        entry["repetitions"] = repetitions[entry["run_name"]]
    return {"context": {**files[0]["context"], "lockstep.in_turn": name}, "benchmarks": entries}


def measure_in_turn(old, new, words, rounds):
    """The results of both programs. Each goes first in every second round."""
    before, after = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "result.json")
        for number in range(rounds):
            for program, files in [(old, before), (new, after)][:: 1 if number % 2 == 0 else -1]:
                files.append(measure(program, words, path))
    name = str(uuid.uuid4())
    return merged(before, name), merged(after, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], usage=__doc__.split("\n\n")[1])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"processes of each program, {ROUNDS} if not given")
    parser.add_argument("--out", type=pathlib.Path, help="keep old.json and new.json in this folder")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="the operation and its flags")
    arguments = parser.parse_args()
    if not arguments.words:
        parser.error("name an operation: all_reduce")
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: use at least 1")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or pathlib.Path(temporary)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"--out {folder}: {error.strerror}; name a folder that you may write to")
        results = measure_in_turn(arguments.old, arguments.new, arguments.words, arguments.rounds)
        for name, result in zip(("old.json", "new.json"), results):
            (folder / name).write_text(json.dumps(result, indent=1) + "\n")
        sys.exit(subprocess.run([arguments.new, "compare", folder / "old.json", folder / "new.json"]).returncode)


if __name__ == "__main__":
    main()
