"""Host memory that is pinned in the background: training never waits for it, and what is pinned has one owner at any time."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import torch
from fake_gpu import HostChunk as FakeChunk
from support import FAKE, HERE, LEAST, Run, SwapCase, Training, plain
from test_pace import TimedBackend
from weir_gpu.swap import backend as backends
from weir_gpu.swap import budget as budgets
from weir_gpu.swap import host, host_chunk, pinning
from weir_gpu.swap.budget import FixedBudget, SharedBudget

PATIENCE = 60
GPU = 1


class Late(TimedBackend):
    """Does its background work when it is told to, one piece at a time."""

    def __init__(self):
        super().__init__(lambda steps: 1000)
        self.training = threading.current_thread()
        self.pinned_while_training = 0
        self.gate = None

    def in_background(self, work):
        """Starts the work, and waits until it asks for its first piece."""
        self.gate = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self.asked.acquire(timeout=PATIENCE)
        return thread

    def host_memory(self, size):
        backend = self

        class Chunk(FakeChunk):
            def pin(self, at, length):
                if threading.current_thread() is backend.training:
                    backend.pinned_while_training += 1
                else:
                    backend.asked.release()
                    assert backend.gate.acquire(timeout=PATIENCE)
                super().pin(at, length)

        return Chunk(self, size)

    def let(self, pieces):
        """Lets the background pin so many pieces, and waits until it asks for the next one, or has none."""
        thread = self.manager.copies.slab.pinning.thread
        for _ in range(pieces):
            self.gate.release()
            while thread.is_alive() and not self.asked.acquire(timeout=0.05):
                pass

    def open_up(self):
        self.gate.release(1 << 20)


def late_run():
    run = Run("plan", debug=False)
    run.backend = Late()
    run.options.tolerance = 0.01
    return run


@unittest.skipUnless(FAKE, "for the fake GPU")
class Background(SwapCase):
    def start(self, run):
        run.backend.manager = run.manager
        return Training()

    def test_a_plan_is_used_with_what_is_pinned_so_far(self):
        expected = plain(40)()
        run = late_run()
        with run:
            training = self.start(run)
            counts, slab, swapped = None, None, []
            for i in range(40):
                before = run.manager.copies.counts["bytes_out"] if run.manager.backend else 0
                training.step(i)
                slab, counts = run.manager.copies.slab, run.manager.copies.counts
                swapped.append(counts["bytes_out"] - before)
                if i == 11:
                    # From the eighth step on, with no more than what was needed to measure the link.
                    self.assertEqual(counts["steps_planned"], 5)
                    self.assertFalse(slab.is_ready())
                    self.assertIsNone(run.manager.steps.pace.measured(run.manager.steps.last_key)[1])
                    self.assertEqual(run.manager.steps.pace.steps_planned(run.manager.steps.last_key), 0)
                if 12 <= i < 18:
                    run.backend.let(1)
                if i == 18:
                    run.backend.open_up()
                    slab.pinning.thread.join(PATIENCE)
            self.assertTrue(slab.is_ready())
            found = training.result()
        self.assertEqual(expected[0], found[0])
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(expected[1], found[1], strict=True)))
        # With each piece, no less leaves.
        self.assertLess(swapped[11], swapped[-1])
        self.assertEqual(swapped[7:], sorted(swapped[7:]))
        self.assertEqual(swapped[-1], swapped[-2])
        self.assertEqual([run.report["stepsOff"], run.report["misses"]], [0, 0])
        # The link was measured with memory that training had to wait for. Everything else came from the background.
        self.assertLessEqual(run.backend.pinned_while_training, -(-host.CHUNK // pinning.PIECE))

    def test_an_emergency_does_not_wait_for_the_background(self):
        run = late_run()
        with run:
            training = self.start(run)
            for i in range(3):
                training.step(i)
            self.assertEqual(run.backend.pinned_while_training, 0)
            self.assertTrue(run.manager.relieve(0, LEAST))
            self.assertGreater(run.backend.pinned_while_training, 0)
            training.step(3)
            run.backend.open_up()

    def test_the_end_of_swapping_waits_for_the_piece_at_hand_only(self):
        """A graph that is captured must find no other thread inside the driver."""
        self.addCleanup(setattr, pinning, "PIECE", pinning.PIECE)
        pinning.PIECE = 4096
        run = late_run()
        with run:
            training = self.start(run)
            for i in range(2):
                training.step(i)
            slab = run.manager.copies.slab
            self.assertGreater(slab.ordered, 3 * pinning.PIECE)
            pinned = len(slab.pinning.arrived)
            opened = threading.Timer(0.2, run.backend.open_up)
            opened.start()
            run.manager.stop("a graph", report=False)
            self.assertFalse(slab.pinning.thread.is_alive())
            self.assertLessEqual(len(slab.pinning.arrived), pinned + 2)
            opened.join()

    def test_the_end_of_swapping_gives_unused_memory_back(self):
        run = late_run()
        run.options.host_limit = 1 << 26
        with run:
            training = self.start(run)
            for i in range(2):
                training.step(i)
            run.backend.open_up()
            slab = run.manager.copies.slab
            slab.pinning.thread.join(PATIENCE)
            self.assertTrue(slab.is_ready())
            self.assertGreater(slab.capacity, 0)
            del slab
            run.manager.stop("a graph", report=False)
            self.assertEqual(run.options.host_budget.claim(1 << 26), 1 << 26)
            training.step(2)

    def test_swapping_that_is_given_up_in_the_meantime(self):
        run = late_run()
        run.options.host_limit = 1 << 26
        with run:
            training = self.start(run)
            for i in range(3):
                training.step(i)
            budget = run.options.host_budget
            pinning_of_old = run.manager.copies.slab.pinning
            run.manager.copies.give_host_memory_back()
            gc.collect()
            self.assertTrue(pinning_of_old.is_gone)
            run.backend.open_up()
            pinning_of_old.thread.join(PATIENCE)
            self.assertEqual(budget.claim(1 << 26), 1 << 26, "everything that was claimed is free again")
            self.assertEqual(len(pinning_of_old.claims), 0)


class Slow:
    """Memory whose pieces are pinned by threads that the test lets go."""

    def __init__(self, size):
        self.bytes = torch.zeros(size, dtype=torch.uint8)

    def pin(self, at, length):
        pass


class Memory:
    def __init__(self, chunk=Slow):
        self.host_memory = chunk
        self.threads = []

    def in_background(self, work):
        thread = threading.Thread(target=work, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread


class Slabs(unittest.TestCase):
    def test_pieces_become_one_range(self):
        memory = Memory()
        slab = host.HostSlab(memory, 1 << 30, print, waits=False)
        slab.reserve(10 * pinning.PIECE + 5)
        memory.threads[0].join(PATIENCE)
        self.assertTrue(slab.is_ready())
        self.assertEqual(len(slab.free), 1)
        slot = slab.take(10 * pinning.PIECE)
        self.assertEqual(slot.bytes.numel(), 10 * pinning.PIECE)

    def test_a_missing_slot_is_ordered_once(self):
        memory = Memory()
        gate = threading.Event()

        class Gated(Slow):
            def pin(self, at, length):
                gate.wait(PATIENCE)

        memory.host_memory = Gated
        slab = host.HostSlab(memory, 1 << 30, print, waits=False)
        self.assertIsNone(slab.take(5000))
        ordered = slab.ordered
        self.assertGreater(ordered, 0)
        self.assertIsNone(slab.take(5000))
        self.assertEqual(slab.ordered, ordered)
        gate.set()
        memory.threads[0].join(PATIENCE)
        self.assertIsNotNone(slab.take(5000))

    def test_a_budget_that_is_too_small(self):
        said = []
        memory = Memory()
        slab = host.HostSlab(memory, 3 * pinning.PIECE, lambda *words: said.append(words), waits=False)
        slab.reserve(8 * pinning.PIECE)
        memory.threads[0].join(PATIENCE)
        self.assertTrue(slab.is_ready())
        self.assertEqual(slab.capacity, 3 * pinning.PIECE)
        self.assertTrue(slab.refused)
        self.assertIn("less is swapped", said[0][1])

    def test_borders_are_known_whatever_is_granted(self):
        """A claim may get less than it asks for, and the next one more."""

        class Odd(FixedBudget):
            turn = 0

            def claim(self, size):
                Odd.turn += 1
                return super().claim(size - 2 * 4096 if Odd.turn % 2 else size)

        for waits in (True, False):
            pieces = []

            class Seen(Slow):
                def pin(self, at, length, pieces=pieces):
                    pieces.append((id(self), at, length))

            memory = Memory(Seen)
            slab = host.HostSlab(memory, Odd(1 << 30), lambda *words: None, waits=waits)
            slots = [slab.take(5 * pinning.PIECE + 4096) for _ in range(3)]
            for _ in range(20):
                slab.reserve(40 * pinning.PIECE)
                for thread in memory.threads:
                    thread.join(PATIENCE)
                slab.collect()
            self.assertGreater(len(pieces), 20)
            self.assertEqual([at % pinning.PIECE for _, at, _ in pieces], [0] * len(pieces))
            del slots

    def test_an_error_in_the_background(self):
        class Fails(Slow):
            def pin(self, at, length):
                if at > 0:
                    raise ValueError("of a kind that nobody expects")

        said = []
        memory = Memory(Fails)
        budget = FixedBudget(1 << 30)
        slab = host.HostSlab(memory, budget, lambda *words: said.append(words), waits=False)
        slab.reserve(4 * pinning.PIECE)
        memory.threads[0].join(PATIENCE)
        self.assertTrue(slab.is_ready())
        self.assertEqual(slab.capacity, pinning.PIECE)
        self.assertIn("nobody expects", said[0][1])
        self.assertEqual(budget.claim(1 << 30), (1 << 30) - pinning.PIECE)

    def test_a_slab_that_dies_while_a_piece_is_pinned(self):
        for _ in range(50):
            memory, budget = Memory(), FixedBudget(1 << 30)
            slab = host.HostSlab(memory, budget, print, waits=False)
            slab.reserve(6 * pinning.PIECE)
            reference = weakref.ref(slab)
            del slab
            self.assertIsNone(reference())
            memory.threads[0].join(PATIENCE)
            self.assertEqual(budget.claim(1 << 30), 1 << 30)

    def test_a_process_that_is_forked_during_a_claim_does_not_keep_the_lock(self):
        with tempfile.TemporaryDirectory() as folder:
            reading, writing = os.pipe()
            children = []

            def fork():
                if not children:
                    child = os.fork()
                    if child == 0:
                        os.close(writing)
                        # Lives as long as its parent, as the workers of a data loader do.
                        os.read(reading, 1)
                        os._exit(0)
                    children.append(child)
                return 1 << 30

            budget = SharedBudget(folder, None, 1, fork)
            budget.claim(1000)
            tried = []

            def give_up(_seconds):
                tried.append(1)
                raise TimeoutError

            self.addCleanup(setattr, budgets.time, "sleep", budgets.time.sleep)
            budgets.time.sleep = give_up
            self.assertEqual(budget.claim(500), 500)
            os.close(writing)
            os.waitpid(children[0], 0)
            os.close(reading)
            self.assertEqual(tried, [])

    def test_nothing_is_pinned_if_pinning_ends_during_a_claim(self):
        claimed, pinned = [], []

        class Busy(FixedBudget):
            def claim(self, size):
                slab.pinning.is_halted = True
                claimed.append(size)
                return super().claim(size)

        class Seen(Slow):
            def pin(self, at, length):
                pinned.append(length)

        memory, budget = Memory(Seen), Busy(1 << 30)
        slab = host.HostSlab(memory, budget, print, waits=False)
        slab.reserve(2 * pinning.PIECE)
        memory.threads[0].join(PATIENCE)
        self.assertEqual([len(claimed), pinned], [1, []])
        self.assertEqual(budget.claim(1 << 30), 1 << 30)

    def test_no_more_threads(self):
        class Refused(Memory):
            def in_background(self, work):
                raise RuntimeError("can't start new thread")

        slab = host.HostSlab(Refused(), 1 << 30, lambda *words: None, waits=False)
        slab.reserve(4 * pinning.PIECE)
        self.assertEqual([slab.is_ready(), slab.refused, slab.take(4096)], [True, True, None])

    def test_training_and_the_background_claim_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            budget = SharedBudget(folder, 1 << 20, 1)
            granted = []

            def act():
                for turn in range(30):
                    got = budget.claim(1000)
                    granted.append(got)
                    if turn % 3 == 0:
                        budget.release(got)
                        granted.append(-got)

            threads = [threading.Thread(target=act) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            budget.claim(0)
            with open(os.path.join(folder, "host-memory.json"), encoding="utf-8") as file:
                self.assertEqual(list(json.load(file)["claims"].values()), [sum(granted)])
            self.assertEqual(sum(granted), 4 * 20 * 1000)

    def test_a_destructor_in_the_midst_of_a_claim_does_not_wait_for_it(self):
        with tempfile.TemporaryDirectory() as folder:
            inside = []

            class Budget(SharedBudget):
                def _change(self, size):
                    assert not inside, "it would wait for the lock that this thread holds"
                    inside.append(size)
                    try:
                        return super()._change(size)
                    finally:
                        inside.pop()

            def available():
                if budget.claimant is not None and not budget.owed:
                    budget.release(400)
                return 1 << 20

            budget = Budget(folder, None, 1, available)
            self.assertEqual(budget.claim(1000), 1000)
            self.assertEqual(budget.claim(1000), 1000)
            with open(os.path.join(folder, "host-memory.json"), encoding="utf-8") as file:
                self.assertEqual(list(json.load(file)["claims"].values()), [1200])


class Chunks(unittest.TestCase):
    def chunk(self, size, registration):
        self.follow_devices()
        return host_chunk.HostChunk(size, GPU, registration)

    def follow_devices(self):
        """As on a machine with GPUs: every thread has a device of its own, at first 0."""
        current = threading.local()

        class Device:
            def __init__(self, device):
                self.device = device

            def __enter__(self):
                self.before, current.device = getattr(current, "device", 0), self.device

            def __exit__(self, *_):
                current.device = self.before

        self.addCleanup(setattr, torch.cuda, "device", torch.cuda.device)
        torch.cuda.device = Device
        self.current_device = lambda: getattr(current, "device", 0)

    def test_every_piece_is_unpinned_before_its_pages_go(self):
        pinned, devices = set(), []

        class Registration:
            def register(_, address, size):
                devices.append(self.current_device())
                pinned.add(address)
                return 0

            def unregister(_, address):
                devices.append(self.current_device())
                pinned.remove(address)
                return 0

        chunk = self.chunk(3 * pinning.PIECE, Registration())
        for at in range(3):
            chunk.pin(at * pinning.PIECE, pinning.PIECE)
        self.assertEqual(len(pinned), 3)
        slot = chunk.bytes[pinning.PIECE :]
        del chunk
        self.assertEqual(len(pinned), 3, "a slot still uses it")
        del slot
        self.assertEqual(pinned, set())
        self.assertEqual(devices, [GPU] * 6)

    def test_an_error_of_unpinning_is_not_left_for_the_program(self):
        forgotten = []

        class Registration:
            def register(self, address, size):
                return 0

            def unregister(self, address):
                return 713

            def forget_error(self, device):
                forgotten.append(device)

        chunk = self.chunk(2 * pinning.PIECE, Registration())
        for at in range(2):
            chunk.pin(at * pinning.PIECE, pinning.PIECE)
        del chunk
        self.assertEqual(forgotten, [GPU, GPU])

    def test_the_thread_uses_the_device_of_its_backend_from_its_first_call_on(self):
        self.follow_devices()
        devices = []

        class Call:
            def __call__(_, mode):
                devices.append(self.current_device())
                return 0

        class Runtime:
            cudaThreadExchangeStreamCaptureMode = Call()

        gpu = object.__new__(backends.CudaBackend)
        gpu.device, gpu._runtime = GPU, Runtime
        gpu.in_background(lambda: devices.append(self.current_device())).join(PATIENCE)
        self.assertEqual(devices, [GPU, GPU])

    def test_a_piece_that_cannot_be_pinned(self):
        forgotten = []

        class Registration:
            def register(self, address, size):
                return 2

            def forget_error(self, device):
                forgotten.append(device)

        with self.assertRaises(MemoryError):
            self.chunk(pinning.PIECE, Registration()).pin(0, pinning.PIECE)
        self.assertEqual(len(forgotten), 1)

    def test_no_copy_crosses_the_border_of_two_pieces(self):
        copies = []
        gpu = object.__new__(backends.CudaBackend)
        gpu._memcpy = lambda target, source, size, way, stream: copies.append((target, source, size, way))
        gpu.out_handle = gpu.in_handle = None
        piece = host_chunk.PIECE
        held = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage(3 * piece + 4096))
        for at, size in ((0, 10), (piece - 10, 10), (piece - 10, 11), (4096, 2 * piece + 4096), (piece, 2 * piece)):
            target, storage = held[at : at + size], torch.UntypedStorage(size)
            for copy, way in ((gpu.copy_out, backends.TO_HOST), (lambda target, storage: gpu.copy_in(storage, target), backends.TO_DEVICE)):
                copies.clear()
                copy(target, storage)
                done = 0
                for to, source, length, found in copies:
                    on_host, on_gpu = (to, source) if way == backends.TO_HOST else (source, to)
                    self.assertEqual([on_host - target.data_ptr(), on_gpu - storage.data_ptr(), found], [done, done, way])
                    begin = on_host - held.data_ptr()
                    self.assertEqual(begin // piece, (begin + length - 1) // piece)
                    done += length
                self.assertEqual(done, size)


ENDS = """
import os, sys, threading, time
sys.path[:0] = {path!r}
import torch
from weir_gpu.swap import host, pinning
pinning.PIECE = 4096
inside = threading.Event()
class Chunk:
    def __init__(self, size): self.bytes = torch.zeros(size, dtype=torch.uint8)
    def pin(self, at, length):
        inside.set()
        # As in a call of the driver.
        time.sleep(0.01)
        print("piece", flush=True)
