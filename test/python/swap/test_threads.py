"""Threads beside the training use what is being swapped, at the worst moments."""

import _thread
import threading
import time
import unittest

import torch
from support import FAKE, LEAST, ORDERS, WIDTH, Run, SwapCase, Training, draw, followed, swapped, trained
from weir_gpu import swap
from weir_gpu.swap import swapped_tensors
from weir_gpu.swap.records import RESIDENT, SWAPPED_OUT


def in_a_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


@unittest.skipUnless(FAKE, "for the fake GPU")
class Threads(SwapCase):
    def swapped_layer(self, run):
        """A layer that is swapped out, its weight and what it holds."""
        training = trained()
        layers = run.manager.layers
        layer = layers.layers[0]
        parameter = layer.weights[0].parameter()
        expected = parameter.detach().clone()
        self.swap_out(layers, layer)
        self.assertEqual(layer.weights[0].state, SWAPPED_OUT)
        return training, layers, layer, parameter, expected

    def test_a_save_on_a_thread_without_python_code(self):
        """As when backward is differentiated (create_graph): autograd's thread of a GPU calls our hook, and no Python code calls it."""
        with Run("all", debug=False) as run:
            training = trained()
            tensor = draw(WIDTH, WIDTH)
            before, deadline = run.manager.saved.count, time.monotonic() + 10
            _thread.start_new_thread(run.manager.pack, (tensor,))
            while run.manager.saved.count == before and run.manager.stopped is None and time.monotonic() < deadline:
                time.sleep(0.001)
            self.assertIsNone(run.manager.stopped)
            self.assertEqual(run.manager.saved.count, before + 1)
            del training

    def swap_out(self, layers, layer):
        with layers.lock:
            layers.begin_layer_swap_out(layer)
            layers.end_layer_swap_out(layer)

    def test_a_parameter_that_leaves_again_right_after_its_swap_in(self):
        for again in (self.swap_out, lambda layers, layer: layers.begin_layer_swap_out(layer)):
            with Run("limit", "late", debug=False) as run:
                training, layers, layer, parameter, expected = self.swapped_layer(run)
                swap_in = swapped_tensors._swapped_out[id(parameter)]

                def swap_in_and_lose(swap_in=swap_in, again=again, layers=layers, layer=layer):
                    swap_in()
                    in_a_thread(lambda: again(layers, layer))

                swapped_tensors._swapped_out[id(parameter)] = swap_in_and_lose
                self.assertTrue(torch.equal(parameter + 0, expected))
                self.assertEqual(layer.weights[0].state, RESIDENT)
                self.assertIs(type(parameter), torch.nn.Parameter)
                self.assertNotIn(id(parameter), swapped_tensors._swapped_out)
                del training

    def test_the_class_of_a_parameter_is_the_last_to_come_back(self):
        """Whoever finds a plain parameter uses its content without asking."""
        with Run("limit", "late", debug=False) as run:
            training, layers, layer, parameter, expected = self.swapped_layer(run)
            found = []

            class Watched(dict):
                def pop(self, *arguments):
                    found.append(type(parameter))
                    return super().pop(*arguments)

            contents, swapped_tensors._contents = swapped_tensors._contents, Watched(swapped_tensors._contents)
            try:
                self.assertTrue(torch.equal(parameter + 0, expected))
            finally:
                swapped_tensors._contents = contents
            self.assertIs(found[0], swapped_tensors.SwappedParameter)
            del training, layers, layer

    def test_state_that_leaves_while_a_thread_takes_it_out(self):
        for take in ("pop", "setdefault", "popitem"):
            with Run("limit", *ORDERS[0], debug=False) as run:
                training = trained(6)
                guard, state = run.manager.guard, training.optimizer.state
                guard.protect_all()
                state = training.optimizer.state
                expected = {key: entry["exp_avg"].clone() for key, entry in state.items()}
                bring = guard.swap_in_all

                def leave(guard=guard):
                    if guard.lock.acquire(blocking=False):
                        for item in guard.items:
                            guard.begin_swap_out(item)
                            guard.end_swap_out(item)
                        guard.lock.release()

                def bring_and_lose(bring=bring, leave=leave):
                    bring()
                    in_a_thread(leave)

                leave()
                self.assertIn(SWAPPED_OUT, [item.state for item in guard.items])
                guard.swap_in_all = bring_and_lose
                key = next(iter(expected)) if take != "popitem" else list(expected)[-1]
                taken = getattr(state, take)(*([] if take == "popitem" else [key]))
                entry = taken[1] if take == "popitem" else taken
                self.assertTrue(torch.equal(entry["exp_avg"], expected[key]), take)
                guard.swap_in_all = bring


