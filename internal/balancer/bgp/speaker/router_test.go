// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// actAsSpeaker has the test's program be a speaker, on that socket; restarting says that there was one before.
const actAsSpeaker, restarting = "JEOUL_TEST_SPEAKER", "JEOUL_TEST_RESTARTING"

func TestMain(m *testing.M) {
	socket := os.Getenv(actAsSpeaker)
	if socket == "" {
		// They wait for the timers of BGP and BFD.
		testenv.Parallel(8)
		os.Exit(m.Run())
	}
	ctx := context.Background()
	listener, err := bgp.Listen(ctx, socket)
	if err == nil {
		made := New(slog.New(slog.NewTextHandler(os.Stderr, nil)), os.Getenv(restarting) != "", socket+".routes")
		_, err = bgp.Serve(ctx, listener, made, "test")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// testTimeout is how long a busy machine may take.
var testTimeout = testenv.WaitLimit

// The AS numbers of the tests.
const routerAS, speakerAS = 64513, 64512

// bird is a router: BIRD in a namespace of its own, with a link to each speaker.
type bird struct {
	ns     *namespace.Namespace
	dir    string
	ctl    string
	output lockedBuffer
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// newBird makes the router's namespace; start runs BIRD in it.
func newBird(t *testing.T) *bird {
	t.Helper()
	testenv.Root(t)
	testenv.Program(t, "bird")
	dir, err := os.MkdirTemp("", "bgp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &bird{ns: testenv.Namespace(t), dir: dir, ctl: filepath.Join(dir, "ctl")}
	testenv.In(t, r.ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), testenv.WriteSysctl("net/ipv4/fib_multipath_hash_policy", "1"))
	})
	return r
}

// start runs BIRD with a part of its configuration for each speaker.
func (r *bird) start(t *testing.T, configuration string) {
	t.Helper()
	file := filepath.Join(r.dir, "bird.conf")
	r.configure(t, configuration)
	run(t, r.ns, &r.output, nil, "bird", "-f", "-c", file, "-s", r.ctl, "-P", filepath.Join(r.dir, "pid"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("BIRD's log:\n%s\n%s", r.output.String(), r.command("show route all"))
		}
	})
	testenv.Eventually(t, testTimeout, "BIRD answers", func() bool {
		return strings.Contains(r.command("show status"), "up and running")
	})
}

func (r *bird) configure(t *testing.T, configuration string) {
	t.Helper()
	text := `log stderr all;
router id 198.18.0.1;
protocol device { scan time 1; }
protocol kernel k4 { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel k6 { merge paths on; ipv6 { import none; export where source = RTS_BGP; }; }
template bgp speaker {
  local as 64513; connect delay time 1; error wait time 1, 2; passive on; graceful restart on;
  ipv4 { import all; export none; };
}
` + configuration
	if err := os.WriteFile(filepath.Join(r.dir, "bird.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *bird) command(command string) string {
	out, _ := exec.Command("birdc", append([]string{"-s", r.ctl}, strings.Fields(command)...)...).CombinedOutput()
	return string(out)
}

// nextHops counts the gateways of the kernel's route to an address.
func (r *bird) nextHops(t *testing.T, vip string) (n int) {
	t.Helper()
	addr := netip.MustParseAddr(vip)
	testenv.In(t, r.ns, func() error {
		family := netlink.FAMILY_V4
		if addr.Is6() {
			family = netlink.FAMILY_V6
		}
		routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
			return netlink.RouteList(nil, family)
		})
		for errors.Is(err, netlink.ErrDumpInterrupted) { // they changed meanwhile
			routes, err = netdump.Consistent(func() ([]netlink.Route, error) {
				return netlink.RouteList(nil, family)
			})
		}
		for _, route := range routes {
			if route.Dst == nil || !route.Dst.IP.Equal(addr.AsSlice()) {
				continue
			}
			if n += len(route.MultiPath); len(route.MultiPath) == 0 {
				n++
			}
		}
		return err
	})
	return n
}

func (r *bird) expectHops(t *testing.T, when, vip string, n int) {
	t.Helper()
	testenv.Eventually(t, testTimeout, fmt.Sprintf("%s, %s has %d next hops", when, vip, n), func() bool {
		return r.nextHops(t, vip) == n
	})
}

// run starts a program in a namespace, and kills it at the test's end.
func run(t *testing.T, ns *namespace.Namespace, output *lockedBuffer, env []string, name string,
	args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testenv.In(t, ns, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// process is a speaker in a namespace of its own, behind link n of the router.
type process struct {
	ns     *namespace.Namespace
	socket string
	client *bgp.Client
	cmd    *exec.Cmd
	output lockedBuffer
}

// newProcess links a speaker's namespace with the router's and starts the speaker.
func newProcess(t *testing.T, r *bird, n int) *process {
	t.Helper()
	p := &process{ns: testenv.Namespace(t), socket: filepath.Join(r.dir, fmt.Sprintf("speaker%d", n))}
	prefix := func(host int) []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("198.18.%d.%d/24", n, host)),
			netip.MustParsePrefix(fmt.Sprintf("2001:2:0:%d::%d/64", n, host))}
	}
	testenv.Veth(t, testenv.End{Namespace: r.ns, Name: fmt.Sprintf("b%d", n), Addresses: prefix(1)},
		testenv.End{Namespace: p.ns, Name: "up", Addresses: prefix(2)})
	p.client = bgp.NewClient(p.socket)
	p.start(t, false)
	t.Cleanup(func() {
		if t.Failed() {
			state, err := p.client.State(context.Background(), 0)
			t.Logf("speaker %d: %+v, %v\n%s", n, state, err, p.output.String())
		}
		// One that is there ends as it should, and not only with the test.
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if p.client.Shutdown(ctx, bgp.Stop) == nil {
			_ = p.cmd.Wait()
		}
	})
	return p
}

func (p *process) start(t *testing.T, again bool) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{actAsSpeaker + "=" + p.socket}
	if again {
		env = append(env, restarting+"=1")
	}
	p.cmd = run(t, p.ns, &p.output, env, executable)
	testenv.Eventually(t, testTimeout, "the speaker answers", func() bool {
		state, err := p.client.State(t.Context(), 0)
		return err == nil && state.PID == p.cmd.Process.Pid
	})
}

func (p *process) apply(t *testing.T, w bgp.Desired) {
	t.Helper()
	if err := p.client.Apply(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// peer waits until the only peer is in a state.
func (p *process) peer(t *testing.T, what string, ok func(ops.BGPPeer) bool) {
	t.Helper()
	testenv.Eventually(t, testTimeout, what, func() bool {
		state, err := p.client.State(t.Context(), 0)
		return err == nil && len(state.Peers) == 1 && ok(state.Peers[0])
	})
}

// desiredVIPs has a speaker behind link n announce VIPs to the router.
func desiredVIPs(n int, vips ...string) bgp.Desired {
	w := bgp.Desired{BGP: lb.BGP{ASN: speakerAS, RouterID: netip.AddrFrom4([4]byte{198, 18, byte(n), 2}),
		Peers: []lb.BGPPeer{{Address: netip.AddrFrom4([4]byte{198, 18, byte(n), 1}), ASN: routerAS,
			Port: lb.DefaultBGPPort, HoldTime: 3 * time.Second, GracefulRestart: true}}}}
	for _, vip := range vips {
		w.VIPs = append(w.VIPs, netip.MustParseAddr(vip))
	}
	return w
}
