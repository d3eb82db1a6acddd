"""Runs cells in a real Jupyter kernel, with weir_gpu.enable() in the first; prints what came of each as JSON."""

import json
import threading
import time

from jupyter_client.manager import start_new_kernel

CELLS = [
    'import weir_gpu; weir_gpu.enable(limit="400MiB", quiet=True)',
    "import torch, standin_gpu; standin_gpu.train(); float(torch.ones(3).sum())",
    "weir_gpu.summary()",
    'import weir_gpu; weir_gpu.enable(limit="400MiB", quiet=True)',
    'weir_gpu.enable(limit="1GiB")',
    "import time; time.sleep(60)",
    "standin_gpu.train(); print(weir_gpu.summary(what_if=False))",
    "from weir_gpu import enabling; print(enabling._supervisor.started)",
]

manager, client = start_new_kernel(kernel_name="python3")
told = []
for cell in CELLS:
    outputs = []

    def hear(message, outputs=outputs):
        content = message["content"]
        if message["msg_type"] == "stream":
            outputs.append(content["text"])
        elif message["msg_type"] in ("execute_result", "display_data"):
            outputs.append(content["data"]["text/plain"])
        elif message["msg_type"] == "error":
            outputs.append(f"{content['ename']}: {content['evalue']}")

    if "sleep(60)" in cell:
        threading.Thread(target=lambda: (time.sleep(1), manager.interrupt_kernel()), daemon=True).start()
    reply = client.execute_interactive(cell, output_hook=hear, timeout=120)
    told.append([reply["content"]["status"], "".join(outputs)])
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps(told))
