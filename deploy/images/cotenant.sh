#!/bin/sh
# cotenant.sh ROOT ROLE: add cotenant to a root file system, compile, write the SBOM, and try what the role imports.
set -eu
root=$1 role=$2
packages=$root/usr/local/lib/python3.11/dist-packages
python="chroot $root /usr/bin/python3.11"
/opt/tools/bin/pip --python /usr/bin/python3.11 install --quiet --no-compile --no-deps --no-index --ignore-installed \
    --break-system-packages --root-user-action ignore --no-warn-script-location --root "$root" /wheel/*.whl
if [ "$role" = node ]; then
    # shellcheck disable=SC2086  # a command of several words
    sh /images/agent.sh "$packages" $python
    rm -f "$root"/usr/local/bin/*
fi

# Accounts, names, certificate authorities: what the packages' scripts would have written.
printf 'root:x:0:0:root:/root:/usr/sbin/nologin\ncotenant:x:65532:65532:cotenant:/var/lib/cotenant:/usr/sbin/nologin\n' \
    > "$root/etc/passwd"
printf 'root:x:0:\ncotenant:x:65532:\n' > "$root/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n' > "$root/etc/nsswitch.conf"
mkdir -p "$root/etc/ssl/certs" "$root/var/lib/cotenant" "$root/tmp" "$root/proc" "$root/sys" "$root/dev"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt > "$root/etc/ssl/certs/ca-certificates.crt"
[ "$role" = node ] || chown 65532:65532 "$root/var/lib/cotenant"
chmod 750 "$root/var/lib/cotenant"
chmod 1777 "$root/tmp"

/usr/bin/python3.11 -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$packages/cotenant"

if [ "$role" = node ]; then
    $python -c 'import cotenant.enforcer.__main__, cotenant.enforcer.assembly, grpc, google.protobuf, numpy, ssl, sqlite3'
    chroot "$root" /usr/sbin/tc -V && chroot "$root" /usr/sbin/nft --version
else
    $python -c 'import dash, kubernetes.config, pandas, pyarrow.dataset, pyarrow.parquet, scipy.optimize, sklearn.ensemble'
    $python -c 'import statsmodels.api, uvloop, httptools, ssl, sqlite3; import cotenant.cli.main'
fi
sh /images/sbom.sh "$root" "$role"
