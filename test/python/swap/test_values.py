"""What is computed is the same, with and without a plan."""

import unittest

from support import FAKE, Run, SwapCase, followed, plain, swapped


class Values(SwapCase):
    def test_everything_at_once(self):
        self.same(plain(), check=swapped)

    def test_following_a_plan(self):
        self.same(plain(10), "plan", check=followed)

    def test_without_debugging(self):
        self.same(plain(10), "plan", debug=False, check=followed)
        self.same(plain(), "all", debug=False, check=swapped)

    def test_momentum(self):
        self.same(plain(10, optimizer="sgd"), "plan", check=followed)

    def test_checkpointing(self):
        for mode in ("all", "plan"):
            self.same(plain(10, checkpointed=True), mode, check=swapped)

    def test_watching_only_changes_nothing(self):
        self.same(plain(3), "plan")

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_missing_waits_are_seen(self):
        """The fake GPU is worth something: without the compute stream's waits the results are wrong."""
        expected = plain()()
        with self.assertRaises((RuntimeError, AssertionError)):
            with Run("all", "late") as run:
                run.backend.ignore_compute_waits = True
                found = plain()()
                self.assertEqual(expected[0], found[0])


if __name__ == "__main__":
    unittest.main()
