"""Scores predictions of lockstep plan --profile against steps of this machine.

python3 score.py PROGRAM PROFILE [--model NAME_OR_FILE ...] [--technique T ...] [--ranks N ...] [--clock C ...]
                 [--device host|cuda] [--transport threads|openmpi|mpich] [--dtype D] [--rounds N] [--json FILE]

Trains ddp, tp, sp, pipeline, zero, fsdp, cp and 3d on 2, 4 and 8 ranks, each several times, and compares the median with the
prediction. The noise is half of the range between runs of the same plan: no error below it means anything. Each round measures every
plan once, so that a disturbance of the machine does not hit all runs of a plan.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

LINK = "alpha=20us,beta=5GB/s"
MPIRUN = {"threads": [], "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"], "mpich": ["mpirun.mpich", "-n"]}
MESHES = {2: ("--pp", "2"), 4: ("--tp", "2", "--pp", "2"), 8: ("--tp", "2", "--pp", "2")}
TECHNIQUES = ("ddp", "tp", "sp", "pipeline", "zero", "fsdp", "cp", "3d")
RANKS = (2, 4, 8)


def words(technique, ranks, args, model):
    """The arguments that train and plan share."""
    named = [technique, "--ranks", ranks, "--model", model, "--global-batch", args.global_batch]
    if args.sequence_length:
        named += ["--sequence-length", args.sequence_length]
    if args.dtype:
        named += ["--dtype", args.dtype]
    if technique in ("pipeline", "3d"):
        named += ["--micro-batches", 4 if technique == "pipeline" else 2]
    if technique == "3d":
        named += MESHES[ranks]
    return [str(word) for word in named]


def result(program, command, *more, launcher=()):
    """The JSON file that a command writes, or the error that it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        run = subprocess.run([*launcher, program, *command, *more, "--json", path], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise ValueError(run.stderr.strip())
        return json.loads(path.read_text())


def measured(program, case, clock, steps, transport, device):
    link = ["--link", LINK] if clock == "cpu" else []
    mpirun = MPIRUN[transport]
    train = result(program, ["train", *case, "--steps", str(steps), "--clock", clock, *link, "--threads", "1", "--device", device],
                   launcher=[*mpirun, case[case.index("--ranks") + 1]] if mpirun else [])
    return statistics.median(step["seconds"] for step in train["steps"][2:])  # the first ones allocate


def predicted(program, case, clock, profile, transport):
    link = ["--link", LINK] if clock == "cpu" else ["--transport", transport] if transport != "threads" else []
    return result(program, ["plan", *case, "--profile", profile, "--clock", clock, *link])["seconds"]["step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("profile")
    parser.add_argument("--model", nargs="+", default=["nano"])
    parser.add_argument("--technique", nargs="+", default=TECHNIQUES)
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS)
    parser.add_argument("--clock", nargs="+", help="default: cpu wall; of GPUs: wall")
    parser.add_argument("--device", choices=("host", "cuda"), default="host", help="as the profile's")
    parser.add_argument("--transport", choices=MPIRUN, default="threads", help="of the clock wall")
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--sequence-length", type=int)
    parser.add_argument("--dtype")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.clock = args.clock or (["wall"] if args.device == "cuda" else ["cpu", "wall"])
    cases, refused = [], []
    for model in args.model:
        for technique in args.technique:
            for ranks in args.ranks:
                for clock in args.clock:
                    case = words(technique, ranks, args, model)
                    try:
                        cases.append({"case": case, "clock": clock, "model": model, "technique": technique, "ranks": ranks,
                                      "predicted": predicted(args.program, case, clock, args.profile, args.transport), "measured": []})
                    except ValueError as error:
                        refused.append((technique, ranks, clock, model, str(error)))
    for _ in range(args.rounds):
        for case in cases:
            case["measured"].append(measured(args.program, case["case"], case["clock"], args.steps,
                                             args.transport if case["clock"] == "wall" else "threads", args.device))
    print(f"{'model':<12} {'clock':<5} {'technique':<10} {'ranks':>5} {'predicted':>12} {'measured':>12} {'error':>8} {'noise':>7}")
    for case in sorted(cases, key=lambda c: (c["model"], c["clock"], args.technique.index(c["technique"]), c["ranks"])):
        runs = case["measured"]
        seconds = statistics.median(runs)
        case["error"], case["noise"] = case["predicted"] / seconds - 1, (max(runs) - min(runs)) / 2 / seconds
        print(f"{pathlib.Path(case['model']).stem:<12} {case['clock']:<5} {case['technique']:<10} {case['ranks']:>5} "
              f"{1e3 * case['predicted']:>9.3f} ms {1e3 * seconds:>9.3f} ms {100 * case['error']:>+7.1f}% {100 * case['noise']:>6.1f}%")
    for clock in args.clock:
        errors = [abs(case["error"]) for case in cases if case["clock"] == clock]
        noise = [case["noise"] for case in cases if case["clock"] == clock]
        if errors:
            print(f"clock {clock}: {len(errors)} plans, mean error {100 * statistics.mean(errors):.1f} %, worst {100 * max(errors):.1f} %; "
                  f"mean noise {100 * statistics.mean(noise):.1f} %, worst {100 * max(noise):.1f} %")
    for *case, error in refused:
        print("refused:", *case, error)
    if args.json:
        args.json.write_text(json.dumps(cases, indent=1))


if __name__ == "__main__":
    sys.exit(main())
