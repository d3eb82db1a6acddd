"""The order in which swapping uses the GPU is the one that the model checker has searched (test/engine/swap-model.test.ts)."""

import json
import os
import unittest

from fake_gpu import FakeBackend
from support import FAKE, HERE, WIDTH, Run, Training, draw
from weir_gpu.swap.records import RESIDENT, SWAPPED_OUT

with open(os.path.join(HERE, "..", "..", "engine", "lending", "swap-order.json"), encoding="utf-8") as order:
    ORDER = json.load(order)


class Traced(FakeBackend):
    """Notes what it is asked to do, in the words of the model."""

    def __init__(self):
        super().__init__("late")
        self.notes = []

    def take_notes(self):
        notes, self.notes = self.notes, []
        return notes

    def event(self, stream, timing=False):
        event = super().event(stream, timing)
        if stream.name.startswith("side"):
            self.notes.append("record fence")
        elif stream is not self.compute:
            self.notes.append(f"record {stream.name}")
        return event

    def wait(self, stream, event):
        source = event.stream.name
        if source.startswith("side"):
            source = "fence"
        elif stream is self.out_stream and event.stream is self.in_stream:
            source = "slot"
        self.notes.append(f"{stream.name} waits for {source}")
        super().wait(stream, event)

    def copy_out(self, target, storage):
        self.notes.append("copy out")
        super().copy_out(target, storage)

    def copy_in(self, storage, source):
        self.notes.append("copy in")
        super().copy_in(storage, source)

    def before_free(self, storage, of_compute_stream):
        self.notes.append("mark compute")
        super().before_free(storage, of_compute_stream)

    def mark_used(self, thing):
        self.notes.append("mark compute")

    def new_storage(self, size):
        self.notes.append("take memory")
        return super().new_storage(size)

    def refill(self, storage, size):
        self.notes.append("take memory")
        super().refill(storage, size)


def model(name):
    """The model's order, without what the traced GPU cannot see."""
    return [operation for operation in ORDER[name] if operation != "free"]


@unittest.skipUnless(FAKE, "for the fake GPU")
class Order(unittest.TestCase):
    def setUp(self):
        self.run_ = Run("limit", debug=False)
        self.run_.backend = self.gpu = Traced()
        self.run_.__enter__()
        self.training = Training()
        for step in range(4):
            self.training.step(step)
        self.side = self.gpu.side_stream()
        self.manager = self.run_.manager
        # Neither a plan nor a limit moves anything by itself from here on.
        self.manager.steps.reactive = False
        self.manager.steps.profile = self.manager.steps.following = None
        self.gpu.synchronize()

    def tearDown(self):
        self.run_.__exit__(None)

    def busy(self):
        """The side stream has work, so that fences need events."""
        self.gpu.read(self.side, draw(1))

    def check(self, name, act):
        self.gpu.take_notes()
        self.busy()
        act()
        found = self.gpu.take_notes()
        # The first copy into a slot does not wait for one out of it.
        self.assertEqual(found, [one for one in model(name) if one in found or one != "out waits for slot"], name)

    def test_saved_tensors(self):
        saved = self.manager.saved
        node = draw(WIDTH, WIDTH).requires_grad_().exp().grad_fn
        record = saved.of_index(len(saved.records) - 1)
        self.check("beginOut", lambda: self.assertTrue(saved.begin_swap_out(record, 1)))
        self.check("endOut", lambda: self.assertTrue(saved.end_swap_out(record)))
        self.check("beginIn", lambda: saved.begin_swap_in(record))
        self.check("endIn", lambda: saved.end_swap_in(record))
        record.live_handles()[0].rebuild(record.storage, self.gpu.device)
        self.check("endOutAgain", lambda: self.assertTrue(saved.end_swap_out(record)))
        self.assertEqual(record.state, SWAPPED_OUT)
        self.assertIsNotNone(node)

    def test_a_saved_tensor_that_dies_during_its_copy(self):
        saved = self.manager.saved
        nodes = [draw(WIDTH, WIDTH).requires_grad_().exp().grad_fn]
        self.assertTrue(saved.begin_swap_out(saved.of_index(len(saved.records) - 1), 1))
        # At once, without waiting for the next tick.
        self.check("freeUnused", nodes.clear)

    def test_optimizer_state(self):
        guard = self.manager.guard
        guard.swap_in_all()
        self.manager.copies.clear_pending_frees()
        guard.protect_all()
        item = next(item for item in guard.items if item.state == RESIDENT)
        for _ in range(2):
            self.check("beginOutInPlace", lambda: self.assertTrue(guard.begin_swap_out(item)))
            self.check("endOut", lambda: self.assertTrue(guard.end_swap_out(item)))
            self.check("beginIn", lambda: guard.begin_swap_in(item))
            self.check("endIn", lambda: guard.end_swap_in(item))

    def test_the_second_copy_into_a_slot_waits(self):
        guard = self.manager.guard
        guard.swap_in_all()
        self.manager.copies.clear_pending_frees()
        item = next(item for item in guard.items if item.state == RESIDENT and item.slot is not None and item.slot.busy is not None)
        self.gpu.take_notes()
        self.busy()
        self.assertTrue(guard.begin_swap_out(item))
        self.assertEqual(self.gpu.take_notes(), model("beginOutInPlace"))

    def test_the_model_knows_all(self):
        self.assertEqual(sorted(ORDER), ["beginIn", "beginOut", "beginOutInPlace", "endIn", "endOut", "endOutAgain", "freeUnused"])


if __name__ == "__main__":
    unittest.main()
