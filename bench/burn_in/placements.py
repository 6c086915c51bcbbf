"""Measures how often `burn-in` names the right host: on virtual hosts with a share of the processor each, one host's process is stopped
again and again, or others compete with it, or nothing is wrong.

python3 placements.py PROGRAM [--hosts 8] [--rate 1gbit] [--runs 20] [--seed 1] [--kinds healthy,stopped,competing] [-- FLAGS OF BURN-IN]

Needs root, for bench/network.sh and for control groups, and a kernel with the first version of the group `cpu`. Ends with status 1 if a run
named anything else.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

NETWORK = pathlib.Path(__file__).resolve().parent.parent / "network.sh"
GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 5_000
# A disturbed process gets a third of its time: of six periods it runs in up to two, since 5 ms may span two.
STOPPED_S, RUNNING_S, COMPETITORS = 0.025, 0.005, 2
# Says which process it is, waits until that is in the group of its host, and becomes the program.
JOINED = ("sh", "-c", 'cd "$HOSTS_FOLDER"; echo $$ > new-$OMPI_COMM_WORLD_RANK; mv new-$OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_RANK; '
                      'until [ -e begin ]; do sleep 0.05; done; exec "$@"', "sh")


class Hosts:
    """A control group for each host, in which the processes of all hosts together leave a tenth of the processors free."""

    def __init__(self, number):
        self.path = GROUPS / f"lockstep-{os.getpid()}"
        quota = int(0.9 * os.cpu_count() * PERIOD_US / number)
        for host in range(number):
            group = self.path / str(host)
            group.mkdir(parents=True)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(min(quota, PERIOD_US)))

    def remove(self):
        for group in [*self.path.iterdir(), self.path]:
            for _ in range(50 if group.is_dir() else 0):
                try:
                    group.rmdir()
                    break
                except OSError:  # a process is about to end
                    time.sleep(0.1)


def stop_and_continue(process, ended):
    while not ended.is_set():
        try:
            os.kill(process, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            return
        time.sleep(RUNNING_S)


def compete(group, ended):
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(COMPETITORS)]
    try:
        for other in others:
            (group / "cgroup.procs").write_text(str(other.pid))
        ended.wait()
    finally:
        for other in others:
            other.kill()
            other.wait()


def watched(run, arguments, hosts, kind, host, folder):
    """Puts the processes of a run into their groups, disturbs that of `host` until the run ends, and returns what it said."""
    ended, disturbing = threading.Event(), None
    while run.poll() is None and not all((folder / str(each)).exists() for each in range(arguments.hosts)):
        time.sleep(0.01)
    if run.poll() is None:
        for each in range(arguments.hosts):
            (hosts.path / str(each) / "cgroup.procs").write_text((folder / str(each)).read_text())
        (folder / "begin").touch()
    if run.poll() is None and kind != "healthy":
        process = int((folder / str(host)).read_text())
        disturbing = threading.Thread(target=stop_and_continue if kind == "stopped" else compete,
                                      args=(process if kind == "stopped" else hosts.path / str(host), ended))
        disturbing.start()
    try:
        return run.communicate()[0]
    finally:
        ended.set()
        if disturbing:
            disturbing.join()


def findings(arguments, flags, hosts, kind, host, folder):
    """Runs burn-in while `host` is disturbed, and returns what it found."""
    folder = pathlib.Path(folder)
    for old in folder.iterdir():
        old.unlink()
    words = [NETWORK, arguments.hosts, arguments.rate, *JOINED, arguments.program.absolute(), "burn-in", *flags, "--json", folder / "burn_in.json"]
    run = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                           env={**os.environ, "HOSTS_FOLDER": str(folder)})
    try:
        said = watched(run, arguments, hosts, kind, host, folder)
    finally:
        if run.poll() is None:  # Ctrl-C: the hosts go as well
            os.killpg(run.pid, signal.SIGTERM)
            run.communicate()
    if run.returncode not in (0, 1, 3):
        sys.exit(f"placements.py: a run failed with status {run.returncode}:\n{said}")
    return json.loads((folder / "burn_in.json").read_text())


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[3])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="healthy,stopped,competing")
    words = [*sys.argv[1:], "--"]
    end = words.index("--")
    arguments, flags = parser.parse_args(words[:end]), words[end + 1 : -1] or ["--passes", "3"]
    kinds = arguments.kinds.split(",")
    if arguments.hosts < 3 or arguments.runs < 1 or not set(kinds) <= {"healthy", "stopped", "competing"}:
        parser.error("use 3 hosts or more, one run or more, and the kinds healthy, stopped and competing")
    if not (GROUPS / "cpu.cfs_quota_us").exists() and not (GROUPS / "cgroup.procs").exists():
        sys.exit(f"placements.py: no control group {GROUPS}: mount it, as root: mount -t cgroup -o cpu none {GROUPS}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("placements.py: stopped"))  # removes the hosts and groups
    chance = random.Random(arguments.seed)
    right, runs = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
    hosts = Hosts(arguments.hosts)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for run in range(arguments.runs):
                host = chance.randrange(arguments.hosts)
                for kind in kinds:
                    file = findings(arguments, flags, hosts, kind, host, folder)
                    names = [entry["host"] for entry in file["hosts"]]
                    named = {name for finding in file["findings"] for name in finding["hosts"]}
                    # A finding that names no host says only that something is slow.
                    is_right = named == {names[host]} if kind != "healthy" else not file["findings"]
                    right[kind] += is_right
                    runs[kind] += 1
                    if not is_right:
                        print(f"run {run}, {kind} host {host}:", *[f"{each['code']} {each['text']}" for each in file["findings"]] or ["nothing named"],
                              sep="\n  ", flush=True)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        hosts.remove()
    for kind, number in right.items():
        print(f"{kind:<10} {number} of {runs[kind]} right")
    return 0 if all(number == arguments.runs for number in right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
