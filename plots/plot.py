"""python3 plot.py KIND FILE ... --output PICTURE: draws one kind of plot of Lockstep's results."""

import argparse
import os
import pathlib
import sys
import textwrap
import traceback

import bandwidth
import bubble
import burn_in
import context
import contributions
import dispatch
import exchange
import experts
import factorings
import fit
import history
import local_steps
import loss
import matrix
import memory
import optimizers
import pairs
import pipeline
import prefetch
import progress
import ring
import scaling
import schedule
import search
import sharded
import speed
import tensor
import timeline
import traffic
from chart import save
from forms import printable
from results import BadInput, read
from text_picture import text_picture

KINDS = {module.__name__: module for module in (loss, local_steps, progress, optimizers, speed, traffic, memory, bubble, bandwidth, fit, scaling,
                                                timeline, schedule, pipeline, tensor, matrix, sharded, prefetch, context, factorings,
                                                ring, contributions, history, pairs, burn_in, search, experts, dispatch, exchange)}
FORMATS = (".svg", ".png", ".pdf", ".txt")
TEXT_WIDTH = "LOCKSTEP_TEXT_PICTURES"  # of a terminal; then each picture is also written as text, next to it
LETTERS_PER_INCH, HEADING_INCHES = 10, 0.22  # of a heading's text, and the height of its line


def summary(kind):
    return KINDS[kind].__doc__.splitlines()[0].rstrip(".")


def checked_output(path, endings):
    """Returns `path` if its ending is allowed and its folder exists."""
    path = pathlib.Path(path)
    if path.suffix not in endings:
        raise BadInput(f"--output {path}: its name must end with {' or '.join(endings)}")
    try:
        if not path.parent.is_dir():
            raise BadInput(f"--output {path}: there is no folder {path.parent}; create it first")
        if path.exists() and not path.is_file():
            raise BadInput(f"--output {path}: it is not a regular file; name another")
    except OSError as error:
        raise BadInput(f"--output {path}: {error.strerror}; choose another file") from error
    return path


def write_whole(path, write):
    """Calls write(temporary name), then renames the file: nobody sees half a file."""
    target = pathlib.Path(os.path.realpath(path))  # a link stays
    temporary = target.with_name(f".{target.stem}.part{target.suffix}")
    try:
        write(str(temporary))
        temporary.replace(target)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)


def _machine(environment):
    """"AMD EPYC 7B13, 2 cores, NVIDIA H100", or "" if that is unknown."""
    gpu = environment.get("gpu")
    parts = [str(environment.get("processor", ""))]
    parts += [f"{environment['cores']} cores"] if "cores" in environment else []
    parts += [str(gpu.get("name", ""))] if isinstance(gpu, dict) else []
    return ", ".join(part for part in parts if part)


def origin(results):
    """Where and when the results were measured: machines, dates and commits, each once."""
    environments = [environment for environment in results.environments() if isinstance(environment, dict)]
    machines = [_machine(environment) for environment in environments]
    dates = sorted(str(environment.get("time", ""))[:10] for environment in environments)
    dates = dates if len(set(dates)) < 3 else [f"{dates[0]} to {dates[-1]}"]
    commits = [f"commit {environment['commit']}" for environment in environments if environment.get("commit")]
    return " · ".join(dict.fromkeys(part for part in (*machines, *dates, *commits) if part))


def add_heading(chart, text):
    """Puts the title above the figure and `text` below it: a picture alone says what it shows and where that was measured."""
    figure = chart.figure
    width, height = figure.get_size_inches()
    # A figure that has a title keeps it. matplotlib 3.6 has no public name for it.
    lines = [] if getattr(figure, "_suptitle", None) else textwrap.wrap(chart.title, int(LETTERS_PER_INCH * width))
    below = textwrap.wrap(text, int(LETTERS_PER_INCH * width * 1.4))
    figure.set_size_inches(width, height + HEADING_INCHES * (len(lines) + 0.7 * len(below)))
    if lines:
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=12, parse_math=False)
    if below:
        figure.supxlabel("\n".join(below), x=0.01, ha="left", fontsize=8, color="#555555")


def _as_text(chart, path):
    """The chart as text: for a file of text, or for a terminal. "" otherwise, and for a chart that has no form as text."""
    width = os.environ.get(TEXT_WIDTH, "")
    if path.suffix != ".txt" and not width.isdigit():
        return ""
    return text_picture(chart.figure, max(40, int(width)) if width.isdigit() else 100)


def plot(kind, files, output):
    output = checked_output(output, FORMATS)
    results = read(files)
    charts = KINDS[kind].charts(results)
    if not charts:
        raise BadInput(f"no data for a {kind} plot in {', '.join(files)}; "
                       f"{kind}: {summary(kind)}")
    below = origin(results)
    for number, chart in enumerate(charts):
        path = output if number == 0 else output.with_stem(f"{output.stem}_{number + 1}")
        if text := _as_text(chart, path):
            write_whole(path.with_suffix(".txt"), lambda name, text=text: pathlib.Path(name).write_text(text, encoding="utf-8"))
        if path.suffix == ".txt":
            print(printable(f"{path}: {chart.alt}"))
            continue
        add_heading(chart, below)
        write_whole(path, lambda name, figure=chart.figure: save(figure, name))
        print(printable(f"{path}: {chart.alt}"))


def run(main):
    """Runs a program's main. Bad input gives one line and exit status 2."""
    try:
        main()
        sys.stdout.flush()
        return
    except BadInput as error:
        fault = str(error)
    except OSError as error:
        fault = f"{error}; free space, or send the output elsewhere"
    except Exception as error:
        # The form of the files is checked, but a value may still be out of the range that can be drawn.
        here = pathlib.Path(__file__).parent
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if pathlib.Path(frame.filename).parent == here]
        fault = (f"cannot draw a value of the given files: {type(error).__name__}: {error} (at "
                 f"{pathlib.Path(frames[-1].filename).name}:{frames[-1].lineno}); write the files again")
    try:
        print(f"lockstep: {printable(fault)}", file=sys.stderr)
    finally:
        sys.exit(2)


def main():
    parser = argparse.ArgumentParser(prog="lockstep plot", description="Plots results of Lockstep.",
                                     epilog="Example: lockstep plot loss serial.json ddp.json --output loss.svg")
    parser.add_argument("kind", choices=KINDS, help="; ".join(f"{kind}: {summary(kind)}" for kind in KINDS))
    parser.add_argument("files", nargs="+", metavar="FILE", help="written by --json or --trace")
    parser.add_argument("-o", "--output", metavar="PICTURE", help=f"file that ends with {', '.join(FORMATS)}; "
                                                                  "default: KIND.svg")
    arguments = parser.parse_args()
    plot(arguments.kind, arguments.files, arguments.output or f"{arguments.kind}.svg")


if __name__ == "__main__":
    run(main)
