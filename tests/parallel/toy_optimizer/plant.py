"""Adds the optimizer of this folder to Lockstep, as CONTRIBUTING.md says: at most eight lines in files that exist.

python3 plant.py SOURCES OUTPUT   writes optimizers.cc with its lines to OUTPUT
"""

import pathlib
import sys

MOST_LINES = 8
TABLE = "models/optimizers/optimizers.cc"
# File -> (line after which to add, lines to add).
EDITS = {
    TABLE: [('#include "models/optimizers/sgd.h"', ['#include "tests/parallel/toy_optimizer/softsign.h"']),
            ("  static const std::vector<OptimizerEntry> entries = {",
             ['      {.name = "softsign",', '       .summary = "a toy",', "       .flags = {},", "       .states = Softsign::states,",
              "       .make = make<Softsign>},"])],
    "models/CMakeLists.txt": [("  optimizers/sgd.cc", ["  ../tests/parallel/toy_optimizer/softsign.cc"])],
}


def planted(text, edits):
    lines = text.split("\n")
    for line, added in edits:
        place = lines.index(line) + 1
        lines[place:place] = added
    return "\n".join(lines)


def main(sources, output):
    root = pathlib.Path(sources)
    texts = {name: planted((root / name).read_text(), edits) for name, edits in EDITS.items()}
    added = sum(len(lines) for edits in EDITS.values() for _, lines in edits)
    if added > MOST_LINES:
        sys.exit(f"an optimizer takes {added} lines in files that exist, more than {MOST_LINES}")
    pathlib.Path(output).write_text(texts[TABLE])


if __name__ == "__main__":
    main(*sys.argv[1:])
