#!/bin/busybox sh
# First process of the emulated machine: loads what 9p needs, mounts the host's files read-only, runs the tests there.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for module in $($b cat /etc/modules); do $b insmod "/modules/$module"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro host /host
$b mount -t proc proc /host/proc
$b mount -t sysfs sys /host/sys
$b mount -t devtmpfs dev /host/dev
$b mount -t tmpfs tmpfs /host/run
$b mount -t cgroup2 none /host/sys/fs/cgroup
for controller in $($b cat /host/sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /host/sys/fs/cgroup/cgroup.subtree_control
done
$b ip link set lo up
export PYTHONDONTWRITEBYTECODE=1 PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run HOME=/run PYTHONPATH="$COTENANT_ROOT"
$b chroot /host /bin/sh -c 'cd "$COTENANT_ROOT" && exec "$COTENANT_PYTHON" -m pytest -q -rA --color=no \
    -p no:cacheprovider -p no:dash --noconftest --import-mode=importlib -c /dev/null --rootdir="$COTENANT_ROOT" \
    --confcutdir="$COTENANT_ROOT/tests" --basetemp=/run/pytest "$COTENANT_TESTS"'
echo "guest-rc=$?"
$b poweroff -f
