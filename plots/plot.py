"""python3 plot.py KIND FILE ... --output PICTURE: draws one kind of plot of Lockstep's results."""

import argparse
import pathlib
import sys

import bandwidth
import bubble
import fit
import loss
import matrix
import memory
import pipeline
import progress
import scaling
import schedule
import speed
import tensor
import timeline
import traffic
from chart import save
from results import BadInput, read

KINDS = {module.__name__: module for module in (loss, progress, speed, traffic, memory, bubble, bandwidth, fit, scaling,
                                                timeline, schedule, pipeline, tensor, matrix)}
FORMATS = (".svg", ".png", ".pdf")


def summary(kind):
    return KINDS[kind].__doc__.splitlines()[0].rstrip(".")


def checked_output(path, endings):
    """Returns `path` if its ending is allowed and its folder exists."""
    path = pathlib.Path(path)
    if path.suffix not in endings:
        raise BadInput(f"--output {path}: its name must end with {' or '.join(endings)}")
    if not path.parent.is_dir():
        raise BadInput(f"--output {path}: there is no folder {path.parent}; create it first")
    return path


def write_whole(path, write):
    """Calls write(temporary name), then renames the file: nobody sees half a file."""
    temporary = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        write(str(temporary))
        temporary.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)


def plot(kind, files, output):
    output = checked_output(output, FORMATS)
    charts = KINDS[kind].charts(read(files))
    if not charts:
        raise BadInput(f"no data for a {kind} plot in {', '.join(files)}; "
                       f"{kind}: {summary(kind)}")
    for number, chart in enumerate(charts):
        path = output if number == 0 else output.with_stem(f"{output.stem}_{number + 1}")
        write_whole(path, lambda name, figure=chart.figure: save(figure, name))
        print(f"{path}: {chart.alt}")


def run(main):
    """Runs a program's main. Bad input gives one line and exit status 2."""
    try:
        main()
    except BadInput as error:
        print(f"lockstep: {error}", file=sys.stderr)
        sys.exit(2)


def main():
    parser = argparse.ArgumentParser(prog="lockstep plot", description="Plots results of Lockstep.")
    parser.add_argument("kind", choices=KINDS, help="; ".join(f"{kind}: {summary(kind)}" for kind in KINDS))
    parser.add_argument("files", nargs="+", metavar="FILE", help="written by --json or --trace")
    parser.add_argument("-o", "--output", metavar="PICTURE", help=f"file that ends with {', '.join(FORMATS)}; "
                                                                  "default: KIND.svg")
    arguments = parser.parse_args()
    plot(arguments.kind, arguments.files, arguments.output or f"{arguments.kind}.svg")


if __name__ == "__main__":
    run(main)
