#!/bin/sh
# agent.sh PACKAGES PYTHON...: of cotenant in the folder PACKAGES, which PYTHON imports, leave what the node agent runs:
# the rooms base and enforcer, and of the others the modules that these import, which declare settings.
set -eu
packages=$1
shift
imported=$(mktemp)
trap 'rm -f "$imported"' EXIT
"$@" -B -c '
import sys
from pathlib import Path
import cotenant.enforcer.__main__, cotenant.enforcer.assembly
folder = Path(sys.modules["cotenant"].__file__).parent
own = (module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "cotenant" and module.__file__)
print(*(Path(file).relative_to(folder) for file in own), sep="\n")
' > "$imported"
cd "$packages/cotenant"
find . -type f ! -path './base/*' ! -path './enforcer/*' | sed 's|^\./||' | grep -vxF -f "$imported" | xargs rm -f
find . -type d -empty -delete
