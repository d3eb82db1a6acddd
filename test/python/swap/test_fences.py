"""Fences on side streams: which streams count, when events are recorded, and what is refused."""

import ctypes
import unittest
import weakref
from unittest import mock

import torch
from support import DEVICE, FAKE, WIDTH, Run, SwapCase, Training, draw
from weir_gpu.swap.optimizer_state import Item
from weir_gpu.swap.records import RESIDENT, SWAPPED_OUT
from weir_gpu.swap.side_streams import StreamHooks, our_own

MODES = ("all", "plan", "limit")


@unittest.skipUnless(FAKE, "for the fake GPU")
class Fences(SwapCase):
    def train(self, run, before_step=lambda step: None):
        training = Training()
        for step in range(10):
            before_step(step)
            training.step(step)
        return training.losses

    def test_idle_streams_cost_no_events(self):
        with Run("plan", "late") as run:
            for _ in range(3):
                run.backend.side_stream()
            self.train(run)
            self.assertEqual(len(run.manager.copies.sides.readers), 3)
            self.assertGreater(run.backend.freed, 10)
            self.assertEqual(run.backend.fence_events, 0)

    def test_one_fence_for_all_that_leaves_at_a_tick(self):
        """A stream that is always busy gets one event for each time that copies begin, not one for each copy."""
        with Run("plan", "late", debug=False) as run:
            side = run.backend.side_stream()
            forever = torch.zeros(1)
            begun, in_place, acts = [], [], []

            def watch(step):
                run.backend.read(side, forever)
                if step == 2:
                    act, begin = run.manager.mover.act, run.manager.copies.begin_out

                    def counted_act(plan, tick):
                        if tick in plan.outs or run.manager.mover.late:
                            acts.append(tick)
                        act(plan, tick)
                        run.backend.read(side, forever)

                    run.manager.mover.act = counted_act

                    def counted_begin(storage, slot, after_sides=False):
                        # State that a side stream may have written gets its own fence.
                        (in_place if after_sides else begun).append(slot)
                        return begin(storage, slot, after_sides)

                    run.manager.copies.begin_out = counted_begin

            self.train(run, watch)
            self.assertGreater(len(begun), len(acts))
            self.assertLessEqual(run.backend.fence_events, len(acts) + len(in_place))
            self.assertGreater(run.backend.fence_events, 5)

    def test_a_foreign_stream_ends_the_swapping(self):
        """Its owner may destroy it at any time. So nobody asks it, and nothing leaves any more."""
        for mode in MODES:
            expected = None
            for foreign in (False, True):
                with Run(mode, "late") as run:
                    losses = self.train(run, lambda step: step == 8 and foreign and run.backend.side_stream(0x7F00))
                    if foreign:
                        self.assertIn("PyTorch does not own", run.manager.stopped)
                        self.assertEqual(run.manager.copies.swapped_out, 0)
                        self.assertEqual([item for item in run.manager.guard.items if item.state == SWAPPED_OUT], [])
                expected = expected or losses
                self.assertEqual(expected, losses)

    def test_a_foreign_name_of_a_known_stream_is_no_foreign_stream(self):
        with Run("all", "late") as run:
            stream = run.backend.side_stream()
            run.backend.handle_of = lambda one: 0x7F00 if one is stream else one.stream_id
            run.backend.side_stream(0x7F00)
            self.train(run)
            self.assertIsNone(run.manager.stopped)

    def test_a_captured_stream_keeps_everything(self):
        for mode in MODES:
            with Run(mode, "late") as run:
                stream = run.backend.side_stream()

                free, freed = run.backend.before_free, []

                def noted(storage, of_compute_stream, run=run, free=free, freed=freed):
                    freed.append(run.manager.copies.sides.refusal)
                    free(storage, of_compute_stream)

                run.backend.before_free = noted
                self.train(run, lambda step, stream=stream: setattr(stream, "captured", step >= 7))
                self.assertIn("captured", run.manager.stopped)
                self.assertEqual(set(freed), {None})

    def test_a_tensor_read_by_a_thread_between_two_begins(self):
        """The fence comes after the last ownership check of a tick, and not after the first."""
        with Run("limit", "late", debug=False) as run:
            training = Training()
            for step in range(3):
                training.step(step)
            saved, copies, side = run.manager.saved, run.manager.copies, run.backend.side_stream()
            run.manager.steps.reactive = False
            nodes = [draw(WIDTH, WIDTH).requires_grad_().exp().grad_fn for _ in range(4)]
            records = [saved.of_index(len(saved.records) - 4 + i) for i in range(4)]
            expected, reads = [], []
            begin = copies.begin_out

            def read_the_next(*given, **named):
                # As another thread would, after the copy of one tensor and before the question who owns the next.
                result = begin(*given, **named)
                if len(reads) < 3:
                    alias = records[len(reads) + 1].live_handles()[0].alias
                    expected.append(ctypes.string_at(alias.data_ptr(), records[0].size))
                    reads.append(run.backend.read(side, alias))
                return result

            copies.begin_out = read_the_next
            with copies.batch():
                for record in records:
                    self.assertTrue(saved.begin_swap_out(record, 1))
            copies.begin_out = begin
            for record in reversed(records):
                self.assertTrue(saved.end_swap_out(record))
            run.backend.synchronize()
            self.assertTrue([read.content for read in reads] == expected)
            self.assertEqual(len(nodes), 4)

    def state_of(self, run):
        """Optimizer state that could be swapped out now, and its content."""
        training = Training()
        for step in range(6):
            training.step(step)
        run.manager.guard.protect_all()
        items = [item for item in run.manager.guard.items if item.state == RESIDENT]
        self.assertGreater(len(items), 3)
        return training, items, [ctypes.string_at(item.tensor.data_ptr(), item.size) for item in items]

    def test_each_tensor_waits_for_its_own_fence(self):
        with Run("limit", "late", debug=False) as run:
            _training, items, expected = self.state_of(run)
            side, guard = run.backend.side_stream(), run.manager.guard
            reads = []
            for item in items:
                reads.append(run.backend.read(side, item.tensor))
                self.assertTrue(guard.begin_swap_out(item))
            for item in items:
                self.assertTrue(guard.end_swap_out(item))
            run.backend.synchronize()
            self.assertTrue([read.content for read in reads] == expected)

    def test_state_that_a_side_stream_has_written(self):
        """An optimizer on a side stream, which the program joins later."""
        with Run("limit", "late", debug=False) as run:
            training, items, expected = self.state_of(run)
            guard, side = run.manager.guard, run.backend.side_stream()
            expected = [bytes(reversed(content)) for content in expected]
            for item, content in zip(items, expected):
                run.backend.write(side, item.tensor, content)
            with run.manager.copies.batch():
                for item in items:
                    self.assertTrue(guard.begin_swap_out(item))
            # The copies are as early as their waits allow.
            while run.backend.out_stream.queue:
                run.backend.run_one(run.backend.out_stream)
            for item in reversed(items):
                self.assertTrue(guard.end_swap_out(item))
            guard.swap_in_all()
            run.backend.synchronize()
            self.assertTrue([ctypes.string_at(item.tensor.data_ptr(), item.size) for item in items] == expected)
            del training

    def test_a_stream_that_a_thread_makes_just_before_its_last_reference_goes(self):
        with Run("limit", "late", debug=False) as run:
            _training, items, expected = self.state_of(run)
            ask, reads = Item.is_exclusive, []

            def is_exclusive(item):
                if item is items[0] and not reads:
                    reads.append(run.backend.read(run.backend.side_stream(), item.tensor))
                return ask(item)

            Item.is_exclusive = is_exclusive
            try:
                run.manager.guard.begin_swap_out(items[0])
            finally:
                Item.is_exclusive = ask
            run.manager.guard.end_swap_out(items[0])
            run.backend.synchronize()
            self.assertTrue(reads[0].content == expected[0])

    def test_a_saved_tensor_that_was_used_since_its_copy(self):
        with Run("all", "late", debug=False) as run:
            training = Training()
            for step in range(3):
                training.step(step)
            node = draw(WIDTH, WIDTH).requires_grad_().exp().grad_fn
            expected = ctypes.string_at(node._saved_result.data_ptr(), 4 * WIDTH * WIDTH)
            record = run.manager.saved.of_index(0)
            self.assertTrue(run.manager.saved.begin_swap_out(record, 1))
            self.assertTrue(run.manager.saved.end_swap_out(record))
            side = run.backend.side_stream()
            read = run.backend.read(side, node._saved_result)
            self.assertEqual(record.state, RESIDENT)
            self.assertTrue(run.manager.saved.end_swap_out(record))
            run.backend.synchronize()
            self.assertTrue(read.content == expected)
            del node

    def test_an_operation_on_a_parameter_that_another_thread_is_inside_of(self):
        """The thread has passed the parameter's class before the copy began, and enqueues its kernel after."""
        with Run("limit", "late", debug=False) as run:
            training = Training()
            for step in range(3):
                training.step(step)
            side = run.backend.side_stream()
            layers = run.manager.layers
            layer = layers.layers[0]
            parameter = layer.weights[0].parameter()
            expected = ctypes.string_at(parameter.data_ptr(), layer.weights[0].size)
            layers.begin_layer_swap_out(layer)
            with torch._C.DisableTorchFunctionSubclass():
                read = run.backend.read(side, parameter)
            layers.end_layer_swap_out(layer)
            self.assertEqual(layer.weights[0].state, SWAPPED_OUT)
            run.backend.synchronize()
            self.assertTrue(read.content == expected)
            layers.swap_in_all()


