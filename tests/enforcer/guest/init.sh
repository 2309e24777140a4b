#!/bin/sh
# First process of the guest: mounts what tests need, runs them with the host's Python, tells the result, halts.
# The host's files are read-only below; COTENANT_* come from the kernel's command line.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmpfs /run
case "$COTENANT_ROOT:$COTENANT_PYTHON" in /tmp/* | *:/tmp/*) ;; *) mount -t tmpfs tmpfs /tmp ;; esac
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
done
export PYTHONDONTWRITEBYTECODE=1 PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run HOME=/run PYTHONPATH="$COTENANT_ROOT"
cd "$COTENANT_ROOT" || exit 1
"$COTENANT_PYTHON" -m pytest -q -rA --color=no -p no:cacheprovider -p no:dash --noconftest --import-mode=importlib \
    -c /dev/null --rootdir="$COTENANT_ROOT" --confcutdir="$COTENANT_ROOT/tests" --basetemp=/run/pytest "$COTENANT_TESTS"
echo "guest-rc=$?"
"$COTENANT_PYTHON" -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)'
