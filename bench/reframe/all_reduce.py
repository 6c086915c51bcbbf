"""A ReFrame test: bandwidth and latency of an all-reduce, read from the CSV file of `lockstep bench`.

reframe -c bench/reframe/all_reduce.py -r
"""

import csv

import reframe as rfm
from reframe.core.builtins import parameter, performance_function, run_before, sanity_function, variable
import reframe.utility.sanity as sn


@rfm.simple_test
class AllReduce(rfm.RunOnlyRegressionTest):
    descr = "all-reduce among the ranks of a job"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "lockstep"
    algorithm = parameter(["ring", "recursive_doubling"])
    # Set them with -S AllReduce.ranks=8. Under Slurm or mpirun, where the job decides, ranks is 0.
    ranks = variable(int, value=2)
    smallest, largest = variable(str, value="8"), variable(str, value="4M")
    flags = variable(str, value="")
    # Lower and upper bounds belong to one system and its network; see the README.
    reference = {"*": {"busbw": (0, None, None, "GB/s"), "latency": (0, None, None, "us")}}

    @run_before("run")
    def set_command(self):
        ranks = ["--ranks", str(self.ranks)] if self.ranks > 0 else []
        self.executable_opts = ["bench", "all_reduce", *ranks, "-b", self.smallest, "-e", self.largest, "-f", "8", "--algorithm", self.algorithm,
                                *self.flags.split(), "--csv", "all_reduce.csv", "--junit", "all_reduce.xml"]
        self.keep_files = ["all_reduce.csv", "all_reduce.xml"]

    def rows(self):
        """Out of place, the smallest size first."""
        with open(f"{self.stagedir}/all_reduce.csv", newline="") as file:
            return sorted((row for row in csv.DictReader(file) if row["in_place"] == "0"), key=lambda row: int(row["bytes"]))

    @sanity_function
    def every_element_is_right(self):
        rows = self.rows()
        return sn.and_(sn.assert_gt(len(rows), 0, "all_reduce.csv has no rows"),
                       sn.assert_eq([row["bytes"] for row in rows if float(row["wrong"]) > 0], [], "sizes with wrong elements: {0}"))

    @performance_function("GB/s")
    def busbw(self):
        return float(self.rows()[-1]["busbw_gb_per_s"])

    @performance_function("us")
    def latency(self):
        return float(self.rows()[0]["p50_us"])
