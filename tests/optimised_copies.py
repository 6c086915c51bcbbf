"""A program uses a library's optimised copies of inline functions and templates, not the unoptimised ones of its own sources.

python3 optimised_copies.py PROGRAM LIBRARY OBJECT ...

The two copies of a function have the same name and usually different sizes. Only functions whose sizes differ are compared.
"""

import subprocess
import sys

LEAST_COMPARED = 100


def sizes(*files):
    """The sizes, in these files, of each function of which the linker keeps one copy: nm's letter for them is W."""
    found = {}
    said = subprocess.run(["nm", "--print-size", "--defined-only", *files], capture_output=True, text=True, check=True).stdout
    for words in map(str.split, said.splitlines()):
        if len(words) == 4 and words[2] == "W":
            found.setdefault(words[3], set()).add(int(words[1], 16))
    return found


def main():
    program, library, *objects = sys.argv[1:]
    kept, optimised, own = sizes(program), sizes(library), sizes(*objects)
    compared = [name for name in kept.keys() & optimised.keys() & own.keys() if not optimised[name] & own[name]]
    faults = [name for name in compared if kept[name] <= own[name]]
    for name in faults[:10]:
        print(f"{program} has its own sources' copy of {name}: link {library} before them")
    if len(compared) < LEAST_COMPARED:
        print(f"fewer than {LEAST_COMPARED} functions to compare")
    print(f"{len(compared)} functions compared, {len(faults)} not optimised")
    return 1 if faults or len(compared) < LEAST_COMPARED else 0


if __name__ == "__main__":
    sys.exit(main())
