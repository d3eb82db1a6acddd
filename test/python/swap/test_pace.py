"""Swapping without a limit must not cost time: a plan that does is replaced by one that saves less, and in the end by none."""

import random
import unittest

from fake_gpu import FakeBackend
from support import FAKE, WIDTH, Run, SwapCase, Training, plain, trained

STEPS = 60


def share_in(steps):
    return steps.judge.share_of(steps.following.key)


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
    def train(self, takes, batches=(None,) * STEPS, **options):
        """Trains with batches of these sizes, where a step takes what `takes` says."""

        def program():
            training = Training()
            for batch in batches:
                loss = training.loss(batch)
                loss.backward()
                training.finish(loss)
            return training.result()

        expected = program()
        run = Run("plan", debug=False, **options)
        run.backend = TimedBackend(takes)
        run.options.tolerance = 0.01
        with run:
            run.backend.manager = run.manager
            found = program()
            self.assertIsNone(run.manager.stopped)
            run.phase = run.manager.phase
            run.hooked = run.manager.hooks.pushed
            run.slab = run.manager.copies.slab
            run.items = len(run.manager.guard.items)
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
        run = self.train(lambda steps: 1000 * (1 + 0.02 * share_in(steps) if steps.following else 1))
        self.assertEqual(self.shares(run), [1, 0.3])
        self.assertEqual(run.phase, "following")
        self.assertEqual(run.report["misses"], 0)

    def test_what_costs_a_multiple_is_given_up_at_once(self):
        """After four steps that count, although some steps before them had to wait."""
        run = self.train(lambda steps: 1000 * (1.4 if steps.following else 5 if steps.done % 4 == 3 else 1))
        self.assertEqual(self.shares(run), [1])
        self.assertEqual(run.phase, "resting")
        self.assertLess(run.report["stepsPlanned"], 10)

    def test_uneven_steps_take_longer_to_judge(self):
        """A plan that costs twice what it may, among steps that differ by more than that."""
        given_up = 0
        for seed in range(8):
            draw = random.Random(seed)
            takes = lambda steps, draw=draw: draw.uniform(985, 1015) * (1.02 if steps.following and share_in(steps) == 1 else 1)  # noqa: E731
            run = self.train(takes, (None,) * 130)
            given_up += len(self.shares(run)) > 1
        self.assertGreaterEqual(given_up, 7)

    def test_what_always_costs_is_given_up(self):
        run = self.train(lambda steps: 1000 * (1.05 if steps.following else 1))
        self.assertEqual(self.shares(run), [1, 0.25])
        self.assertEqual(run.phase, "resting")
        self.assertFalse(run.hooked)
        self.assertIn("weir swap plan given up", run.marks)
        # Nothing is held for what will not be swapped.
        self.assertEqual([run.items, run.slab.capacity], [0, 0])

    def test_uneven_steps_are_not_blamed_on_the_plan(self):
        for seed in range(4):
            draw = random.Random(seed)
            run = self.train(lambda steps, draw=draw: draw.uniform(900, 1100), (None,) * 150)
            self.assertEqual(self.shares(run), [1], seed)

    def test_a_plan_is_judged_once(self):
        """Later everything may take longer for other reasons."""
        run = self.train(lambda steps: 1000 if steps.done < 60 else 1100, (None,) * 120)
        self.assertEqual(self.shares(run), [1])

    def test_each_shape_is_judged_by_itself(self):
        short = WIDTH // 2
        # The plan of the first shape is kept for when that shape is used again.
        run = self.train(lambda steps: 1000 * (1.05 if steps.following else 1), (*(None,) * 11, *(short,) * 120))
        self.assertEqual(self.shares(run), [1, 1, 0.25])
        self.assertEqual([run.phase, run.marks.count("weir swap plan given up")], ["following", 1])
        self.assertLess(run.report["stepsPlanned"], 60)
        in_turn = self.train(
            lambda steps: 1000 * (1 + 0.02 * share_in(steps) if steps.following else 1), (*(None,) * 40, *(short,) * 60, *(None,) * 40)
        )
        self.assertEqual(self.shares(in_turn), [1, 0.3, 1, 0.3])
        self.assertEqual(in_turn.phase, "following")

    def test_many_shapes_are_not_planned(self):
        """Watching all steps would cost more than the plans of a few could save."""
        for seed in range(4):
            draw = random.Random(seed)
            shapes = [WIDTH + 8 * draw.randrange(11) for _ in range(60)]
            run = self.train(lambda steps: 1000, shapes)
            self.assertEqual([run.phase, run.hooked, run.report["stepsPlanned"]], ["resting", False, 0], seed)
            self.assertEqual([run.items, run.slab.capacity], [0, 0])

    def test_a_plan_that_fits_few_steps_is_given_up(self):
        draw = random.Random(1)
        run = self.train(lambda steps: 1000, [None] * 30 + [WIDTH + 8 * draw.randrange(1, 12) for _ in range(60)])
        self.assertGreater(run.report["stepsPlanned"], 10)
        self.assertEqual([run.phase, run.hooked], ["resting", False])
        self.assertIn("weir swap plan given up", run.marks)
        self.assertEqual([run.items, run.slab.capacity], [0, 0])

    def test_a_few_shapes_in_turn_are_planned(self):
        for kinds in (2, 3, 4):
            run = self.train(lambda steps: 1000, [WIDTH + 8 * (step % kinds) for step in range(90)])
            self.assertEqual([run.phase, run.hooked], ["following", True], kinds)
            self.assertGreater(run.report["stepsPlanned"], 5, kinds)

    def test_state_that_a_new_plan_does_not_swap_has_no_slot(self):
        def only(kind):
            def spoil(plan):
                plan["moves"] = [move for move in plan["moves"] if move["class"] == kind]
                plan["hostBytes"] = sum(move["size"] for move in plan["moves"])

            return spoil

        kinds = iter(("item", "record"))
        run = self.train(
            lambda steps: 1000 * (1.02 if steps.following and steps.following.items else 1),
            spoil=lambda plan: only(next(kinds))(plan),
        )
        self.assertEqual(self.shares(run), [1, 0.3])
        self.assertEqual(run.slab.used, 0)

    def test_a_plan_to_save_less_that_cannot_be_used(self):
        made = []

        def spoil(plan):
            made.append(plan)
            plan["version"] = 1 if len(made) == 1 else 7

        run = self.train(lambda steps: 1000 * (1.02 if steps.following else 1), spoil=spoil)
        self.assertEqual([run.phase, run.marks.count("weir swap plan given up")], ["resting", 1])

    def test_a_shape_with_nothing_to_swap_is_watched_once(self):
        short = WIDTH // 2
        made = []

        def spoil(plan):
            made.append(plan["key"])
            if len(set(made)) == 2:
                plan["moves"] = []

        run = self.train(lambda steps: 1000, (*(None,) * 30, *(short,) * 80, *(None,) * 10), spoil=spoil)
        self.assertEqual(len(made), 2)
        self.assertEqual(run.phase, "following")

    def test_with_a_limit_time_does_not_count(self):
        program = plain(30)
        run = Run("limit", debug=False)
        run.backend = TimedBackend(lambda steps: 1000 * (1.5 if steps.following else 1))
        run.options.tolerance = 0.01
        with run:
            run.backend.manager = run.manager
            program()
        self.assertEqual(len(run.profiles), 1)


class MarkCase(SwapCase):
    def test_steps_are_marked_whatever_becomes_of_swapping(self):
        with Run("plan") as run:
            training = trained(6)
            run.manager.stop("a test", report=False)
            for i in range(4):
                training.step(i)
        self.assertEqual(run.marks.count("weir step"), 10)
        self.assertEqual(run.marks.count("weir swap settled"), 1)
        self.assertEqual([run.steps[0], run.steps[-1]], [(1, False), (10, True)])
        self.assertEqual(sorted(run.steps), run.steps)

    def test_where_all_tensors_are_small(self):
        with Run("plan", least=1 << 40) as run:
            trained(12)
        self.assertEqual(run.marks.count("weir step"), 12)
        self.assertEqual(run.marks.count("weir swap settled"), 1)
        self.assertEqual([run.steps[0], run.steps[-1]], [(1, False), (12, True)])


if __name__ == "__main__":
    unittest.main()
