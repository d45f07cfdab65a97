// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// requireFRR has tests run that need FRR, which make test does without.
const requireFRR = "JEOUL_TEST_FRR"

// TestFRR: three speakers announce to FRR, which has as many paths; one is drained, killed and started again, and
// stopped.
func TestFRR(t *testing.T) {
	if os.Getenv(requireFRR) == "" {
		t.Skip("make test-bgp runs it, with FRR")
	}
	testenv.Root(t)
	daemon := testenv.Program(t, "/usr/lib/frr/bgpd")
	r := newBird(t) // the namespace; BIRD is not started
	var all []*process
	neighbours, activates := "", ""
	for n := 1; n <= 3; n++ {
		all = append(all, newProcess(t, r, n))
		neighbours += fmt.Sprintf(
			" neighbor 198.18.%d.2 remote-as %d\n neighbor 198.18.%d.2 passive\n neighbor 198.18.%d.2 timers 3 9\n", n,
			speakerAS, n, n)
		activates += fmt.Sprintf("  neighbor 198.18.%d.2 activate\n", n)
	}
	file := filepath.Join(r.dir, "bgpd.conf")
	text := fmt.Sprintf(
		"router bgp %d\n bgp router-id 198.18.0.1\n no bgp ebgp-requires-policy\n%s address-family ipv4 unicast\n  maximum-paths 16\n%s exit-address-family\n", routerAS, neighbours, activates)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, r.ns, &r.output, nil, daemon, "-Z", "-S", "-f", file, "-i", filepath.Join(r.dir, "pid"), "--vty_socket",
		r.dir, "-u", "root", "-g", "root", "--log", "stdout", "-P", "0")
	ask := func(command string) string {
		out, _ := exec.Command("vtysh", "--vty_socket", r.dir, "-d", "bgpd", "-c", command).CombinedOutput()
		return string(out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("FRR's log:\n%s\n%s\n%s", r.output.String(), ask("show bgp summary"),
				ask("show bgp ipv4 unicast "+vip4))
		}
	})
	paths := func(when string, n int) {
		t.Helper()
		testenv.Eventually(t, testTimeout, fmt.Sprintf("%s, FRR has %d paths", when, n), func() bool {
			return strings.Count(ask("show bgp ipv4 unicast "+vip4+"/32"), "Last update:") == n
		})
	}
	for i, p := range all {
		p.apply(t, desiredVIPs(i+1, vip4))
	}
	paths("with three speakers", 3)
	draining := desiredVIPs(1, vip4)
	draining.Draining = true
	all[0].apply(t, draining)
	testenv.Eventually(t, testTimeout, "the route of a drained balancer is marked, and the last choice", func() bool {
		out := ask("show bgp ipv4 unicast " + vip4 + "/32")
		return strings.Contains(out, "graceful-shutdown") && strings.Contains(out, "localpref 0")
	})
	all[1].peer(t, "FRR is known to keep routes", func(peer ops.BGPPeer) bool {
		return peer.State == ops.BGPEstablished && peer.Restarts
	})
	version := func() string {
		_, after, _ := strings.Cut(ask("show bgp ipv4 unicast "+vip4+"/32"), "version ")
		number, _, _ := strings.Cut(after, "\n")
		return number
	}
	before := version()
	if err := all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = all[1].cmd.Wait()
	all[1].start(t, true)
	all[1].apply(t, desiredVIPs(2, vip4))
	all[1].peer(t, "the session is there again", func(peer ops.BGPPeer) bool {
		return peer.State == ops.BGPEstablished
	})
	paths("with the speaker again", 3)
	if after := version(); after != before || before == "" {
		t.Errorf("over a restart, the route's version went from %q to %q: FRR has not kept it", before, after)
	}
	if err := all[0].client.Shutdown(t.Context(), bgp.Stop); err != nil {
		t.Fatal(err)
	}
	paths("with one that was stopped", 2)
}
