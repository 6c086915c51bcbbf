"""A program has the optimised copies of inline functions, not those of its own sources, which are compiled without optimisation.

python3 optimised_copies.py PROGRAM ARCHIVE OBJECT ...

Both are there under one name, and tell each other apart by their size. Compares the functions whose sizes differ.
"""

import subprocess
import sys

LEAST_COMPARED = 100


def sizes(*files):
    """The sizes that each function with copies in several sources has in these files."""
    found = {}
    said = subprocess.run(["nm", "--print-size", "--defined-only", *files], capture_output=True, text=True, check=True).stdout
    for words in map(str.split, said.splitlines()):
        if len(words) == 4 and words[2] == "W":
            found.setdefault(words[3], set()).add(int(words[1], 16))
    return found


def main():
    program, archive, *objects = sys.argv[1:]
    kept, optimised, own = sizes(program), sizes(archive), sizes(*objects)
    compared = [name for name in kept.keys() & optimised.keys() & own.keys() if not optimised[name] & own[name]]
    faults = [name for name in compared if kept[name] <= own[name]]
    for name in faults[:10]:
        print(f"{program} has the copy of its own sources of {name}: link {archive} before them")
    if len(compared) < LEAST_COMPARED:
        print(f"only {len(compared)} functions compared")
    print(f"{len(compared)} functions compared, {len(faults)} not optimised")
    return 1 if faults or len(compared) < LEAST_COMPARED else 0


if __name__ == "__main__":
    sys.exit(main())
