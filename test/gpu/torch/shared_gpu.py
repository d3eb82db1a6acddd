"""Several NCCL ranks on one GPU: each needs a host id of its own, and then talks to the others over sockets."""

import os


def share_gpu():
    """Call before the process group is made. Returns the rank."""
    rank = int(os.environ["RANK"])
    os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_P2P_DISABLE="1", NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="lo")
    return rank
