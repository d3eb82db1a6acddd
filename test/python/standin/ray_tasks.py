"""Ray tasks and an actor on Weir, by runtime_env alone; prints what they say as JSON."""

import json

import ray

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
ON_WEIR = {"env_vars": {"WEIR": "1", "WEIR_LIMIT": "400MiB"}}


def told():
    import standin_gpu
    import torch
    import weir_gpu
    from weir_gpu import enabling

    standin_gpu.train()
    limit = (weir_gpu.gauges() or {}).get("limit")
    started = enabling._supervisor.started if enabling._supervisor else None
    return float(torch.ones(3).sum()), limit, str(weir_gpu.summary()), started


@ray.remote(runtime_env=ON_WEIR)
def task():
    return told()


@ray.remote
def plain_task():
    return told()


@ray.remote(runtime_env=ON_WEIR)
class Actor:
    def work(self):
        return told()


actor = Actor.remote()
found = {
    "tasks": ray.get([task.remote(), task.remote()]),
    "plain": ray.get(plain_task.remote()),
    "actor": [ray.get(actor.work.remote()), ray.get(actor.work.remote())],
}
ray.kill(actor)
ray.shutdown()
print(json.dumps(found))
