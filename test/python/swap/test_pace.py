"""Swapping without a limit must not cost time: plans that do are made again to save less, and in the end given up."""

import random
import unittest

from fake_gpu import FakeBackend
from support import FAKE, Run, SwapCase, plain

STEPS = 60


class TimedBackend(FakeBackend):
    """The time of a step is what `takes(manager)` said when it ended."""

    def __init__(self, takes):
        super().__init__("random", 3)
        self.takes = takes
        self.manager = None

    def event(self, stream, timing=False):
        made = super().event(stream, timing)
        if timing:
            made.step = self.manager.steps.done
            made.takes = self.takes(self.manager.steps)
        return made

    def elapsed_us(self, first, second):
        return second.takes if second.step == first.step + 1 else 0.0


@unittest.skipUnless(FAKE, "times are made up")
class PaceCase(SwapCase):
    def train(self, takes, steps=STEPS):
        program = plain(steps)
        expected = program()
        run = Run("plan", debug=False)
        run.backend = TimedBackend(takes)
        run.options.tolerance = 0.01
        with run:
            run.backend.manager = run.manager
            found = program()
            self.assertIsNone(run.manager.stopped)
            run.phase = run.manager.phase
            run.hooked = run.manager.hooks.pushed
        self.assertEqual(expected[0], found[0])
        return run

    def shares(self, run):
        return [round(profile["share"], 3) for profile in run.profiles]

    def test_what_costs_little_stays(self):
        run = self.train(lambda steps: 1000 * (1.005 if steps.following else 1))
        self.assertEqual(self.shares(run), [1])
        self.assertGreater(run.report["stepsPlanned"], STEPS // 2)
        self.assertEqual(run.marks.count("weir swap settled"), 1)
        self.assertEqual({name: round(us) for name, us in run.report["stepUs"].items()}, {"plain": 1000, "planned": 1005})

    def test_what_costs_more_is_planned_to_save_less(self):
        run = self.train(lambda steps: 1000 * (1 + 0.02 * steps.share if steps.following else 1))
        self.assertEqual(self.shares(run), [1, 0.3])
        self.assertEqual(run.phase, "following")
        self.assertEqual(run.report["misses"], 0)

    def test_what_always_costs_is_given_up(self):
        run = self.train(lambda steps: 1000 * (1.05 if steps.following else 1))
        self.assertEqual(self.shares(run), [1, 0.25])
        self.assertEqual(run.phase, "resting")
        self.assertFalse(run.hooked)
        self.assertIn("weir swap plan given up", run.marks)

    def test_uneven_steps_are_not_blamed_on_the_plan(self):
        draw = random.Random(5)
        run = self.train(lambda steps: draw.uniform(900, 1100) + (5 if steps.following else 0))
        self.assertEqual(self.shares(run), [1])

    def test_with_a_limit_time_does_not_count(self):
        program = plain(30)
        run = Run("limit", debug=False)
        run.backend = TimedBackend(lambda steps: 1000 * (1.5 if steps.following else 1))
        run.options.tolerance = 0.01
        with run:
            run.backend.manager = run.manager
            program()
        self.assertEqual(len(run.profiles), 1)


if __name__ == "__main__":
    unittest.main()
