"""Checks the Markdown: commands work as written, links have targets, tables name all files; then that each check can fail.

python3 docs.py PROGRAM FILE ...   checks these files
python3 docs.py PROGRAM            checks that planted faults are found

Every `sh` or `bash` block runs from top to bottom in a copy of the sources, with PROGRAM in place of the launcher; the
blocks of one file share that copy. A block that must not run has <!-- not run: REASON --> on the line before it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from subprocess import TimeoutExpired

FENCE = re.compile(r"(?:<!--\s*not run:\s*(?P<reason>.*?)\s*-->\s*\n)?"
                   r"^(?P<indent> *)```(?:sh|bash)\n(?P<commands>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)")
TABLE_ROW = re.compile(r"^\| *(`[^|]*`) *\|", re.MULTILINE)
NOT_SOURCES = ("build", "out", ".git", "__pycache__")
# Files that READMEs need not name: every folder has them.
EVERYWHERE = {"README.md", "CMakeLists.txt", "__pycache__"}
# It takes a minute, and plots/demo_test.py runs it as it is written here.
TESTED_ALONE = re.compile(r"^\./lockstep demo *(#.*)?\n", re.MULTILINE)
# The task of lab 1 runs these lines; the skeletons of the other labs are graded by the tests of labs.
OF_EVERY_LAB = re.compile(r"^\./lockstep grade (?!1 )\d+ --submission my_lab( --hints 1 --html grade\.html)? \|\| true\n",
                          re.MULTILINE)
LAUNCHER = ("./lockstep", "lockstep", "mpirun.openmpi", "mpirun.mpich")

# Containers, where the tests often run, have only root; Open MPI demands both variables.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def make_launcher(folder, program):
    """Puts a ./lockstep into the folder that calls the program."""
    shim = folder / "lockstep"
    shim.unlink(missing_ok=True)
    shim.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
    shim.chmod(0o755)


def run_commands(folder, commands, seconds):
    """The exit status and the output of commands in a folder with a launcher. May throw TimeoutExpired."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=folder, text=True, timeout=seconds,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          env={**os.environ, **AS_ROOT, "PATH": f"{folder}:{os.environ['PATH']}"})
    return done.returncode, done.stdout


def faults_of_commands(copy, text, program):
    make_launcher(copy, program)
    for fence in FENCE.finditer(text):
        commands = OF_EVERY_LAB.sub("", TESTED_ALONE.sub("", fence["commands"]))
        if fence["reason"]:
            continue
        if not commands.split() or commands.split()[0] not in LAUNCHER:
            yield f"a block neither begins with ./lockstep or mpirun nor has <!-- not run: reason -->:\n{commands}"
            continue
        try:
            status, output = run_commands(copy, commands, 540)
        except TimeoutExpired:
            yield f"not finished within 540 s:\n{commands}"
            continue
        if status != 0:
            yield f"exit status {status}:\n{commands}{output[-4000:]}"


def faults_of_links(path, text):
    for target in LINK.findall(without_code(text)):
        if not (path.parent / target).exists():
            yield f"links to {target}, which does not exist"


def first_column(text):
    return {name.rstrip("/") for cell in TABLE_ROW.findall(text) for name in re.findall(r"`([^`]*)`", cell)}


def faults_of_files(folder, text):
    """A folder's table names only existing files, and all of them: x.h also stands for x.cc."""
    named = first_column(text)
    for name in sorted(named):
        if not (folder / name).exists():
            yield f"its table names {name}: there is no such file"
    for entry in sorted(folder.iterdir()):
        names = {entry.name, f"{entry.stem}.h"}
        if entry.name not in EVERYWHERE and not any(name.split("/")[0] in names for name in named):
            yield f"its table does not name the file {entry.name}"


def faults_of_techniques(program, text):
    section = text.partition("## Techniques\n")[2].partition("\n## ")[0]
    named, known = first_column(section), techniques(program)
    if named != known:
        yield f"its techniques are {sorted(named)}, the program's are {sorted(known)}"


