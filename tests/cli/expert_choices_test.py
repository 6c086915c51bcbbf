"""--expert-choices of lockstep plan and of dry runs: a run's own counts, what is printed, and what is refused.

python3 expert_choices_test.py PROGRAM SOURCE_FOLDER
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
RUN = ("moe", "--ranks", "2", "--global-batch", "4", "--sequence-length", "16")
TINY = ("--model", str(SOURCE / "tests" / "golden" / "tiny_moe" / "config.json"))


class ExpertChoices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.summary = cls.lockstep(cls(), "train", *RUN, "--steps", "3", "--json", "run.json")
        cls.layers = cls.read("run.json")["steps"][-1]["tokens_of_experts"]

    def lockstep(self, *words, status=0):
        done = subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    @classmethod
    def read(cls, name):
        return json.loads((cls.path / name).read_text())

    def loads(self, *words):
        """The rows of each rank's experts that a plan prints, and how often the mean the busiest has."""
        said = self.lockstep("plan", *RUN, *words)
        found = re.search(r"the experts of ranks \[0,1\] get \[(\d+),(\d+)\] rows; the busiest, rank (\d), (\S+) times the mean "
                          r"\(MaxVio (\S+)\)", said)
        self.assertAlmostEqual(float(found[4]) - 1, float(found[5]), 6)
        rows = [int(found[1]), int(found[2])]
        self.assertEqual(rows[int(found[3])], max(rows))
        self.assertEqual(found[4], f"{2 * max(rows) / sum(rows):.2f}")
        return rows, said

    def test_the_summary_names_the_busiest_rank(self):
        rows = [rank["expert_rows"] for rank in self.read("run.json")["ranks"]]
        self.assertEqual(sum(rows), sum(map(sum, self.layers)))
        self.assertIn(f"rank {rows.index(max(rows))} was the busiest: {max(rows)} rows, {2 * max(rows) / sum(rows):.2f} times the mean of its group\n",
                      self.summary)

    def test_the_plan_of_a_run_has_its_rows(self):
        for words, times in (((), 1), (("--micro-batches", "2"), 1), (("--global-batch", "8"), 2)):
            rows, said = self.loads("--expert-choices", "run.json", *words)
            self.assertIn(", if experts are chosen as in run.json", said)
            expected = [times * sum(sum(layer[first:first + 4]) for layer in self.layers) for first in (0, 4)]
            if words[:1] == ("--micro-batches",):  # each rounds by itself
                self.assertEqual(sum(rows), sum(expected))
                self.assertLess(abs(rows[0] - expected[0]), 2 * 4 * len(self.layers))
            else:
                self.assertEqual(rows, expected)
        rows, said = self.loads()
        self.assertEqual(rows[0], rows[1])
        self.assertIn(", if experts are chosen in turn", said)
        rows, said = self.loads("--expert-choices", "zipf:2")
        self.assertGreater(rows[0], 2 * rows[1])
        self.assertIn(", if experts are drawn by zipf:2", said)

    def test_a_dry_run_sends_what_the_plan_says(self):
        for choices in ("run.json", "zipf:1", "in_turn"):
            words = (*RUN, "--expert-choices", choices)
            self.lockstep("plan", *words, "--rank", "1", "--json", "plan.json")
            said = self.lockstep("train", *words, "--device", "none", "--rank", "1", "--json", "dry.json")
            self.assertRegex(said, r"without losses and times; assumed: experts are (chosen|drawn) (in turn|by zipf:1|as in run.json)\n")
            (rank,), (planned,) = self.read("dry.json")["ranks"], self.read("plan.json")["predictions"]
            self.assertEqual(rank["rank"], 1)
            for key in ("sent_bytes", "received_bytes", "sent_messages", "received_messages"):
                self.assertEqual(rank[key], planned[key])

    def test_a_plan_states_its_choices_and_can_be_trained(self):
        self.lockstep("plan", *RUN, "--expert-choices", "zipf:1.5", "--json", "planned.json")
        self.assertEqual(self.read("planned.json")["options"]["expert_choices"], "zipf:1.5")
        self.lockstep("train", "--plan", "planned.json", "--steps", "1")

    def test_it_refuses(self):
        (self.path / "cut.json").write_text((self.path / "run.json").read_text()[:-100])
        plan = ("plan", *RUN)
        for words, part in (((*plan, "--expert-choices", "cut.json"), "cut.json: it is not a result of lockstep train, or not all of it"),
                            ((*plan, "--expert-choices", "none.json"), "none.json: there is no such file"),
                            ((*plan, *TINY, "--expert-choices", "run.json"), "run.json: 4 layers with experts, and the model has 2"),
                            ((*plan, "--expert-choices", "zipf:-1"), "zipf:-1; use zipf:Z with Z from 0 to 10"),
                            ((*plan, "--expert-choices", "zipf:inf"), "zipf:inf; use zipf:Z with Z from 0 to 10"),
                            (("plan", "3d", "--ranks", "2", "--expert-choices", "zipf:1"), "--expert-choices has no effect here"),
                            (("train", *RUN, "--expert-choices", "zipf:1"), "--expert-choices with --device host; routers choose")):
            self.assertIn(part, self.lockstep(*words, status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
