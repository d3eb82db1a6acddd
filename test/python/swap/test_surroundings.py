"""Beside other things that take hold of PyTorch, and what is left when swapping ends."""

import atexit
import contextlib
import gc
import io
import tempfile
import unittest

import torch
from fake_gpu import FakeBackend
from support import DEVICE, FAKE, LEAST, ORDERS, WIDTH, Run, SwapCase, Training, draw
from weir_gpu import settings, swap
from weir_gpu.abi import ChildVariable
from weir_gpu.swap import optimizer_state
from weir_gpu.swap.backend import _PeakKeeper
from weir_gpu.swap.lock import Lock


def lines_printed(variables):
    """What a job with these variables prints about swapping, from its first steps to an early end."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(printed):
        environment = {ChildVariable.SWAP: "auto", ChildVariable.RUN_DIR: folder, **variables}
        options = swap.Options.of(settings.read(environment), least=LEAST, is_device=lambda tensor: tensor.device.type == DEVICE)
        options.tolerance = None
        if FAKE:
            backend = FakeBackend()
            options.make_backend = lambda tensor: backend
        manager = swap.install(options)
        try:
            training = Training()
            for i in range(6):
                training.step(i)
            manager.stop("of a test")
            try:
                raise ValueError("a defect")
            except ValueError:
                manager.failed("a test")
        finally:
            swap.uninstall()
            atexit.unregister(swap._write_report)
    return printed.getvalue()


class Quiet(unittest.TestCase):
    def test_a_quiet_run_prints_nothing(self):
        self.assertEqual("", lines_printed({ChildVariable.QUIET: "1"}))

    def test_other_runs_print_their_steps_and_errors(self):
        printed = lines_printed({ChildVariable.QUIET: "0"})
        for text in ("weir: swap: watching steps", "weir: swap: swapping stops: of a test", "ValueError: a defect"):
            self.assertIn(text, printed)


class Peaks(unittest.TestCase):
    """Weir resets PyTorch's peaks to measure between two ticks. The program must not notice, whichever way it reads them."""

    NAMES = ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_accelerator_getDeviceStats", "_accelerator_resetPeakStats")

    def setUp(self):
        self.originals = {name: getattr(torch._C, name, None) for name in self.NAMES}
        self.made, _PeakKeeper._made = _PeakKeeper._made, {}
        self.peak = 700

        def stats(device):
            return {"allocated_bytes": {"all": {"peak": self.peak}}, "reserved_bytes": {"all": {"peak": 2 * self.peak}}}

        def reset(device):
            self.peak = 100

        for name in self.NAMES:
            setattr(torch._C, name, stats if "Stats" in name and "reset" not in name else reset)
        self.keeper = _PeakKeeper.of(0)

    def tearDown(self):
        _PeakKeeper._made = self.made
        for name, original in self.originals.items():
            delattr(torch._C, name) if original is None else setattr(torch._C, name, original)

    def read(self):
        return [getattr(torch._C, name)(0)["allocated_bytes"]["all"]["peak"] for name in self.NAMES[::2]]

    def test_peaks_stay_as_they_were(self):
        self.assertEqual(self.keeper.take(), (700, 1400))
        self.assertEqual(self.keeper.take(), (100, 200))
        self.assertEqual(self.read(), [700, 700])
        self.peak = 900
        self.assertEqual(self.read(), [900, 900])

    def test_either_reset_holds_for_both(self):
        for name in self.NAMES[1::2]:
            self.peak = 700
            self.keeper.take()
            self.assertEqual(self.read(), [700, 700])
            getattr(torch._C, name)(0)
            self.assertEqual(self.read(), [100, 100])