def output_of(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def subcommands(program, command):
    """Those that the help of the command lists."""
    listed = output_of(program, command, "--help").partition("Subcommands:")[2].split("\n\n")[0]
    return set(re.findall(r"^  (\w[\w-]*)", listed, re.MULTILINE))


def techniques(program):
    return subcommands(program, "train")


def faults_of_glossary(program, text):
    """It explains every technique, benchmark and schedule, and its flags exist."""
    rows = output_of(program, "schedule", "all").split("\n\n")[1].splitlines()
    named = first_column(text)
    for name in sorted(techniques(program) | subcommands(program, "bench") | {row.split()[0] for row in rows[1:]}):
        if name not in named:
            yield f"does not explain {name}"
    known = "".join(output_of(program, *words, "--help") for words in (("train", "3d"), ("bench", "all_reduce"), ("bench", "pairs"), ("schedule",)))
    for flag in re.findall(r"`(--[\w-]+)", text):
        if not re.search(rf"{flag}\b(?!-)", known):
            yield f"names the flag {flag}, which no command has"


def faults_of_recipe(root, text):
    """The files that name one algorithm, apart from tests, are those that the recipe for an algorithm names."""
    if "**An algorithm**" not in text:
        return
    recipe = text.partition("**An algorithm**")[2].partition("\n\n**")[0]
    named = set(re.findall(r"\]\((collectives/[^)]*)\)", recipe.partition("|---|---|")[2].partition("\n\n")[0]))
    example = "torus"
    found = {path.relative_to(root).as_posix() for folder in ("bench", "cli", "collectives", "parallel", "plots")
             for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc", ".py", ".txt") and example in path.read_text()}
    missing = found - named - {f"collectives/all_reduce/{example}.cc"}
    if missing:
        yield f"its recipe for an algorithm does not name {sorted(missing)}, which name the algorithm {example}"


def faults_of(root, path, text, program):
    yield from faults_of_links(path, text)
    if path == root / "README.md":
        yield from faults_of_techniques(program, text)
    elif path == root / "CONTRIBUTING.md":
        yield from faults_of_recipe(root, text)
    elif path == root / "GLOSSARY.md":
        yield from faults_of_glossary(program, text)
    elif path.name == "README.md":
        yield from faults_of_files(path.parent, text)
    if FENCE.search(text):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy"
            shutil.copytree(root, copy, ignore=lambda _, names: [name for name in names if name in NOT_SOURCES])
            yield from faults_of_commands(copy, text, program)


# (file, text, part of the expected fault; empty: there must be none)
PLANTED = [
    ("CONTRIBUTING.md", "```sh\n./lockstep no-such-command\nlockstep doctor\n```\n", "exit status 2"),
    ("CONTRIBUTING.md", "```bash\nlockstep doctor >a\ntest -s b\n```\n", "exit status 1"),
    ("CONTRIBUTING.md", "- so:\n  ```sh\n  lockstep doctor >a\n  test -s a\n  ```\n", ""),
    ("CONTRIBUTING.md", "```sh\nninja\n```\n", "neither begins"),
    ("CONTRIBUTING.md", "<!-- not run: takes minutes -->\n```sh\nninja\n```\n", ""),
    ("CONTRIBUTING.md", "see [there](models/no_such_file.h)\n", "links to models/no_such_file.h"),
    ("README.md", "## Techniques\n| | |\n|-|-|\n| `magic` | |\n", "techniques are ['magic']"),
    ("README.md", "", "techniques are []"),
    ("CONTRIBUTING.md", "**An algorithm**\n|---|---|\n[a](collectives/all_reduce/all_reduce.cc)\n\n**", "collectives/CMakeLists.txt"),
    ("GLOSSARY.md", "| `all_reduce` | |\n", "does not explain zb-h1"),
    ("GLOSSARY.md", "`--recom`", "the flag --recom, which no command has"),
    ("models/README.md", "| `no_such_file.h` | |\n", "no such file"),
    ("models/README.md", "", "does not name the file backend.h"),
    ("collectives/README.md", "| `transport/no_such_file.h` | |\n", "no such file"),
]


def faults_of_the_checks(root, program):
    for name, text, part in PLANTED:
        found = list(faults_of(root, root / name, text, program))
        if (part and not any(part in fault for fault in found)) or (not part and found):
            yield f"planted in {name}: {text!r} should give {part or 'no fault'!r}, not {found}"


def main():
    root, program = pathlib.Path(__file__).resolve().parent.parent, pathlib.Path(sys.argv[1]).resolve()
    files = [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    faults = [f"{path.relative_to(root)}: {fault}" for path in files
              for fault in faults_of(root, path, path.read_text(), program)]
    if not files:
        faults = list(faults_of_the_checks(root, program))
    print("\n".join(faults) or "no faults found")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
