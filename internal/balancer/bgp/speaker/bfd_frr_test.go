// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var bfdMillis = strconv.FormatInt(bfdInterval.Milliseconds(), 10)

// frrBFD is the configuration of FRR's daemons; the hold time is one within which nothing but BFD notices anything.
var frrBFD = map[string]string{
	"zebra": "ip nht resolve-via-default\n",
	"bfdd":  "bfd\n profile balancers\n  receive-interval " + bfdMillis + "\n  transmit-interval " + bfdMillis + "\n",
	"bgpd": `router bgp 64513
 bgp router-id 198.18.0.1
 no bgp ebgp-requires-policy
 neighbor balancers peer-group
 neighbor balancers remote-as 64512
 neighbor balancers timers 60 240
 neighbor balancers bfd profile balancers
 neighbor 198.18.1.2 peer-group balancers
 neighbor 198.18.1.2 passive
`,
}

// TestBFDWithFRR: FRR withdraws the routes of a speaker that stands still, and takes them back, once; and a dead bfdd
// ends the session.
func TestBFDWithFRR(t *testing.T) {
	if os.Getenv(requireFRR) == "" {
		t.Skip("make test-bgp runs it, with FRR")
	}
	testenv.Root(t)
	testenv.Program(t, "/usr/lib/frr/bfdd")
	r := newBird(t) // the namespace; BIRD is not started
	p := newProcess(t, r, 1)
	daemons := map[string]*exec.Cmd{}
	for _, name := range []string{"zebra", "bfdd", "bgpd"} {
		file := filepath.Join(r.dir, name+".conf")
		if err := os.WriteFile(file, []byte(frrBFD[name]), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"-f", file, "-i", filepath.Join(r.dir, name+".pid"), "--vty_socket", r.dir, "-z",
			filepath.Join(r.dir, "zserv.api"), "-u", "root", "-g", "frrvty", "--log", "stdout", "-P", "0"}
		if name == "bfdd" {
			args = append(args, "--bfdctl", filepath.Join(r.dir, "bfdd.sock"))
		}
		daemons[name] = run(t, r.ns, &r.output, nil, "/usr/lib/frr/"+name, args...)
		testenv.Eventually(t, testTimeout, name+" answers", func() bool {
			_, err := os.Stat(filepath.Join(r.dir, name+".vty"))
			return err == nil
		})
	}
	ask := func(daemon, command string) string {
		out, _ := exec.Command("vtysh", "--vty_socket", r.dir, "-d", daemon, "-c", command).CombinedOutput()
		return string(out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("FRR's log:\n%s\n%s\n%s", r.output.String(), ask("bgpd", "show bgp neighbors 198.18.1.2"),
				ask("bfdd", "show bfd peers"))
		}
	})
	p.apply(t, desiredWithBFD(1, vip4))
	// FRR makes its session of BFD again once BGP is established, with the address of that, and ends that first session
	// of BGP.
	p.peer(t, "BFD and BGP are up, for the second time", func(peer ops.BGPPeer) bool {
		return isUp(peer) && peer.Sessions > 1
	})
	r.expectHops(t, "with BFD", vip4, 1)

	t.Run("a speaker that stands still", func(t *testing.T) {
		suspendSpeaker(t, r, p)
		sessions := p.sessions(t)
		expectStaysUp(t, r, 10*time.Second)
		if again := p.sessions(t); again != sessions {
			t.Errorf("there were %d sessions, and 10 s later %d: it flaps", sessions, again)
		}
	})
	t.Run("the router's BFD dies", func(t *testing.T) {
		if err := daemons["bfdd"].Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.peer(t, "the session falls", func(peer ops.BGPPeer) bool {
			return peer.State != ops.BGPEstablished && peer.BFD.State == "down" &&
				strings.HasPrefix(peer.Reason, lostByBFD)
		})
		p.peer(t, "it comes back without BFD", func(peer ops.BGPPeer) bool {
			return peer.State == ops.BGPEstablished && peer.BFD.State == "down"
		})
	})
}

// sessions counts the sessions with the only peer.
func (p *process) sessions(t *testing.T) uint64 {
	t.Helper()
	state, err := p.client.State(t.Context(), 0)
	if err != nil || len(state.Peers) != 1 {
		t.Fatalf("the speaker is %+v, %v", state, err)
	}
	return state.Peers[0].Sessions
}

// expectStaysUp watches the route for a while.
func expectStaysUp(t *testing.T, r *bird, d time.Duration) {
	t.Helper()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-ticks.C {
		if n := r.nextHops(t, vip4); n != 1 {
			t.Fatalf("the router has %d next hops", n)
		}
	}
}
