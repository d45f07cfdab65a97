#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PACKAGE...: runs these packages' tests with root's rights, in this order as far as cores are free, and prints
# the slowest tests at the end; scripts/swept.sh runs it. TESTFLAGS holds more flags for `go test`. A test that fails by
# chance has failed: none is repeated.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

programs=$("$GO" env GOPATH)/bin
if [ "$("$programs/gotestsum" --version 2>/dev/null)" != "gotestsum version ${GOTESTSUM##*@}" ]; then
	# The home directory may be read-only.
	mkdir -p "$programs" 2>/dev/null || true
	[ -w "$programs" ] || programs=$TREE/bin
	GOBIN=$programs "$GO" install "$GOTESTSUM"
fi
sum=$programs/gotestsum

dir=$JEOUL_TEST_RUN
# gotestsum runs the first `go` in PATH; $GO may look for another one there.
printf '#!/bin/sh\nPATH=%q exec %q "$@"\n' "$PATH" "$(realpath "$(command -v "$GO")")" >"$dir/go"
# The data plane's tests use one core, and are the longest; most others wait for most of their time.
cat >"$dir/run" <<END
#!/bin/sh
case \$1 in
*/datapath.test) exec '$TREE/scripts/as-root.sh' "\$@" ;;
esac
exec nice -n 5 '$TREE/scripts/as-root.sh' "\$@"
END
chmod +x "$dir/go" "$dir/run"

read -ra flags <<<"${TESTFLAGS:-}"
format=standard-quiet
[[ " ${flags[*]} " != *' -v '* ]] || format=standard-verbose
status=0
# `make lint` runs all of vet's checks. Tests wait for some of their time, so one package more runs at a time than there
# are cores. Without debugging information, linking the tests of a hundred packages is a third less work. A test's
# process runs for seconds: collecting garbage less often saves a few per cent of its time.
GOGC=300 PATH=$dir:$PATH "$sum" --format="$format" --hide-summary=skipped \
	--packages="$*" --jsonfile="$dir/tests.json" -- \
	-vet=off -ldflags=-w -count=1 -timeout=30m -p=$(($(nproc) + 1)) -exec="'$dir/run'" "${flags[@]}" || status=$?
printf '\nThe slowest tests, and the seconds that they took:\n'
"$sum" tool slowest --num=20 --jsonfile="$dir/tests.json"
exit "$status"
