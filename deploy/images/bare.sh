#!/bin/sh
# bare.sh ROOT: of Python's library and the packages keep the compiled form alone, of iproute2 tc alone.
# An image on every node must be small; cotenant's own modules come later and keep their sources for tracebacks.
set -eu
root=$1
find "$root/usr" -name __pycache__ -prune -exec rm -rf {} +
/usr/bin/python3.11 -m compileall -q -b --invalidation-mode unchecked-hash -s "$root" -p / \
    "$root/usr/lib/python3.11" "$root/usr/local/lib/python3.11/dist-packages"
find "$root/usr/lib/python3.11" "$root/usr/local/lib" -name '*.py' -exec rm -f {} +
rm -rf "$root"/usr/lib/python3.11/curses "$root"/usr/lib/python3.11/distutils
for program in "$root"/bin/* "$root"/sbin/*; do
    case ${program##*/} in
    tc | nft | python*) ;;
    *) rm -f "$program" ;;
    esac
done
