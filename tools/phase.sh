#!/bin/sh
# Run a command behind a bar: how long it has taken, and how long it still takes if it takes as long as expected.
#     sh tools/phase.sh WORDS EXPECTED_SECONDS COMMAND [ARGUMENT...]
# What the command says is shown when it fails. Without a terminal there is a line at the beginning and every 15 seconds.
words=$1 expected=$2
shift 2
log=$(mktemp) || exit 1
begun=$(date +%s)
"$@" >"$log" 2>&1 &
job=$!
trap 'kill "$job" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
shown=-15
while kill -0 "$job" 2>/dev/null; do
	took=$(($(date +%s) - begun))
	left=$((expected - took))
	[ "$left" -gt 0 ] && rest="about $left s left" || rest="longer than usual"
	if [ -t 2 ]; then
		filled=$((took < expected ? 20 * took / expected : 19))
		bar=$(printf '%*s' "$filled" '' | tr ' ' '#')
		printf '\r%s [%-20s] %d s, %s   ' "$words" "$bar" "$took" "$rest" >&2
	elif [ $((took - shown)) -ge 15 ]; then
		shown=$took
		echo "$words: $took s, $rest" >&2
	fi
	sleep 1
done
wait "$job"
code=$?
took=$(($(date +%s) - begun))
[ -t 2 ] && printf '\r%s [####################] %d s                         \n' "$words" "$took" >&2
[ "$code" = 0 ] || cat "$log" >&2
rm -f "$log"
exit "$code"