class Toy:
    """Stands for torch.cuda.Stream where PyTorch has no CUDA."""

    device_type, device_index = 1, 0

    def __new__(cls, number=1):
        made = super().__new__(cls)
        made.stream_id = number
        return made


class ToyExternal(Toy):
    def __new__(cls, pointer):
        return super().__new__(cls, pointer)


class Hooks(unittest.TestCase):
    def test_objects_that_answer_with_an_error_are_passed_over(self):
        class Alone(Toy):
            pass

        class Gone(list):
            pass

        class Stubborn(list):
            @property
            def __class__(self):
                raise KeyError("not yours")

        here = Gone()
        proxy, stubborn = weakref.proxy(here), Stubborn()
        del here
        with mock.patch.object(torch.cuda, "is_initialized", lambda: True), mock.patch.object(torch.cuda, "Stream", Alone):
            before, seen = Alone(3), []
            StreamHooks(seen.append).close()
            self.assertEqual([id(stream) for stream in seen], [id(before)])
        del proxy, stubborn

    def test_every_stream_object_is_seen(self):
        seen = []
        original, generic = torch.cuda.Stream, torch.Stream
        torch.cuda.Stream = Toy
        try:
            hooks = StreamHooks(seen.append)
            one, other = Toy(5), ToyExternal(64)
            with our_own():
                Toy(7)
            third = torch.Stream(device="cpu")
            fourth = torch._C.Stream(device="cpu")
            self.assertEqual([id(stream) for stream in seen if stream.stream_id != 7], [id(s) for s in (one, other, third, fourth)])
            self.assertIsInstance(third, generic)
            self.assertIsInstance(generic(device="cpu"), torch.Stream)
            self.assertTrue(issubclass(generic, torch.Stream))
            self.assertEqual(str(torch.Stream), str(generic))

            class Own(torch.Stream):
                pass

            self.assertNotIsInstance(third, Own)
            self.assertNotIsInstance(generic(device="cpu"), Own)
            self.assertFalse(issubclass(torch.Stream, Own))
            self.assertIsInstance(Own(device="cpu"), Own)
            self.assertIs(seen.pop().__class__, Own)
            hooks.close()
            Toy(9), ToyExternal(66), torch.Stream(device="cpu")
            self.assertEqual(len(seen), 5)
            self.assertIs(torch.Stream, generic)
        finally:
            torch.cuda.Stream = original

    def test_streams_of_ours_and_of_other_devices_do_not_count(self):
        with Run("all") as run:
            sides = run.manager.copies.sides
            torch.Stream(device="cpu")
            if not FAKE:
                torch.cuda.Stream()
            training = Training()
            for step in range(4):
                training.step(step)
            # On a GPU, streams of earlier tests may still be there.
            self.assertEqual(len(sides.readers) > 0, not FAKE)
            ours = {
                (sides.backend.device_type, sides.backend.index, stream.stream_id)
                for stream in (sides.backend.out_stream, sides.backend.in_stream)
            }
            self.assertEqual(ours & set(sides.known), set())

    @unittest.skipIf(FAKE, "needs a GPU")
    def test_generic_and_foreign_streams(self):
        with Run("all") as run:
            sides = run.manager.copies.sides
            stream = torch.Stream(device=DEVICE)
            torch.cuda.ExternalStream(torch.cuda.Stream().cuda_stream)
            training = Training()
            for step in range(4):
                training.step(step)
            self.assertIn(stream.stream_id, [reader.stream_id for reader in sides.readers])
            self.assertIsNone(run.manager.stopped)


if __name__ == "__main__":
    unittest.main()
