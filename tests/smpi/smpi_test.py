"""Our virtual time compared with SimGrid SMPI, which simulates MPI on a network of its own: the same algorithms, hosts and links.

python3 smpi_test.py PROGRAM SMPI_PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SMPI_PROGRAM = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
LATENCY_US, BANDWIDTH_GB = 10, 1.25
BYTES = 1 << 20
# Disables the factors that fit SMPI to a cluster of 2009, and the time that this machine computes.
SETTINGS = ["smpi/bw-factor:0:1.0", "smpi/lat-factor:0:1.0", "network/TCP-gamma:0", "network/crosstraffic:0", "smpi/simulate-computation:no"]
# A switch without cost: a message goes through its sender's cable and its receiver's, each with half of the latency.
PLATFORM = f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="node-" radical="0-{{last}}" suffix="" speed="1Gf" bw="{BANDWIDTH_GB}GBps" lat="{LATENCY_US / 2}us"/>
</platform>
"""


class Smpi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def simulated_by_smpi(self, algorithm, hosts):
        (self.folder / "platform.xml").write_text(PLATFORM.format(last=hosts - 1))
        (self.folder / "hosts").write_text("".join(f"node-{host}\n" for host in range(hosts)))
        done = subprocess.run(["smpirun", "-np", str(hosts), "-platform", "platform.xml", "-hostfile", "hosts",
                               *(f"--cfg={setting}" for setting in SETTINGS), "--log=root.thresh:critical",
                               SMPI_PROGRAM, algorithm, str(BYTES // 4)], cwd=self.folder, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return float(done.stdout.split()[-1])

    def simulated_by_us(self, algorithm, ranks):
        done = subprocess.run([PROGRAM, "bench", "all_reduce", "--clock", "unit", "--link", f"alpha={LATENCY_US}us,beta={BANDWIDTH_GB}GB/s",
                               "--ranks", str(ranks), "-b", str(BYTES), "-e", str(BYTES), "-n", "1", "-w", "0", "--device", "none",
                               "--algorithm", algorithm, "--json", "ours.json"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "ours.json").read_text())["benchmarks"][1]["p50_us"] / 1e6

    def test_both_simulate_the_same_time(self):
        for algorithm in ("ring", "halving_doubling"):
            for ranks in (64, 256):
                with self.subTest(algorithm=algorithm, ranks=ranks):
                    theirs, ours = self.simulated_by_smpi(algorithm, ranks), self.simulated_by_us(algorithm, ranks)
                    print(f"{algorithm}, {ranks} hosts: SMPI {theirs * 1e3:.4f} ms, here {ours * 1e3:.4f} ms, {ours / theirs - 1:+.3%}")
                    self.assertLess(abs(ours / theirs - 1), 0.005)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
