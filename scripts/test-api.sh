#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-api.sh PROGRAM: sends a live balancer requests that its OpenAPI document permits, and others, with schemathesis:
# no answer may be a server error or differ from the document. EXAMPLES (50) is the number of requests of each kind. The
# balancer has a separate network namespace, and is reached over TCP.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

program=$(realpath "$1")
examples=${EXAMPLES:-50}
wanted=4.32.5
venv=${XDG_CACHE_HOME:-$HOME/.cache}/jeoul/schemathesis-$wanted

[ "$(id -u)" = 0 ] || die "a balancer is run as root" "sudo make test-api"
command -v openssl >/dev/null || "$TREE/scripts/apt-install.sh" openssl
if [ ! -e "$venv/ready" ]; then
	python3 -m venv "$venv" 2>/dev/null || { "$TREE/scripts/apt-install.sh" python3-venv && python3 -m venv "$venv"; }
	"$venv/bin/pip" install --quiet "schemathesis==$wanted"
	touch "$venv/ready"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=jeoul \
	-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out certificate.pem 2>openssl.log || die "no certificate" "$(cat openssl.log)"
chmod 600 key.pem
token=$("$program" token schemathesis --role configure --file tokens.yaml)
cat >jeoul.yaml <<END
interface: lb
hook: tc
socket: $work/jeoul.sock
api: {listen: 127.0.0.1:9540, certificate: $work/certificate.pem, key: $work/key.pem, tokens: $work/tokens.yaml}
services:
  - name: web
    vip: 198.18.0.100
    port: 80
    mode: nat
    scheduler: lc
    check: {type: tcp, interval: 1s, timeout: 500ms}
    backends:
      - {name: web01, address: 198.18.0.2}
      - {name: web02, address: 198.18.0.3, weight: 3}
END
cat >scenario.sh <<'END'
set -eu
mount -t tmpfs none /run
ip link set lo up
ip link add lb type veth peer name p
ip link set lb up
ip link set p up
ip addr add 198.18.0.1/24 dev lb
"$PROGRAM" run -c jeoul.yaml --state-dir "$PWD/state" 2>balancer.log &
pid=$!
for _ in $(seq 600); do
	if "$PROGRAM" status --socket jeoul.sock >/dev/null 2>&1; then break; fi
	kill -0 $pid || { cat balancer.log >&2; exit 1; }
	sleep 0.05
done
result=0
"$VENV/bin/schemathesis" run https://127.0.0.1:9540/openapi.json --tls-verify certificate.pem -H "Authorization: Bearer $TOKEN" \
	--checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance \
	--phases examples,coverage,fuzzing --continue-on-failure --max-examples "$EXAMPLES" --request-timeout 60 --suppress-health-check all \
	--generation-database none --exclude-operation-id trace --exclude-operation-id capture --exclude-operation-id watch-events --no-color "$@" || result=$?
"$PROGRAM" status --socket jeoul.sock >/dev/null || { echo "the balancer does not answer any more" >&2; tail -20 balancer.log >&2; result=1; }
kill $pid
wait $pid || { echo "the balancer failed" >&2; tail -20 balancer.log >&2; result=1; }
exit $result
END
shift
PROGRAM=$program TOKEN=$token VENV=$venv EXAMPLES=$examples unshare --net --mount --pid --fork --mount-proc --kill-child sh scenario.sh "$@"
