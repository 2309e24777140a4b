"""A process that stands for a Lease and writes as fast as it may while it leads; tests stop and wake it.

    python -m tests.support.lease_holder KUBECONFIG NAMESPACE LEASE IDENTITY

Prints "led" when it first leads, and "refused" whenever its guard held a write back after that.
"""

from __future__ import annotations

import sys
import time

from cotenant.base.errors import ClusterError, NotLeader
from cotenant.base.kube import Lease, Writer, connect
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.process.clock import SystemClock
from cotenant.base.settings.sections import KubeSettings, ManagerSettings

LEASE_SECONDS = 4.0


def main() -> None:
    kubeconfig, namespace, name, identity = sys.argv[1:]
    client = connect(KubeSettings(kubeconfig=kubeconfig))
    lease = Lease(client, namespace, name, identity, ManagerSettings(lease_seconds=LEASE_SECONDS), SystemClock())
    lease.start()
    writer = Writer(client, "cotenant-test", lease.require)
    where = Address("v1", "configmaps", f"by-{identity}", namespace)
    meta = {"name": where.name, "namespace": namespace}
    count, led = 0, False
    while True:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"count": str(count)}}
        try:
            writer.send(Apply(where, body))
        except NotLeader:
            if led:
                print("refused", flush=True)
        except ClusterError as error:
            print(f"failed: {error}", flush=True)
        else:
            count += 1
            if not led:
                print("led", flush=True)
                led = True
        time.sleep(0.02)


if __name__ == "__main__":
    main()
