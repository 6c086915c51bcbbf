"""Virtual hosts on this machine: real processes over real TCP, and no network left over afterwards.

python3 network_test.py PROGRAM SOURCE_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
# Runs a program, then says what the link of this rank's host has carried.
COUNTED = ("sh", "-c", '"$@"; status=$?; awk -v rank=$OMPI_COMM_WORLD_RANK \'/eth0:/ { '
           'print "the link of rank " rank " carried " $2 " in, " $10 " out" }\' /proc/net/dev; exit $status', "sh")


def namespaces_work():
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "mpirun.openmpi"))):
        return False
    made = subprocess.run(["ip", "netns", "add", "lockstep-test"], capture_output=True).returncode == 0
    return made and subprocess.run(["ip", "netns", "del", "lockstep-test"], capture_output=True).returncode == 0


class Network(unittest.TestCase):
    def run_on(self, hosts, rate, *words):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([SOURCE / "bench" / "network.sh", str(hosts), rate, *words], cwd=folder, capture_output=True,
                                  text=True, timeout=120)

    def training_goes_over_the_links(self, hosts, *words):
        """Each host's link carries what its rank sends and receives in all steps, and what TCP and the start add."""
        steps = 3
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "result.json"
            done = self.run_on(hosts, "1gbit", *COUNTED, PROGRAM, "train", *words, "--steps", str(steps), "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            ranks = json.loads(path.read_text())["ranks"]
        carried = {int(host): (int(received), int(sent)) for host, received, sent in re.findall(
            r"^the link of rank (\d+) carried (\d+) in, (\d+) out$", done.stdout, re.MULTILINE)}
        self.assertEqual(set(carried), set(range(hosts)), done.stdout)
        for rank, (received, sent) in carried.items():
            self.assertGreater(received, steps * ranks[rank]["received_bytes"]["total"])
            self.assertGreater(sent, steps * ranks[rank]["sent_bytes"]["total"])

    def test_mpich_goes_over_the_links(self):
        rate, sent = 100e6 / 8, 1 << 18
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SOURCE / "bench" / "network.sh", "2", "100mbit", PROGRAM, "bench", "all_reduce", "-b", "256K", "-e", "256K", "-n", "3", "-w", "1",
                                   "--algorithm", "ring", "--json", "r.json"], cwd=folder, capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "MPI": "mpich", "BURST": "64k"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            file = json.loads((pathlib.Path(folder) / "r.json").read_text())
        self.assertIn("MPICH", json.loads(file["context"]["lockstep.environment"])["mpi"])
        self.assertEqual(len({rank["host"] for rank in file["ranks"]}), 2)
        # Of two ranks each sends the whole message in a ring.
        self.assertGreater(min(entry["p50_us"] for entry in file["benchmarks"]), 0.8e6 * sent / rate)
        refused = subprocess.run([SOURCE / "bench" / "network.sh", "2", "1gbit", "true"], capture_output=True, text=True, env={**os.environ, "MPI": "lam"})
        self.assertEqual((refused.returncode, refused.stderr), (2, "network.sh: MPI=lam: choose openmpi or mpich\n"))

    def test_wrong_numbers_are_refused(self):
        for words in ((0, "1gbit", "true"), ("four", "1gbit", "true"), (4, "1gbit")):
            done = self.run_on(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("usage:", done.stderr)
        for slow, part in (("3", "usage:"), ("a=1gbit", "usage:"), ("4=1mbit", "there is no host 4"), ("1-4=1mbit", "there is no host 4"),
                           ("1-1=1mbit", "two different hosts")):
            done = subprocess.run([SOURCE / "bench" / "network.sh", "--slow", slow, "4", "1gbit", "true"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(part, done.stderr)

    @unittest.skipUnless(namespaces_work(), "cannot make network namespaces here")
    def test_one_host_for_each_rank(self):
        before = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
        done = self.run_on(3, "1gbit", PROGRAM, "bench", "all_reduce", "-b", "4", "-e", "1M", "-f", "512", "-n", "2", "-w", "1",
                           "--algorithm", "ring,hierarchical,vendor")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        self.training_goes_over_the_links(3, "ddp", "--global-batch", "3")
        self.training_goes_over_the_links(4, "ps", "--servers", "2", "--global-batch", "2")
        self.assertEqual(self.run_on(2, "1gbit", PROGRAM, "train", "serial").returncode, 2)
        done = self.run_on(2, "fast", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot shape the links to 'fast'", done.stderr)
        self.assertEqual(subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout, before)

    @unittest.skipUnless(namespaces_work(), "cannot make network namespaces here")
    def test_link_that_goes_down(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "saved"
            started = subprocess.Popen([SOURCE / "bench" / "network.sh", "3", "1gbit", PROGRAM, "train", "ddp", "--global-batch", "3",
                                        "--steps", "1000000", "--timeout", "2", "--checkpoint", saved, "--checkpoint-interval", "1",
                                        "--keep", "1"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                deadline = time.monotonic() + 60
                while not list(saved.glob("step-*")) and time.monotonic() < deadline:
                    time.sleep(0.1)
                subprocess.run(["ip", "-n", f"ls{started.pid}1", "link", "set", "eth0", "down"], check=True)
                said, _ = started.communicate(timeout=90)
            finally:
                if started.poll() is None:
                    started.terminate()
                    started.communicate(timeout=30)
        self.assertEqual(started.returncode, 4, said)
        # In the ring rank 2 waits for rank 1. It cannot know which of the two reasons holds.
        self.assertIn("this rank cannot see the other hosts: rank 1 is late or stopped, or the network between the hosts is down", said)
        self.assertNotIn("never entered", said)
        self.assertNotIn("keeps the others waiting", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
