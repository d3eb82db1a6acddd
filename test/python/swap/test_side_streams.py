"""Other streams of the program read what swapping gives up, without record_stream: they must read what plain PyTorch would show them."""

import ctypes
import threading
import unittest

import torch
from late_reads import Readers, without_fences
from support import FAKE, ORDERS, WIDTH, Run, SwapCase, Training, draw
from torch.utils.checkpoint import checkpoint
from weir_gpu import swap

STEPS = 14
MODES = ("all", "plan", "limit")


def more_work():
    """Saves more tensors, so that memory changes hands."""
    x = draw(WIDTH, WIDTH).requires_grad_()
    for _ in range(12):
        x = (x * 1.0001).tanh()
    return x.sum() * 1e-6


def statistics(readers, streams=1):
    """Reads activations that only the graph keeps; joins before backward."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(draw(WIDTH, WIDTH) * 0.05)
    optimizer = torch.optim.AdamW([weight], 0.01)
    sides = [readers.stream() for _ in range(streams)]
    losses = []
    for step in range(STEPS):
        if step == STEPS // 2:
            sides.append(readers.stream())  # made in the middle of training
        x = draw(WIDTH, WIDTH)
        for i in range(6):
            x = (x @ weight).tanh() * 1.01
            readers.read(sides[i % len(sides)], x)
        loss = x.square().mean()
        del x
        penalty = more_work()
        for side in sides:
            readers.join(side)
        (loss + penalty).backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def moving_averages(readers):
    """Reads parameters and optimizer state after each step; joins before the next optimizer step changes them."""
    training = Training()
    side = readers.stream()
    for _ in range(STEPS):
        loss = training.loss()
        loss.backward()
        readers.join(side)
        training.finish(loss)
        for parameter in training.net.parameters():
            readers.read(side, parameter)
            readers.read(side, training.optimizer.state[parameter]["exp_avg"])
    readers.join(side)
    return training.losses


def weights_in_mid_step(readers):
    """Reads parameters right before the forward pass of their layers; joins between forward and backward pass."""
    training = Training()
    side = readers.stream()
    for _ in range(STEPS):
        x = draw(WIDTH, WIDTH)
        for layer in training.net.layers:
            readers.read(side, layer.weight)
            x = training.net.block(layer, x)
        loss = (training.net.norm(x) ** 2).mean()
        del x
        readers.join(side)
        loss.backward()
        training.finish(loss)
    return training.losses


def prefetching(readers):
    """The next batch is copied on a side stream, and only the graph keeps the last one."""
    training = Training()
    side = readers.stream()
    batch = draw(WIDTH, WIDTH)
    for _ in range(STEPS):
        following = draw(WIDTH, WIDTH)
        readers.read(side, batch)
        loss = (training.net(batch) ** 2).mean()
        batch = following
        del following
        penalty = more_work()
        readers.join(side)
        (loss + penalty).backward()
        training.finish(loss)
    return training.losses


def threads(readers):
    """A thread beside the training reads activations on a stream of its own, at any time."""
    training = Training()
    sides = [readers.stream(), readers.stream()]
    for _ in range(STEPS):
        x = draw(WIDTH, WIDTH)
        for i, layer in enumerate(training.net.layers):
            x = training.net.block(layer, x)
            thread = threading.Thread(target=readers.read, args=(sides[i % 2], x))
            thread.start()
            thread.join()
        loss = (training.net.norm(x) ** 2).mean()
        del x, thread
        for side in sides:
            readers.join(side)
        loss.backward()
        training.finish(loss)
    return training.losses


def kept_graph(readers):
    """A saved tensor is swapped in, read through its node on a side stream, and swapped out again with the graph still there."""
    training = Training()
    side = readers.stream()
    for _ in range(STEPS):
        x = draw(WIDTH, WIDTH).requires_grad_()
        node = x.exp().grad_fn
        loss = training.loss()
        readers.read(side, node._saved_result)
        penalty = more_work()
        readers.join(side)
        (loss + penalty).backward()
        del node
        training.finish(loss)
    return training.losses


class Scale(torch.autograd.Function):
    """Saves a factor without reading it."""

    @staticmethod
    def forward(context, x, factor):
        context.save_for_backward(factor)
        return x * 1

    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0], None


def written_late(run):
    """A side stream writes a tensor that a function saves without reading it; joins before backward."""
    training, gradients = Training(), []
    # No state, whose copies wait for side streams anyway.
    training.optimizer = torch.optim.SGD(training.net.parameters(), 1e-3)
    backend = run.backend if run is not None else None
    side = backend.side_stream() if run is not None else None
    if run is not None:
        copy = backend.copy_out

        def copy_out(target, storage):
            # As early as its waits allow, and before the side stream does anything.
            copy(target, storage)
            while backend.out_stream.queue:
                backend.run_one(backend.out_stream)

        backend.copy_out = copy_out
    for _ in range(STEPS):
        x, factor, content = draw(WIDTH, WIDTH).requires_grad_(), torch.zeros(WIDTH, WIDTH), draw(WIDTH, WIDTH)
        if run is None:
            factor.copy_(content)
        else:
            backend.write(side, factor, ctypes.string_at(content.data_ptr(), content.numel() * content.element_size()))
        y = Scale.apply(x, factor)
        # It may leave now, and nothing has waited for the side stream yet.
        del factor
        loss = y.sum() * 1e-6 + training.loss()
        penalty = more_work()
        if run is not None:
            backend.wait(backend.compute, backend.event(side))
        (loss + penalty).backward()
        gradients.append(x.grad)
        training.finish(loss)
    losses, tensors = training.result()
    return losses, tensors + gradients


class SideStreams(SwapCase):
    def same_reads(self, program, modes=MODES, orders=ORDERS, check=None, **options):
        plain = Readers()
        losses = program(plain)
        for mode in modes:
            for order, seed in orders:
                with Run(mode, order, seed, **options) as run:
                    readers = Readers(run)
                    found = program(readers)
                    self.assertIsNone(run.manager.stopped)
                self.assertEqual(readers.wrong(plain), 0, f"wrong reads, {mode}, {order} {seed}")
                self.assertEqual(losses, found, f"losses, {mode}, {order} {seed}")
                self.assertGreater(run.report["bytesIn"], 0)
                if check:
                    check(run)

    def test_statistics_of_activations(self):
        self.same_reads(statistics)
        self.same_reads(statistics, debug=False, orders=ORDERS[:1])

    def test_several_streams(self):
        self.same_reads(lambda readers: statistics(readers, streams=3), orders=ORDERS[:3])

    def test_averages_of_parameters_and_state(self):
        self.same_reads(moving_averages)

    def test_parameters_in_mid_step(self):
        self.same_reads(weights_in_mid_step, modes=("all", "limit"), check=lambda run: self.assertGreater(run.report["parametersOut"], 0))

    def test_prefetched_batches(self):
        self.same_reads(prefetching, orders=ORDERS[:3])

    def test_threads(self):
        self.same_reads(threads, orders=ORDERS[:3])

    def test_a_kept_graph(self):
        self.same_reads(kept_graph)

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_a_tensor_that_is_written_late(self):
        expected = written_late(None)
        for mode in MODES:
            for order, seed in ORDERS:
                with Run(mode, order, seed, debug=False) as run:
                    found = written_late(run)
                    self.assertIsNone(run.manager.stopped)
                self.assertEqual(expected[0], found[0])
                self.assertTrue(all(torch.equal(*pair) for pair in zip(expected[1], found[1], strict=True)), (mode, order, seed))

    def test_functions_that_may_save_without_reading(self):
        with Run("plan", debug=False) as run:
            for save, unread in (
                (lambda x: Scale.apply(x, draw(WIDTH, WIDTH)), True),
                (lambda x: checkpoint(torch.tanh, x * 2, use_reentrant=False), True),
                (lambda x: checkpoint(torch.tanh, x * 2, use_reentrant=True), True),
                (torch.exp, False),
            ):
                x = draw(WIDTH, WIDTH).requires_grad_()
                kept = save(x)
                records = [reference() for reference in run.manager.saved.records]
                self.assertEqual([record.unread for record in records], [unread])
                del kept, records
                run.manager.saved.clear_dead()

    def test_relief(self):
        def program(readers):
            training = Training()
            side = readers.stream()
            for i in range(STEPS):
                x = draw(WIDTH, WIDTH)
                for layer in training.net.layers:
                    x = training.net.block(layer, x)
                    readers.read(side, x)
                if i > 3:
                    state = training.optimizer.state[training.net.layers[0].weight]["exp_avg"]
                    readers.read(side, state)
                    del state
                loss = (training.net.norm(x) ** 2).mean()
                del x
                if swap._manager is not None:
                    swap._manager.relieve(0, 64 * 4 * WIDTH * WIDTH)
                readers.join(side)
                loss.backward()
                training.finish(loss)
            return training.losses

        self.same_reads(program, orders=ORDERS[:3], check=lambda run: self.assertGreater(run.report["reliefs"], 0))

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_missing_fences_are_seen(self):
        """The tests are worth something: without fences, side streams read what the next owner wrote."""
        for program in (statistics, moving_averages, weights_in_mid_step, prefetching, threads, kept_graph):
            plain = Readers()
            program(plain)
            wrong = 0
            for mode in MODES:
                with Run(mode, "late", debug=False) as run:
                    without_fences(run)
                    readers = Readers(run)
                    program(readers)
                wrong += readers.wrong(plain)
            self.assertGreater(wrong, 0, program.__name__)


if __name__ == "__main__":
    unittest.main()
