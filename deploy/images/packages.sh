#!/bin/sh
# packages.sh ROOT LOCK: install the locked Python packages into a root file system, without what never runs there.
set -eu
root=$1 lock=$2
packages=$root/usr/local/lib/python3.11/dist-packages
ln -sf python3.11 "$root/usr/bin/python3"
ln -sf python3.11 "$root/usr/bin/python"
/opt/tools/bin/pip --python /usr/bin/python3.11 install --quiet --no-compile --no-deps --ignore-installed \
    --break-system-packages --root-user-action ignore --no-warn-script-location --only-binary :all: --root "$root" --require-hashes -r "$lock"

# Tests, sources and headers of compiled modules, types for checkers, source maps, notebook extensions, development
# bundles that Dash serves in debug mode alone, and data sets that examples load.
find "$packages" -depth \( -type d \( -name tests -o -name labextension -o -name include \) \
    -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.h' -o -name '*.hpp' -o -name '*.c' \
    -o -name '*.cpp' -o -name '*.a' -o -name '*.map' -o -name '*.dev.js' -o -name widgetbundle.js \) -exec rm -rf {} +
find "$packages" -path '*/statsmodels/datasets/*' ! -name '*.py' -type f -exec rm -f {} +
rm -rf "$packages"/sklearn/datasets/data "$packages"/sklearn/datasets/images "$packages"/sklearn/datasets/descr
# Nothing here loads Arrow's RPC and S3 client (buckets are read by obstore), the Kubernetes client beyond its
# configuration, what colours other languages than Python, and what builds wheels.
find "$packages" -path '*/pygments/lexers/*' -name '*.py' ! -name '__init__.py' ! -name '_mapping.py' ! -name 'python.py' \
    -exec rm -f {} +
find "$packages" -path '*/pyarrow/*' \( -name '*flight*' -o -name 'libarrow_s3*' -o -name '_s3fs*' \) -exec rm -rf {} +
find "$packages" -path '*/kubernetes/client/api/*' -name '*_api.py' -o -path '*/kubernetes/client/models/*' -name 'v[0-9]*.py' |
    xargs rm -f
rm -rf "$packages"/kubernetes/aio "$packages"/setuptools "$packages"/setuptools-* \
    "$packages"/_distutils_hack "$packages"/distutils-precedence.pth \
    "$packages"/wheel "$packages"/wheel-* "$packages"/pyarrow/src \
    "$root"/usr/local/share "$root"/usr/local/etc
find "$root"/usr/local/bin ! -type d -exec rm -f {} + # the packages' own commands; cotenant's come with its wheel

# Symbols for debuggers. Libraries in *.libs were patched after they were linked, which strip does not survive.
find "$packages" -name '*.so*' -type f ! -path '*.libs/*' -exec strip --strip-unneeded {} +

# Compiled by content, not by time: the same bytes on every build.
/usr/bin/python3.11 -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / \
    "$root/usr/lib/python3.11" "$packages"
