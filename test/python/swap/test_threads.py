"""Threads beside the training use what is being swapped, at the worst moments."""

import threading
import unittest

import torch
from support import FAKE, ORDERS, Run, SwapCase, trained
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


if __name__ == "__main__":
    unittest.main()