class Surroundings(SwapCase):
    def test_torch_func(self):
        def program():
            training = Training()
            sums = []
            for i in range(8):
                training.step(i)
                sums.append(torch.func.grad(lambda x: (x**3).sum())(draw(WIDTH, WIDTH)))
                sums.append(torch.func.vmap(torch.func.grad(lambda x: x.sin().sum()))(draw(WIDTH, WIDTH)))
            losses, tensors = training.result()
            return losses, tensors + sums

        self.same(program, "plan")

    def test_hooks_of_the_user_take_precedence(self):
        def program():
            training = Training()
            for _ in range(10):
                with torch.autograd.graph.save_on_cpu():
                    loss = training.loss()
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan")

    def test_compiled(self):
        def program():
            torch._dynamo.reset()
            training = Training()
            compiled = torch.compile(training.net, backend="aot_eager")
            for _ in range(10):
                loss = (compiled(draw(WIDTH, WIDTH)) ** 2).mean()
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:1])
        self.same(program, "all", orders=ORDERS[:1])

    def test_without_an_optimizer(self):
        def program():
            training = Training()
            for _ in range(10):
                loss = training.loss()
                loss.backward()
                training.losses.append(loss.item())
                with torch.no_grad():
                    for parameter in training.net.parameters():
                        parameter.sub_(parameter.grad, alpha=0.1)
                        parameter.grad = None
                swap.step()
            return training.result()

        self.same(program, "plan", check=lambda run: self.assertGreater(run.report["stepsPlanned"], 3))

    def test_steps_that_never_repeat(self):
        def program():
            training = Training()
            for i in range(24):
                loss = training.loss(WIDTH + i)
                loss.backward()
                training.finish(loss)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:1], check=lambda run: self.assertFalse(run.manager.hooks.pushed))
        self.same(program, "all", orders=ORDERS[:2])

    def test_nothing_is_left_behind(self):
        with Run("plan") as run:
            training = Training()
            for i in range(12):
                training.step(i)
            del training
            gc.collect()
            run.manager.steps.clean_up()
            gc.collect()
            self.assertEqual(run.manager.copies.slab.used, 0)
            self.assertEqual(len(run.manager.copies.pending_frees), 0)
            self.assertEqual(run.manager.copies.swapped_out, 0)
            self.assertEqual([reference for reference in run.manager.saved.by_cdata.values() if reference() is not None], [])
        self.assertIsNone(torch._C._autograd._top_saved_tensors_default_hooks(True) or None)

    @unittest.skipIf(FAKE, "needs a GPU")
    def test_a_captured_graph_ends_the_swapping(self):
        for mode in ("all", "plan"):
            with Run(mode) as run:
                training = Training()
                for i in range(12):
                    if i == 8:
                        training.loss()
                        x = torch.ones(WIDTH, WIDTH, device=DEVICE)
                        graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(graph):
                            y = x * 2
                        graph.replay()
                        self.assertEqual(y.sum().item(), 2 * WIDTH * WIDTH)
                        self.assertIn("graph", run.manager.stopped)
                        self.assertEqual(run.manager.guard.moving, 0)
                        torch.manual_seed(77)
                    training.step(i)
                found = training.result()

            def reference():
                training = Training()
                for i in range(12):
                    if i == 8:
                        torch.manual_seed(77)
                    training.step(i)
                return training.result()

            self.assertEqual(reference()[0], found[0])

    @unittest.skipUnless(FAKE, "for the fake GPU")
    def test_ownership_counts(self):
        parameter = torch.nn.Parameter(torch.randn(4096))
        optimizer = torch.optim.Adam([parameter])
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        guard = optimizer_state.StateGuard(type("C", (), {"backend": FakeBackend()}), Lock(), 1024)
        guard.scan(optimizer)
        ours = lambda: [item.is_exclusive() for item in guard.items]  # noqa: E731
        self.assertEqual(ours(), [True, True])
        for hold in (
            lambda: optimizer.state[parameter],
            lambda: optimizer.state[parameter]["exp_avg"],
            lambda: optimizer.state[parameter]["exp_avg"][3:5],
            lambda: optimizer.state[parameter]["exp_avg"].untyped_storage(),
            lambda: optimizer.state[parameter]["exp_avg"].data,
            lambda: optimizer.state_dict(),
        ):
            held = hold()
            self.assertFalse(ours()[0])
            del held
            self.assertEqual(ours(), [True, True])


if __name__ == "__main__":
    unittest.main()
