"""Lockstep under srun, with a Slurm of its own on this machine: its processes join one world, or are refused by name.

python3 slurm_test.py PROGRAM
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv[1]
TRAIN = ["train", "ddp", "--global-batch", "4", "--steps", "2", "--json", "r.json"]
NEEDED = ("munged", "slurmctld", "slurmd", "srun")
CONFIG = """
ClusterName=lockstep
SlurmctldHost={host}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
NodeName=a NodeHostname={host} Port={ports[1]} CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=1000
NodeName=b NodeHostname={host} Port={ports[2]} CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES
"""


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in NEEDED if not shutil.which(name)]
        if missing or os.geteuid() != 0:
            raise unittest.SkipTest(f"needs root, and {', '.join(missing) or 'nothing else'}")
        # Slurm trusts only folders that others may not write to: not those in /tmp, which munged also refuses.
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-", dir="/run"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.folder.chmod(0o711)
        for name in ("state", "spool", "work"):
            (cls.folder / name).mkdir()
        key = cls.folder / "munge.key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        host = socket.gethostname().split(".")[0]
        config = cls.folder / "slurm.conf"
        config.write_text(CONFIG.format(host=host, ports=free_ports(3), folder=cls.folder))
        cls.environment = {**os.environ, "SLURM_CONF": str(config)}
        cls.daemons = []
        cls.addClassCleanup(cls.stop)
        cls.start("munged", "--foreground", "--force", "--key-file", key, "--socket", cls.folder / "munge.socket", "--pid-file",
                  cls.folder / "munged.pid", "--log-file", cls.folder / "munged.log", "--seed-file", cls.folder / "munged.seed")
        cls.wait_until(lambda: (cls.folder / "munge.socket").exists(), "munged")
        cls.start("slurmctld", "-D", "-f", config)
        for node in "ab":
            (cls.folder / "spool" / node).mkdir()
            cls.start("slurmd", "-D", "-f", config, "-N", node)
        cls.wait_until(lambda: cls.run_command("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"],
                       "slurmctld and two slurmd")

    @classmethod
    def start(cls, *words):
        with open(cls.folder / f"{words[0]}.{len(cls.daemons)}.out", "w") as out:
            cls.daemons.append(subprocess.Popen(list(map(str, words)), env=cls.environment, stdout=out, stderr=out))

    @classmethod
    def wait_until(cls, ready, what):
        deadline = time.monotonic() + 30
        while not ready():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1000:]}" for log in cls.folder.glob("*.o*"))
                raise RuntimeError(f"{what} did not start: {logs}")
            time.sleep(0.1)

    @classmethod
    def stop(cls):
        for daemon in reversed(cls.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in cls.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    @classmethod
    def run_command(cls, *words):
        return subprocess.run(list(map(str, words)), env=cls.environment, cwd=cls.folder / "work", capture_output=True, text=True,
                              errors="replace", timeout=90)

    def srun(self, way, *words, ranks=2):
        # The daemons of PMIx cannot share a host.
        nodes = 1 if way == "pmix" else min(ranks, 2)
        done = self.run_command("srun", f"--mpi={way}", "-N", nodes, "-n", ranks, PROGRAM, *words)
        return done.returncode, done.stdout + done.stderr

    def trained(self):
        """The losses and norms of the last run, whose result is then removed."""
        file = self.folder / "work" / "r.json"
        result = json.loads(file.read_text())
        file.unlink()
        self.assertEqual(len(result["ranks"]), 2)
        steps = [(step["loss"], step["grad_norm"]) for step in result["steps"]]
        self.assertEqual(len(steps), 2)
        return steps

    def test_processes_join_one_world(self):
        self.assertEqual(self.run_command(PROGRAM, *TRAIN, "--ranks", "2").returncode, 0)
        of_threads = self.trained()
        for way in ("pmix", "pmi2"):
            with self.subTest(way=way):
                status, said = self.srun(way, *TRAIN)
                self.assertEqual(status, 0, said)
                self.assertEqual(said.count("ddp: 2 ranks over mpi"), 1, said)
                self.assertEqual(self.trained(), of_threads)

    def test_separate_processes_are_refused(self):
        status, said = self.srun("none", *TRAIN)
        self.assertEqual(status, 2, said)
        self.assertIn("srun started 2 processes (SLURM_STEP_NUM_TASKS=2)", said)
        self.assertIn("--mpi=pmix", said)
        self.assertFalse((self.folder / "work" / "r.json").exists())
        self.assertEqual(self.srun("none", "bench", "all_reduce", "-e", "64")[0], 2)
        # One process is a run as any other.
        status, said = self.srun("none", *TRAIN, "--ranks", "3", "--global-batch", "3", ranks=1)
        self.assertEqual(status, 0, said)
        self.assertIn("ddp: 3 ranks over threads", said)

    def test_a_batch_script_is_one_process(self):
        script = self.folder / "work" / "script"
        script.write_text(f"#!/bin/sh\n{PROGRAM} {' '.join(TRAIN)} --ranks 2\n")
        done = self.run_command("sbatch", "--wait", "-n", "4", "-o", "script.out", script)
        said = (self.folder / "work" / "script.out").read_text()
        self.assertEqual(done.returncode, 0, said + done.stderr)
        self.assertIn("ddp: 2 ranks over threads", said)
        self.trained()

    def test_examples(self):
        """The scripts of bench/cluster: a job that compares with the last one, and mpirun inside a job."""
        work = self.folder / "work"
        (work / "bin").mkdir()
        (work / "bin" / "lockstep").symlink_to(PROGRAM)
        examples = pathlib.Path(__file__).resolve().parents[2] / "bench" / "cluster"
        environment = {"PATH": f"{work}/bin:{os.environ['PATH']}", "LOCKSTEP_MPI": "pmi2", "LOCKSTEP_LARGEST": "16K",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        flags = ["--wait", "-N", "2", "--export", ",".join(["ALL", *(f"{name}={value}" for name, value in environment.items())])]
        for name, words, status in (("all_reduce", [], {0}), ("all_reduce", [], {0, 3}), ("mpirun", ["mpirun.mpich"], {0})):
            with self.subTest(example=name):
                done = self.run_command("sbatch", *flags, "-o", "example.out", examples / f"{name}.sbatch", *words)
                said = (work / "example.out").read_text()
                self.assertIn(done.returncode, status, said + done.stderr)
                self.assertIn("2 ranks over mpi", said)
        self.assertEqual(len(list((work / "results").glob("*.json"))), 2)
        self.assertIn("all_reduce", said)

    def test_wrong_numbers_and_flags(self):
        for way in ("pmix", "pmi2"):
            with self.subTest(way=way):
                status, said = self.srun(way, *TRAIN, "--ranks", "4")
                self.assertEqual(status, 2, said)
                self.assertIn("--ranks 4, and", said)
                self.assertIn("started 2 processes", said)
                status, said = self.srun(way, *TRAIN, "--bogus")
                self.assertEqual(status, 2, said)
                self.assertEqual(said.count("lockstep: "), 1, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