class Memory:
    host_memory = Chunk
    def in_background(self, work):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread
slab = host.HostSlab(Memory(), 1 << 30, print, waits=False)
slab.reserve(1 << 26)
inside.wait()
{end}
"""


class Ends(unittest.TestCase):
    """A process that ends, or forks, while memory is pinned."""

    def end(self, end):
        path = [os.path.join(HERE, "..", "..", "..", "python"), HERE]
        run = subprocess.run([sys.executable, "-c", ENDS.format(path=path, end=end)], capture_output=True, text=True, timeout=120)
        return run.returncode, run.stdout, run.stderr

    def test_by_itself_with_an_error_and_at_once(self):
        for end, expected in (("", 0), ("sys.exit(3)", 3), ("raise ValueError('x')", 1), ("os._exit(4)", 4)):
            code, pieces, errors = self.end(end)
            self.assertEqual(code, expected, errors)
            # 16384 of them were ordered.
            self.assertLess(pieces.count("piece"), 1000)

    def test_after_the_end_nobody_is_inside_a_call(self):
        code, pieces, errors = self.end("import atexit\natexit._run_exitfuncs()\nprint('over', slab.pinning.thread.is_alive(), flush=True)")
        self.assertEqual(code, 0, errors)
        self.assertTrue(pieces.endswith("over False\n"), pieces[-100:])

    def test_a_fork(self):
        end = """
for _ in range(5):
    child = os.fork()
    if child == 0:
        slab.pinning.close()
        slab.pinning.halt()
        del slab
        print("child", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert slab.pinning.thread.is_alive()
"""
        code, pieces, errors = self.end(end)
        self.assertEqual([code, pieces.count("child")], [0, 5], errors)


if __name__ == "__main__":
    unittest.main()
