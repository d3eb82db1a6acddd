"""How soon a plan is used, counted in steps, and what the steps before it do."""

import os
import sys
import unittest

from support import FAKE, LEAST, Run, SwapCase, Training, plain
from test_pace import TimedBackend
from weir_gpu.swap import pace

OURS = os.path.dirname(pace.__file__)
TOLERANCE = 0.01


class Watching(TimedBackend):
    """Counts what is asked of it, step by step."""

    def __init__(self, takes=lambda steps: 1000):
        super().__init__(takes)
        self.waits_of_the_host = []
        self.asked_for_memory = {}

    def synchronize(self):
        self.waits_of_the_host.append(self.manager.steps.done)
        super().synchronize()

    def take_peak(self):
        done = self.manager.steps.done
        self.asked_for_memory[done] = self.asked_for_memory.get(done, 0) + 1
        return super().take_peak()


def run_of(mode="plan", tolerance=TOLERANCE, takes=lambda steps: 1000, **options):
    run = Run(mode, debug=False, **options)
    run.backend = Watching(takes)
    run.options.tolerance = tolerance
    return run


def follow(run, steps, training=None):
    """Trains, and returns for each step whether it followed a plan from its beginning to its end."""
    followed = []
    with run:
        run.backend.manager = run.manager
        training = training or Training()
        for i in range(steps):
            before = swap_steps(run)
            training.step(i)
            followed.append(swap_steps(run) > before)
        run.result = training.result()
    return followed


def swap_steps(run):
    return run.manager.copies.counts["steps_planned"]


def first(followed):
    """Steps count from 1."""
    return followed.index(True) + 1


@unittest.skipUnless(FAKE, "times are made up")
class Sooner(SwapCase):
    def test_a_plan_is_used_within_ten_steps_of_the_first_one(self):
        expected = plain(16)()
        run = run_of()
        followed = follow(run, 16)
        # One step makes the state. Of the others, one shows memory, two show times, three are compared with.
        self.assertEqual(first(followed), 8)
        self.assertTrue(all(followed[7:]))
        self.assertEqual(expected[0], run.result[0])

    def test_where_time_does_not_count_it_is_used_as_soon_as_it_is_there(self):
        for mode, tolerance in (("plan", None), ("limit", TOLERANCE)):
            self.assertEqual(first(follow(run_of(mode, tolerance), 8)), 5, mode)

    def test_a_planner_that_takes_two_steps(self):
        run = run_of()
        take, asked = run.options.take_plan, []

        def slow():
            asked.append(1)
            return take() if len(asked) > 3 else None

        run.options.take_plan = slow
        self.assertEqual(first(follow(run, 14)), 9)

    def test_uneven_steps_are_looked_at_for_longer(self):
        run = run_of(takes=lambda steps: 800 if steps.done % 2 else 1200)
        self.assertEqual(first(follow(run, 24)), 8 + pace.MOST_PLAIN - pace.LEAST_PLAIN)

    def test_a_single_step_that_waited_for_something_else(self):
        run = run_of(takes=lambda steps: 1500 if steps.done == 6 else 1000)
        self.assertEqual(first(follow(run, 24)), 11)

    def test_a_kind_that_is_seen_too_rarely_to_compare_does_not_wait_for_ever(self):
        run = run_of()
        training = Training()
        sizes = [None] * 5 + [40 + 8 * (i % 6) for i in range(30)]
        with run:
            run.backend.manager = run.manager
            for size in sizes:
                loss = training.loss(size)
                loss.backward()
                training.finish(loss)
            self.assertIsNone(run.manager.steps.held)
            self.assertIsNone(run.manager.stopped)

    def test_under_a_limit_the_first_step_swaps(self):
        run = Run("limit", debug=False)
        with run:
            training = Training()
            loss = training.loss()
            self.assertGreater(run.manager.copies.counts["bytes_out"], 0)
            self.assertGreater(run.manager.copies.swapped_out, LEAST)
            loss.backward()
            training.finish(loss)
            # State leaves right after the optimizer's first step.
            self.assertTrue(any(item.state != 0 for item in run.manager.guard.items))

    def test_host_memory_is_pinned_after_the_first_step(self):
        run = run_of()
        with run:
            run.backend.manager = run.manager
            training = Training()
            training.step(0)
            slab, items = run.manager.copies.slab, run.manager.guard.items
            self.assertGreater(len(items), 3)
            self.assertGreaterEqual(slab.capacity, sum(item.size for item in items) // 2)

    def test_the_host_waits_once_while_steps_are_watched(self):
        run = run_of()
        follow(run, 12)
        # At the end of the fifth step, when its profile is sent. The link is measured then, which waits as well.
        self.assertEqual(set(run.backend.waits_of_the_host), {5})

    def test_memory_is_read_in_one_watched_step_only(self):
        run = run_of()
        follow(run, 8)
        asked = {step: count for step, count in run.backend.asked_for_memory.items() if count > 1}
        self.assertEqual(list(asked), [1])

    def test_what_watched_steps_cost(self):
        """In calls that swapping makes, compared with the same step when it is not watched. A call of Python takes about 0.1 us, so
        watching costs a few microseconds per tick, without the calls of CUDA: an event per tick, or memory figures in one step."""
        run = run_of(takes=lambda steps: 1000)
        calls = {}
        with run:
            run.backend.manager = run.manager
            training = Training()
            for i in range(7):
                count = 0

                def counted(frame, event, _argument):
                    nonlocal count
                    count += event in ("call", "c_call") and os.path.dirname(frame.f_code.co_filename) == OURS

                sys.setprofile(counted)
                try:
                    loss = training.loss()
                    loss.backward()
                finally:
                    sys.setprofile(None)
                calls[i + 1] = count, run.manager.steps.tick_count
                training.finish(loss)
        plain_calls, ticks = calls[3]
        self.assertGreater(ticks, 20)
        # Step 2 shows memory, steps 4 and 5 show times.
        for step, most in ((2, 30), (4, 12), (5, 12)):
            self.assertLess((calls[step][0] - plain_calls) / ticks, most, step)


if __name__ == "__main__":
    unittest.main()
