"""Adds a part that is not Lockstep's, as CONTRIBUTING.md says: a folder, and at most eight lines in files that exist.

python3 plant.py PART SOURCES OUTPUT   writes the part's table with its lines to OUTPUT
"""

import pathlib
import sys

MOST_LINES = 8
# Part -> its table, and file -> (line after which to add, lines to add).
PARTS = {
    "optimizer": ("models/optimizers/optimizers.cc", {
        "models/optimizers/optimizers.cc": [
            ('#include "models/optimizers/sgd.h"', ['#include "tests/parallel/toy_optimizer/softsign.h"']),
            ("  static const std::vector<OptimizerEntry> entries = {",
             ['      {.name = "softsign",', '       .summary = "a toy",', "       .flags = {},", "       .states = Softsign::states,",
              "       .make = make<Softsign>},"])],
        "models/CMakeLists.txt": [("  optimizers/sgd.cc", ["  ../tests/parallel/toy_optimizer/softsign.cc"])],
    }),
    "axis": ("models/placement.cc", {
        "models/placement.cc": [
            ('      {"dp", "data parallel", "replicas of the model", sequences},',
             ['      {"site", "data parallel between sites", "sites with replicas", sequences},'])],
    }),
}


def planted(text, edits):
    lines = text.split("\n")
    for line, added in edits:
        place = lines.index(line) + 1
        lines[place:place] = added
    return "\n".join(lines)


def main(part, sources, output):
    table, edits = PARTS[part]
    root = pathlib.Path(sources)
    texts = {name: planted((root / name).read_text(), changes) for name, changes in edits.items()}
    added = sum(len(lines) for changes in edits.values() for _, lines in changes)
    if added > MOST_LINES:
        sys.exit(f"an {part} takes {added} lines in files that exist, more than {MOST_LINES}")
    pathlib.Path(output).write_text(texts[table])


if __name__ == "__main__":
    main(*sys.argv[1:])
