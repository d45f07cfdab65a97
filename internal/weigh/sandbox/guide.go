// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Commands are the commands that a sandbox has besides jeoul's own.
var Commands = []string{"ask", "crash", "revive", "metrics", "guide"}

// Guide describes the sandbox and the commands that can be tried in it.
func Guide() string {
	var text strings.Builder
	text.WriteString(
		"You are a client, 198.18.1.1. A balancer has the VIP 198.18.0.100; web01, web02 and web03 serve behind it.\n\n")
	line := func(command, does string) { fmt.Fprintf(&text, "  %-34s %s\n", command, does) }
	if _, err := exec.LookPath("curl"); err == nil {
		line("curl http://198.18.0.100/", "ask; web servers see your own address, for they answer you directly")
	}
	line("ask 12", "ask 12 times, each on a new connection, and count who answers")
	line("jeoul status", "the service, its backends, and where packets ended")
	line("crash web02", "kill a web server; its checks notice within 2 or 3 seconds")
	line("revive web02", "start it again")
	line("jeoul backend drain web/web03", "no new connections to it; those that it has go on")
	line("jeoul backend weight web/web01 3", "three times the share of the others")
	line("jeoul backend undo", "all as configured")
	line(traceCommand, "")
	line("", "where this packet would go, and why")
	line("metrics", "what Prometheus would read")
	line("cat $JEOUL_SANDBOX/jeoul.yaml", "the balancer's configuration; change it, and then: jeoul reload")
	line("guide", "this text")
	line("exit", "leave; nothing stays behind")
	return text.String()
}

const traceCommand = "jeoul trace --src 198.18.1.1 --sport 40000 --vip 198.18.0.100 --port 80"

// answered describes how long the first answer took.
func answered(after time.Duration) string {
	return fmt.Sprintf("the first answer came through the balancer after %.1f s\n", after.Seconds())
}
