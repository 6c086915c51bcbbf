"""Checks who includes whom, and that a planted bad include would be found.

collectives/base <- collectives <- parallel <- bench <- cli; models sees collectives/base only. Algorithms and
parallel/ never see a concrete transport.
"""

import pathlib
import re
import sys

# Folder of a file -> prefixes of what it may include. The longest matching folder decides.
MAY_INCLUDE = {
    "collectives/base/": ["collectives/base/"],
    "collectives/transport/": ["collectives/"],
    "collectives/": ["collectives/"],
    "models/": ["models/", "collectives/base/"],
    "parallel/": ["parallel/", "models/", "collectives/"],
    "bench/": ["bench/", "parallel/", "models/", "collectives/"],
    "cli/": ["cli/", "bench/", "parallel/", "models/", "collectives/"],
    "tests/": ["tests/", "cli/", "bench/", "parallel/", "models/", "collectives/"],
}
CONTRACT = {"collectives/transport/transport.h", "collectives/transport/launch.h", "collectives/transport/faulty.h"}
CONCRETE_TRANSPORTS = re.compile(r"^(collectives/transport/|mpi\.h$|nccl\.h$|cuda)")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
MOST_LINES = 300


def faults_of(name, text):
    folder = max((f for f in MAY_INCLUDE if name.startswith(f)), key=len)
    ours = tuple({f.split("/")[0] + "/" for f in MAY_INCLUDE})
    for included in INCLUDE.findall(text):
        if included.startswith(ours) and not included.startswith(tuple(MAY_INCLUDE[folder])):
            yield f"{name} includes {included}: {folder} may include {', '.join(MAY_INCLUDE[folder])}"
        sees_transports = name.startswith(("collectives/transport/", "tests/"))
        if CONCRETE_TRANSPORTS.match(included) and included not in CONTRACT and not sees_transports:
            yield f"{name} includes {included}: only collectives/transport/ knows concrete transports"
    lines = text.count("\n")
    if lines > MOST_LINES and not name.startswith("tests/"):
        yield f"{name} has {lines} lines: a file of more than {MOST_LINES} is two ideas"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = [p for folder in {f.split("/")[0] for f in MAY_INCLUDE} for p in (root / folder).rglob("*.[hc]*")
             if p.suffix in (".h", ".cc", ".cu")]
    faults = [fault for path in sorted(files) for fault in faults_of(path.relative_to(root).as_posix(), path.read_text())]
    planted = [("models/gpt.cc", '#include "collectives/communicator.h"\n'),
               ("collectives/base/error.cc", '#include "collectives/stream.h"\n'),
               ("parallel/data/ddp.cc", '#include "collectives/transport/threads.h"\n'),
               ("collectives/all_reduce/ring.cc", "#include <mpi.h>\n")]
    faults += [f"a planted {text.strip()} in {name} was not found" for name, text in planted
               if not list(faults_of(name, text))]
    if not files:
        faults.append("no source files found")
    print("\n".join(faults) or f"{len(files)} files include what they may")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
