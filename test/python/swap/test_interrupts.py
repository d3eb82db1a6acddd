"""Interrupts (Ctrl-C) in the middle of swapping. The program may go on afterwards, as notebooks do, and keep the exception."""

import sys
import unittest
from unittest import mock

import torch
from support import FAKE, Run, trained
from weir_gpu.swap import optimizer_state
from weir_gpu.swap.records import SWAPPED_OUT


def values_of(optimizer):
    return [value.clone() for entry in optimizer.state.values() for value in entry.values()]


def swap_out(run):
    guard = run.manager.guard
    with run.manager.lock:
        for item in guard.items:
            guard.begin_swap_out(item)
        for item in guard.items:
            guard.end_swap_out(item)
    assert guard.items and all(item.state == SWAPPED_OUT for item in guard.items)


def interrupted_once(owner, name, when=lambda *arguments: True, after=False):
    """Puts a function in the place of that one, which is interrupted the next time that `when` is true."""
    original, left = getattr(owner, name), [KeyboardInterrupt()]

    def function(*arguments, **named):
        if left and when(*arguments):
            error = left.pop()
            if after:
                original(*arguments, **named)
            raise error
        return original(*arguments, **named)

    return mock.patch.object(owner, name, function)


@unittest.skipUnless(FAKE, "for the fake GPU")
class Interrupts(unittest.TestCase):
    def state_survives(self, make, act=lambda run, optimizer: next(iter(optimizer.state.values()))):
        """State is swapped out, `act` is interrupted by what `make` gives, and then all state is there for whoever reads it."""
        with Run("all", "late", debug=False) as run:
            training = trained()
            optimizer = training.optimizer
            expected = values_of(optimizer)
            swap_out(run)
            with make(run), self.assertRaises(KeyboardInterrupt):
                act(run, optimizer)
            # A key at a time finds each entry by itself.
            for parameter in training.net.parameters():
                optimizer.state[parameter]
            for one, other in zip(expected, values_of(optimizer), strict=True):
                self.assertTrue(torch.equal(one, other))
            training.step(3)
            self.assertIsNone(run.manager.stopped)

    def test_before_the_compute_stream_waits(self):
        self.state_survives(lambda run: interrupted_once(run.backend, "wait", lambda stream, _: stream is run.backend.compute))

    def test_between_a_copy_and_its_event(self):
        """The copy may go on while its memory is given to somebody else."""
        for after in (False, True):
            self.state_survives(
                lambda run, after=after: interrupted_once(run.backend, "event", lambda stream, *_: stream is run.backend.in_stream, after)
            )

    def test_between_a_copy_and_its_note(self):
        self.state_survives(lambda run: interrupted_once(run.manager.copies, "begin_in", after=True))

    def test_between_a_copy_out_and_its_event(self):
        with Run("all", "late", debug=False) as run:
            training = trained()
            guard = run.manager.guard
            values_of(training.optimizer)
            with interrupted_once(run.backend, "event", lambda stream, *_: stream is run.backend.out_stream):
                with self.assertRaises(KeyboardInterrupt), run.manager.lock:
                    guard.begin_swap_out(guard.items[0])
            self.assertTrue(run.backend.has_no_copies())
            # Faults are looked at in the end.
            training.optimizer.state.clear()

    def test_before_memory_is_given_up(self):
        """Its next owner may have written to it, and debugging has."""
        self.state_survives(
            lambda run: interrupted_once(run.backend, "before_free", after=True),
            lambda run, optimizer: (values_of(optimizer), swap_out(run)),
        )

    def test_while_items_are_counted(self):
        """Items are found by their entries."""

        def interrupted(things):
            for number, thing in enumerate(things):
                if number == 2 and sys._getframe(1).f_code.co_name == "_take":
                    raise KeyboardInterrupt
                yield number, thing

        self.state_survives(
            lambda run: mock.patch.object(optimizer_state, "enumerate", interrupted, create=True),
            lambda run, optimizer: run.manager.guard.scan(optimizer),
        )

    def test_a_batch_that_nobody_has_ended(self):
        """Later copies wait for the compute stream all the same."""
        with Run("all", "late", debug=False) as run:
            training = trained()
            batch = run.manager.copies.batch()
            with run.manager.lock:
                batch.__enter__()
            for i in range(3, 6):
                training.step(i)
            self.assertIsNone(run.manager.stopped)
            self.assertEqual(run.backend.faults, [])


if __name__ == "__main__":
    unittest.main()
