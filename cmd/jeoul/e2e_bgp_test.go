// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// birdOn runs BIRD on a host as the router of a balancer, and returns a function that runs birdc commands.
func birdOn(t *testing.T, host *lab.Host, balancer netip.Addr) (ask func(command string) string) {
	t.Helper()
	testenv.Program(t, "bird")
	file, socket := filepath.Join(host.Dir, "bird.conf"), filepath.Join(host.Dir, "bird.ctl")
	text := fmt.Sprintf(`log stderr all;
router id 198.18.0.1;
protocol device {}
protocol bgp balancer {
  local as 64513; neighbor %s as 64512; passive on; connect delay time 1; error wait time 1, 2; graceful restart on;
  ipv4 { import all; export none; };
}
`, balancer)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log cmdtest.SyncBuffer
	process, err := host.Start(context.WithoutCancel(t.Context()),
		lab.Command{Path: "bird", Args: []string{"-f", "-c", file, "-s", socket, "-P",
			filepath.Join(host.Dir, "bird.pid")}, Stdout: &log, Stderr: &log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("BIRD's log:\n%s", log.String())
		}
		_ = process.Kill(context.Background())
	})
	return func(command string) string {
		out, _ := exec.Command("birdc", append([]string{"-s", socket}, strings.Fields(command)...)...).CombinedOutput()
		return string(out)
	}
}

// bgpBalancer is a balancer with two checked backends whose VIP is announced to a router.
type bgpBalancer struct {
	*balancer
	ask   func(string) string
	vip   netip.Addr
	lab   *lab.Lab
	doors []net.Listener
}

func newBGPBalancer(t *testing.T) *bgpBalancer {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 2})
	b := &bgpBalancer{balancer: newBalancer(t, l.Balancer), vip: netip.MustParseAddr("198.18.0.105"), lab: l}
	b.ask = birdOn(t, l.Clients[0], l.Balancer.IPv4)
	for _, server := range l.Servers {
		b.doors = append(b.doors, listenOn(t, server, checkedPort))
	}
	t.Cleanup(func() {
		for _, door := range b.doors {
			door.Close()
		}
	})
	b.configured(t, entry{"asn": 64512, "router_id": l.Balancer.IPv4.String(), "drain_pause": "1s",
		"peers": []entry{{"address": l.Clients[0].IPv4.String(), "asn": 64513, "hold_time": "9s"}}})
	return b
}

// configured writes the configuration, with the given BGP; without BGP, the VIP is on the interface only while a
// backend serves.
func (b *bgpBalancer) configured(t *testing.T, bgp entry) {
	t.Helper()
	var backends []entry
	for _, server := range b.lab.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": 8000})
	}
	service := entry{"name": "web", "vip": b.vip.String(), "port": 80, "mode": "nat", "scheduler": "rr",
		"check": entry{"type": "tcp", "port": checkedPort, "interval": "300ms"}, "backends": backends}
	if bgp == nil {
		service["on_empty"] = "withdraw"
		b.configure(t, lb.HookTC, entry{"services": []entry{service}})
		return
	}
	b.configure(t, lb.HookTC, entry{"bgp": bgp, "services": []entry{service}})
}

// expectRoute waits until the router has a route to the VIP, or has none.
func (b *bgpBalancer) expectRoute(t *testing.T, when string, want bool) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("%s, the router knows the VIP: %v", when, want), func() bool {
		return strings.Contains(b.ask("show route"), b.vip.String()+"/32") == want
	})
}

// speaker waits until the session is established, and returns the process of the session.
func (b *bgpBalancer) speaker(t *testing.T, when string) (pid int) {
	t.Helper()
	b.eventually(t, when+", the session is established", func(status *ops.Status) bool {
		if status.BGP == nil || len(status.BGP.Peers) != 1 || !status.BGP.Peers[0].Established() {
			return false
		}
		pid = status.BGP.SpeakerPID
		return true
	})
	return pid
}

// TestRoutersAreTold: a router has the VIP while the balancer serves it: over a restart and a kill of the daemon, whose
// session continues, and of the speaker; not while no backend is healthy, nor during a drain, nor after a stop.
func TestRoutersAreTold(t *testing.T) {
	t.Parallel()
	b := newBGPBalancer(t)
	b.start(t)
	b.followsBackends(t)
	pid := b.speaker(t, "at first")

	for i, end := range []func(*testing.T, *lab.Process){leave, kill} {
		end(t, b.daemon)
		b.expectRoute(t, "without a daemon", true)
		b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
		if now := b.speaker(t, "with another daemon"); now != pid {
			t.Errorf("after end %d of the daemon, the speaker is process %d, and was %d", i, now, pid)
		}
		b.expectRoute(t, "with another daemon", true)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "another speaker is started", func(status *ops.Status) bool {
		return status.BGP.SpeakerPID != 0 && status.BGP.SpeakerPID != pid
	})
	b.speaker(t, "with another speaker")
	b.expectRoute(t, "with another speaker", true)

	b.commandBalancer(t, "drain", "--wait")
	b.expectRoute(t, "drained", false)
	leave(t, b.daemon)
	b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
	b.speaker(t, "after a restart")
	b.expectRoute(t, "drained, after a restart", false)
	b.commandBalancer(t, "undrain")
	b.expectRoute(t, "undrained", true)
	stop(t, b.daemon)
	b.expectRoute(t, "stopped", false)
	testenv.Eventually(t, e2e.WaitLimit, "the session has ended with the speaker", func() bool {
		return !strings.Contains(b.ask("show protocols balancer"), "Established")
	})
}
