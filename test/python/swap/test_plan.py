"""Plans as such: the times they are made from, and how they are bent when copies turn out late."""

import unittest

from support import SwapCase  # noqa: F401  (puts weir on the path)
from weir_gpu.abi import SwapExpectation
from weir_gpu.swap.plan import Move, Plan
from weir_gpu.swap.profile import least_times

MB = 1_000_000


class Times(unittest.TestCase):
    def test_a_pause_in_one_of_the_steps_is_not_counted_on(self):
        steady = ([0.0, 100.0, 300.0], 400.0)
        paused = ([0.0, 100.0, 900.0], 1000.0)
        self.assertEqual(least_times([steady, paused]), ([0.0, 100.0, 300.0], 400.0))
        early = ([0.0, 700.0, 900.0], 1000.0)
        self.assertEqual(least_times([early, paused]), ([0.0, 100.0, 300.0], 400.0))

    def test_steps_that_are_not_watched_may_be_faster_but_no_slower(self):
        watched = ([0.0, 100.0, 300.0], 400.0)
        self.assertEqual(least_times([watched], 200.0), ([0.0, 50.0, 150.0], 200.0))
        self.assertEqual(least_times([watched], 800.0), ([0.0, 100.0, 300.0], 400.0))

    def test_steps_that_take_no_time_at_all(self):
        self.assertEqual(least_times([([0.0, 0.0], 0.0)], 5.0), ([0.0, 0.0], 0.0))


def planned(moves, peak, ticks=20):
    """Ticks of 100 us each; moves as (name, size, out, drop, back); nothing else is in memory."""
    load = [0] * ticks
    expected = SwapExpectation(from_=peak, peak=peak, stalls=0, stall_us=0, moved=0, period_us=100 * ticks, keeps_limit=True)
    plan = Plan("key", [0] * ticks, [0] * ticks, [0] * ticks, [100.0 * tick for tick in range(ticks)], load, expected)
    for number, (name, size, out, drop, back) in enumerate(moves):
        plan.moves[name] = Move(size, out, drop, back, number, number)
    plan.index()
    return plan


class Bending(unittest.TestCase):
    def test_returns_in_a_queue_all_come_earlier(self):
        # Three of 200 us each, begun one tick after the other: the last is 300 us late. The first of all was over long before.
        plan = planned([("alone", MB, 0, 1, 4), ("a", 2 * MB, 0, 1, 10), ("b", 2 * MB, 0, 1, 11), ("c", 2 * MB, 0, 1, 12)], 10 * MB)
        self.assertEqual(plan.swap_in_earlier(["c"], 300.0, rate=MB / 100), 3)
        self.assertEqual([plan.moves[name].back for name in ("alone", "a", "b", "c")], [4, 6, 7, 8])
        self.assertEqual(plan.backs, {4: ["alone"], 6: ["a"], 7: ["b"], 8: ["c"]})

    def test_of_returns_waited_for_together_the_last_counts(self):
        plan = planned([("a", MB, 0, 1, 6), ("b", MB, 0, 1, 12)], 10 * MB)
        self.assertEqual(plan.swap_in_earlier(["a", "b"], 50.0, rate=MB / 100), 1)
        self.assertEqual([plan.moves[name].back for name in ("a", "b")], [6, 11])

    def test_returns_come_no_earlier_than_memory_and_the_way_out_allow(self):
        plan = planned([("a", MB, 0, 9, 12)], 10 * MB)
        plan.swap_in_earlier(["a"], 900.0, rate=MB / 100)
        self.assertEqual(plan.moves["a"].back, 10)
        plan = planned([("a", MB, 0, 1, 12)], 10 * MB)
        plan.load[9] = 10 * MB
        plan.swap_in_earlier(["a"], 900.0, rate=MB / 100)
        self.assertEqual(plan.moves["a"].back, 10)

    def test_copies_due_at_the_same_tick_end_later_each_by_its_own(self):
        # Copies of 100 us each, over 250 us after they should: the last three were late, by 250, 150 and 50 us.
        names = ["a", "b", "c", "d"]
        plan = planned([(name, MB, 0, 4, 18) for name in names], 100 * MB)
        self.assertEqual(plan.swap_out_later(["d"], 250.0, rate=MB / 100), 3)
        self.assertEqual([plan.moves[name].drop for name in names], [4, 5, 6, 7])
        self.assertEqual(plan.load[4:8], [3 * MB, 2 * MB, MB, 0])

    def test_of_several_each_goes_later_from_where_it_then_is(self):
        plan = planned([(name, MB, 0, 4, 18) for name in "abcd"], 100 * MB)
        self.assertGreater(plan.swap_out_later(["d", "c"], 250.0, rate=MB / 100), 3)
        self.assertTrue(all(who in plan.drops[move.drop] for who, move in plan.moves.items()))

    def test_what_no_plan_moves_is_left_alone(self):
        plan = planned([("a", MB, 0, 4, 18)], 100 * MB)
        self.assertEqual(plan.swap_in_earlier(["stranger"], 100.0, rate=MB / 100), 0)
        self.assertEqual(plan.swap_out_later(["stranger"], 100.0, rate=MB / 100), 0)


if __name__ == "__main__":
    unittest.main()
