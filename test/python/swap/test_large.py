"""The trainings of test/gpu/torch/large.py, as small as they get, and what that script makes of the figures of a run."""

import copy
import io
import json
import os
import random
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from unittest import mock

from support import DEVICE, FAKE, HERE, ORDERS, SwapCase, swapped

sys.path.insert(0, os.path.join(HERE, "..", "..", "gpu", "torch"))

import large
import large_figures
import torch.distributed as dist
from large_models import WORKLOADS, Job, Trainer, tiny
from swap_runs import GIB, OutOfMemory, StepLog, Verdicts

STEPS = 10


def program_of(name, compiler="aot_eager"):
    def program():
        trainer = Trainer(tiny(WORKLOADS[name]), DEVICE, compiler=compiler)
        log = StepLog(DEVICE)
        for _ in range(STEPS):
            with log.step() as read:
                trainer.step(read)
        tensors = [parameter.to_local() if hasattr(parameter, "to_local") else parameter for parameter in trainer.net.parameters()]
        return log.losses, [tensor.detach().clone() for tensor in tensors]

    return program


@unittest.skipUnless(FAKE, "the script itself runs on a GPU")
class Workloads(SwapCase):
    def test_same_values(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            for name in WORKLOADS:
                # The other modes have tests of their own.
                with self.subTest(name):
                    self.same(program_of(name), "plan", orders=ORDERS[:1], check=swapped)
        finally:
            dist.destroy_process_group()


def told(steps=30, time=0.4, peak=30 * GIB, planned_from=None, slow=(), bound=None, **more):
    """What one rank tells."""
    planned = [max(0, step + 2 - planned_from) if planned_from else 0 for step in range(steps)]
    low = peak if planned_from is None else 0.6 * peak
    report = None
    if planned_from is not None:
        expected = {"peak": low, "bound": {"peak": bound if bound is not None else 0.98 * low}}
        report = {"stopped": None, "stalls": 0, "misses": 0, "phase": "following", "expected": expected, "checked": 5}
    return {
        "losses": [float(step).hex() for step in range(steps)],
        "weights": "w",
        "times": [time + (1.0 if step == 0 else 0.0) + (0.3 if step in slow else 0.0) for step in range(steps)],
        "peaks": [low if count else peak - (1 if planned_from else 0) for count in planned],
        "reserved": [peak] * steps,
        "planned": planned,
        "report": report,
        **more,
    }


def verdicts_of(native, ours):
    verdicts = Verdicts(say=lambda line: None)
    large_figures.judge("it", large_figures.compare([[native]], [ours]), verdicts)
    return [row["words"] for row in verdicts.all if not row["good"]]


class Judging(unittest.TestCase):
    def test_a_run_that_keeps_all_promises(self):
        self.assertEqual(verdicts_of(told(), told(planned_from=9)), [])

    def test_each_broken_promise_is_named(self):
        ours = told(planned_from=9)

        def changed(**what):
            made = copy.deepcopy(ours)
            made.update(what)
            return made

        losses = list(ours["losses"])
        losses[20] = (0.1).hex()
        stopped = copy.deepcopy(ours["report"])
        stopped["stopped"] = "an error"
        broken = {
            "they differ from step 21": changed(losses=losses),
            "weights at the end differ": changed(weights="other"),
            "ended early: an error": changed(report=stopped),
            "first planned step: 12": told(planned_from=12),
            "first planned step: None": changed(planned=[0] * 30),
            "longest pause 300.0 ms, in step 6": told(planned_from=9, slow=[5]),
            "before the plan take 1.100": changed(times=[1.4, *[0.44] * 7, *[0.4] * 22]),
            "step time 1.020": changed(times=[1.4, *[0.4] * 7, *[0.408] * 22]),
            "settled peak allocated: 21.00": changed(peaks=[*[30 * GIB - 1] * 8, *[21 * GIB] * 22]),
            "whole run: 30.00 GiB, 1.000": changed(peaks=[30 * GIB, *ours["peaks"][1:]]),
        }
        for words, run in broken.items():
            with self.subTest(words):
                found = verdicts_of(told(), run)
                self.assertEqual(len(found), 1, found)
                self.assertIn(words, found[0])

    def test_a_bound_that_allows_less_than_a_third(self):
        near, far = told(planned_from=9), told(planned_from=9)
        for run, peak in ((near, 26 * GIB), (far, 27 * GIB)):
            run["peaks"] = [*[30 * GIB - 1] * 8, *[peak] * 22]
            run["report"]["expected"]["bound"]["peak"] = 25 * GIB
        self.assertEqual(verdicts_of(told(), near), [])
        self.assertIn("+8.0 % from it", verdicts_of(told(), far)[0])

    def test_the_slowest_rank_and_the_highest_peak_count(self):
        one, other = told(planned_from=9), told(planned_from=10, time=0.5, peak=28 * GIB)
        other["losses"] = ["0x1p+0"] * 30
        figures = large_figures.compare([[told(), {**told(), "losses": other["losses"]}]], [one, other])
        self.assertEqual(figures["inUseAt"], 10)
        self.assertAlmostEqual(figures["stepRatio"], 1.25)
        self.assertEqual(figures["memory"]["peaks"]["swapped"]["settled"], 0.6 * 30 * GIB)
        self.assertIsNone(figures["same"]["firstDifferent"])
        other["losses"][3] = "0x1p+1"
        self.assertEqual(
            large_figures.compare([[told(), {**told(), "losses": ["0x1p+0"] * 30}]], [one, other])["same"]["firstDifferent"], 4
        )


class Searching(unittest.TestCase):
    def test_finds_the_smallest_size(self):
        drawn = random.Random(4)
        for _ in range(100):
            low, high, needs, at_once = 100, drawn.randint(500, 3000), drawn.randint(101, 480), drawn.randint(1, 4)
            tried = []

            def trains(size, count):
                tried.append(size)
                self.assertLessEqual(count, at_once)
                return size >= needs

            trained, failed = large_figures.search(trains, low, high, 20, at_once)
            self.assertGreaterEqual(trained, needs)
            self.assertLess(failed if failed is not None else low, needs)
            self.assertLessEqual(trained - (failed if failed is not None else low), 20)
            self.assertEqual(len(set(tried)), len(tried))

    def test_where_nothing_trains_or_time_is_over(self):
        self.assertEqual(large_figures.search(lambda size, count: False, 10, 100, 5, 2), (None, 100))
        self.assertEqual(large_figures.search(lambda size, count: None, 10, 100, 5, 2), (None, None))
        answers = iter([True, False, None])
        self.assertEqual(large_figures.search(lambda size, count: next(answers), 0, 100, 5, 1), (100, 50))


class Script(unittest.TestCase):
    def run_script(self, *words, runner):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as said:
            path = os.path.join(folder, "figures.json")
            options = large.options_of([*words, "--json", path])
            code = large.Comparison(options, runner=runner).go()
            with open(path, encoding="utf-8") as file:
                return code, said.getvalue(), json.load(file)

    def test_parts_in_one_go(self):
        seen = []

        def runner(job, flags, environment):
            seen.append((job.workload, flags, environment))
            limit = flags and "--limit" in flags
            size = int(flags[1][:-3]) << 20 if limit else job.fraction
            if size and size < (12 if limit else 20) * GIB:
                raise OutOfMemory("none left")
            ranks = job.resolved().ranks
            return [told(job.steps, planned_from=9 if flags else None) for _ in range(ranks)]

        code, said, whole = self.run_script("timed", "debug", "limits", "--only", "opt1b3,fsdp2", "--steps", "30", runner=runner)
        self.assertEqual(code, 0, said)
        # Debugging and limits are compared with the runs that were timed.
        self.assertEqual(sum(flags is None and environment is None for _, flags, environment in seen), 4)
        self.assertEqual(sum(bool(environment and "WEIR_SWAP_DEBUG" in environment) for _, _, environment in seen), 2)
        limits = whole["workloads"]["opt1b3"]["limits"]
        self.assertNotIn("offload", limits)
        self.assertIn("offload", whole["workloads"]["fsdp2"]["limits"])
        self.assertLess(limits["weir"]["failed"], 12 * GIB)
        self.assertTrue(12 * GIB <= limits["weir"]["bytes"] < 13 * GIB < 20 * GIB <= limits["native"]["bytes"] < 21 * GIB, limits)
        self.assertEqual(whole["verdicts"], [row for row in whole["verdicts"] if row["good"]])

    def test_no_run_starts_after_the_budget(self):
        code, said, whole = self.run_script("--seconds", "0", "--only", "vitl", runner=lambda *_: self.fail("a run started"))
        self.assertEqual(code, 0)
        self.assertIn("vitl, native", whole["leftOut"])
        self.assertIn("left out", said)

    def test_a_run_that_fails_is_a_failure(self):
        def runner(job, flags, environment):
            if flags:
                raise RuntimeError("ended with 1: no GPU")
            return [told(job.steps)]

        code, said, _ = self.run_script("--only", "vitl", runner=runner)
        self.assertEqual(code, 1)
        self.assertIn("FAIL vitl, --swap auto: RuntimeError: ended with 1: no GPU", said)

    def test_ranks_in_processes_of_their_own(self):
        ranks = large.run_job(Job("fsdp2", 2, "cpu", True))
        self.assertEqual([len(rank["losses"]) for rank in ranks], [2, 2])
        self.assertNotEqual(ranks[0]["losses"], ranks[1]["losses"])
        with self.assertRaisesRegex(RuntimeError, "ended with 1: .*no workload of this name"):
            with mock.patch.object(large, "command", lambda job, port: [sys.executable, "-c", "exit('no workload of this name')"]):
                large.run_job(Job("vitl", 2, "cpu", True))

    def test_groups_fit(self):
        sizes = {"a": 50, "b": 60, "c": 40, "d": 200, "e": 10}
        self.assertEqual(large.groups(list(sizes), sizes.get, 125), [["a", "b"], ["c"], ["d"], ["e"]])


if __name__ == "__main__":
    unittest.main()