class Trainers(SwapCase):
    """Training in a thread that did not install swapping, as Ray does it. Saved-tensor hooks belong to a thread."""

    def test_same_values(self):
        def program():
            found = []
            in_a_thread(lambda: found.append(trained(12).result()))
            return found[0]

        for mode in ("all", "plan", "limit"):
            self.same(program, mode, orders=ORDERS[:3], check=swapped if mode == "all" else followed)

    def test_one_thread_after_the_other(self):
        out = []

        def program():
            training = Training()
            out.clear()
            for turn in range(4):
                out.append((swap.report() or {"bytesOut": 0})["bytesOut"])
                in_a_thread(lambda turn=turn: [training.step(i) for i in range(6)])
            return training.result()

        def check(run):
            # In each of them: the first step of a thread is not seen, the others are.
            moved = [after - before for before, after in zip(out, [*out[1:], run.report["bytesOut"]])]
            self.assertGreater(min(moved[1:]), 3 * LEAST, moved)

        for mode in ("all", "plan"):
            self.same(program, mode, orders=ORDERS[:3], check=check)

    def test_the_installing_thread_goes_on_with_what_another_one_began(self):
        def program():
            training = Training()
            in_a_thread(lambda: [training.step(i) for i in range(3)])
            for i in range(8):
                training.step(i)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:3], check=swapped)

    def test_without_an_optimizer(self):
        """The end of each step is told by the thread that trains."""

        def program():
            training = Training()

            def train():
                for _ in range(12):
                    loss = training.loss()
                    loss.backward()
                    training.losses.append(loss.item())
                    with torch.no_grad():
                        for parameter in training.net.parameters():
                            parameter.sub_(parameter.grad, alpha=0.1)
                            parameter.grad = None
                    swap.step()

            in_a_thread(train)
            return training.result()

        self.same(program, "plan", orders=ORDERS[:3], check=lambda run: self.assertGreater(run.report["stepsPlanned"], 3))

    def test_hooks_of_the_program_keep_their_place(self):
        """Ours must not be pushed on top of others: their context would pop ours, and ours would stay without end."""
        for mode in ("all", "plan"):
            with Run(mode) as run:
                seen = []

                def train(seen=seen, run=run):
                    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
                        training = trained(2)
                        seen.append(run.manager.hooks.pushed)
                    seen.append(bool(torch._C._autograd._top_saved_tensors_default_hooks(True)))
                    training.step(2)
                    seen.append(run.manager.hooks.pushed)

                in_a_thread(train)
                self.assertEqual(seen, [False, False, True], mode)

    def test_hooks_that_the_program_has_disabled(self):
        with Run("plan") as run:
            seen = []

            def train():
                with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
                    training = trained(2)
                    seen.append(run.manager.hooks.pushed)
                training.step(2)
                seen.append(run.manager.hooks.pushed)

            in_a_thread(train)
            self.assertEqual(seen, [False, True])

    def test_threads_beside_the_training_get_no_hooks(self):
        with Run("plan") as run:
            training = trained(3)
            seen = []
            in_a_thread(lambda: (trained(2, seed=1), seen.append(run.manager.hooks.pushed)))
            self.assertEqual(seen, [False])
            for i in range(4):
                training.step(i)
            self.assertIs(run.manager.hooks.thread, threading.current_thread())

    def test_transforms_in_the_thread(self):
        def program():
            found = []

            def train():
                training = Training()
                sums = []
                for i in range(8):
                    training.step(i)
                    sums.append(torch.func.grad(lambda x: (x**3).sum())(draw(WIDTH, WIDTH)))
                losses, tensors = training.result()
                found.append((losses, tensors + sums))

            in_a_thread(train)
            return found[0]

        self.same(program, "plan", orders=ORDERS[:2], check=swapped)


if __name__ == "__main__":
    unittest.main()
