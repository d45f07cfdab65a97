// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/checkpath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

// checkRig is a balancer and a backend that serves on every VIP, on one link.
type checkRig struct {
	balancer, backend *namespace.Namespace
	datapath          *Datapath
	checks            *checkpath.Checks
	agent             *agent.Agent
	state             lb.State
}

// The ports of the stage's backend: for the modes that leave the port, and for those that do not.
const checkPort, checkTranslatedPort = 80, 8080

// checkHost returns a host's address on the stage's link.
func checkHost(vip netip.Addr, number byte) netip.Addr {
	if vip.Is4() {
		return netip.AddrFrom4([4]byte{198, 18, 0, number})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0, 2, 15: number})
}

// checkVIPs has one of each family for each mode.
func checkVIPs() (all []netip.Addr) {
	for i := range lb.PacketModes {
		all = append(all, checkHost(vip4, byte(100+i)), checkHost(vip6, byte(100+i)))
	}
	return all
}

// newCheckRig builds it.
func newCheckRig(t *testing.T, hook lb.Hook) *checkRig {
	t.Helper()
	s := &checkRig{balancer: testenv.Namespace(t), backend: testenv.Namespace(t)}
	end := func(ns *namespace.Namespace, number byte) testenv.End {
		return testenv.End{Namespace: ns, Name: "eth0", Addresses: []netip.Prefix{
			netip.PrefixFrom(checkHost(vip4, number), 24), netip.PrefixFrom(checkHost(vip6, number), 64)}}
	}
	ours, theirs := testenv.Veth(t, end(s.balancer, 1), end(s.backend, 2))
	testenv.In(t, s.balancer, func() error {
		return errors.Join(addVIPs(), disableChecksumOffload(),
			enableStrictRPF())
	})
	testenv.In(t, s.backend, disableChecksumOffload)
	s.serve(t)
	testenv.In(t, s.balancer, func() error {
		nic, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		s.state = checkState(nic.Index, ours, theirs)
		if s.datapath,
			err = Open(Options{Interfaces: []string{"eth0"}, Hook: hook, TableSize: testTableSize}); err != nil {
			return err
		}
		t.Cleanup(func() { testenv.In(t, s.balancer, s.datapath.Close) })
		if err := s.datapath.Apply(s.state); err != nil {
			return err
		}
		s.checks, err = s.datapath.OpenChecks()
		return err
	})
	return s
}

// checkState has a service in each mode and family, with the backend behind it.
func checkState(index int, ours, theirs net.HardwareAddr) lb.State {
	state := lb.State{Pool: lb.Pool{Addresses: []netip.Addr{checkHost(vip4, 99), checkHost(vip6, 99)}, FirstPort: 20000,
		LastPort: 20999}}
	for i, mode := range lb.PacketModes {
		for _, family := range []netip.Addr{vip4, vip6} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				service := lb.Service{Name: string(mode), VIP: checkHost(family, byte(100+i)), Port: checkPort,
					Protocol: protocol, Mode: mode, Scheduler: lb.Maglev,
					Backends: []lb.Backend{{Name: "web", Address: checkHost(family, 2), Port: checkPort, Weight: 1}}}
				if mode == lb.DSCP {
					service.DSCP = 10
				}
				if mode.Translates() {
					service.Backends[0].Port = checkTranslatedPort + uint16(i)
				}
				state.Services = append(state.Services, lb.RoutedService{Service: service,
					Paths: []lb.Path{{Interface: index, MAC: theirs, Source: ours, MTU: 1500,
						Local: checkHost(family, 1)}}})
			}
		}
	}
	return state
}

// addVIPs gives the calling thread's host the VIPs, as a balancer has them.
func addVIPs() error {
	nic, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, vip := range checkVIPs() {
		bits := vip.BitLen()
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(bits, bits)}}
		if vip.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(nic, addr); err != nil {
			return err
		}
	}
	return nil
}

// enableStrictRPF makes the calling thread's host forward, as mode nat needs, with strict reverse path filtering.
func enableStrictRPF() error {
	return errors.Join(testenv.WriteSysctl("net/ipv4/ip_forward", "1"),
		testenv.WriteSysctl("net/ipv6/conf/all/forwarding", "1"),
		testenv.WriteSysctl("net/ipv4/conf/all/rp_filter", "1"),
		testenv.WriteSysctl("net/ipv4/conf/eth0/rp_filter", "1"))
}

// disableChecksumOffload makes the calling thread's host compute checksums itself, which XDP cannot leave to a device.
func disableChecksumOffload() error {
	handle, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Change("eth0", map[string]bool{"tx-checksum-ip-generic": false})
}

// serve starts the backend: an agent for the VIPs, and servers that answer with the address that was asked.
func (s *checkRig) serve(t *testing.T) {
	t.Helper()
	var vips []netip.Addr
	var marks []agent.Mark
	for i, mode := range lb.PacketModes {
		four, six := checkHost(vip4, byte(100+i)), checkHost(vip6, byte(100+i))
		switch {
		case mode == lb.DSCP:
			marks = append(marks, agent.Mark{VIP: four, Point: 10}, agent.Mark{VIP: six, Point: 10})
		case !mode.Translates():
			vips = append(vips, four, six)
		}
	}
	options := agent.Options{VIPs: vips, Marks: marks, Modes: []lb.Mode{lb.L2DSR, lb.IPIP, lb.GUE, lb.DSCP},
		Interfaces: []string{"eth0"}, Dir: t.TempDir()}
	testenv.In(t, s.backend, func() error {
		var err error
		if s.agent, err = agent.Start(options); err != nil {
			return err
		}
		t.Cleanup(func() { testenv.In(t, s.backend, s.agent.Close) })
		for _, port := range []uint16{checkPort, checkTranslatedPort + 4, checkTranslatedPort + 5} {
			if err := s.listen(t, port); err != nil {
				return err
			}
		}
		return nil
	})
}

// listen serves TCP and UDP on a port.
func (s *checkRig) listen(t *testing.T, port uint16) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s", c.LocalAddr())
			c.Close()
		}
	}()
	for _, vip := range append(checkVIPs(), checkHost(vip4, 2), checkHost(vip6, 2)) {
		socket, err := net.ListenPacket("udp", netip.AddrPortFrom(vip, port).String())
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			continue // an address that the backend does not have
		}
		if err != nil {
			return err
		}
		t.Cleanup(func() { socket.Close() })
		go func() {
			buffer := make([]byte, 2048)
			for {
				_, from, err := socket.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = socket.WriteTo([]byte(socket.LocalAddr().String()), from)
			}
		}()
	}
	return nil
}

// ask asks a service's backend, and returns its answer: the address that was asked.
func (s *checkRig) ask(t *testing.T, service *lb.RoutedService, bound time.Duration) (answer string, err error) {
	t.Helper()
	port := service.Port
	if service.Mode.Translates() {
		port = service.Backends[0].Port
	}
	return s.askPort(t, service, port, bound)
}

// askPort asks it on another port.
func (s *checkRig) askPort(t *testing.T, service *lb.RoutedService, port uint16, bound time.Duration) (answer string,
	err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	err = s.balancer.Do(func() error {
		c, err := s.checks.Dial(ctx, service.Protocol.String(), service.BackendKey(service.Backends[0]), port)
		if err != nil {
			return err
		}
		defer c.Close()
		deadline, _ := ctx.Deadline()
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
		if service.Protocol == lb.UDP {
			answer, err = askByUDP(c, deadline)
			return err
		}
		text, err := io.ReadAll(c)
		answer = string(text)
		return err
	})
	return answer, err
}

// askByUDP sends a query until an answer comes, each second again: a queue that all namespaces share may drop one.
func askByUDP(c net.Conn, deadline time.Time) (answer string, err error) {
	for buffer := make([]byte, 2048); ; {
		if _, err := c.Write([]byte("?")); err != nil {
			return "", err
		}
		until := time.Now().Add(time.Second)
		last := !until.Before(deadline)
		if last {
			until = deadline
		}
		if err := c.SetReadDeadline(until); err != nil {
			return "", err
		}
		n, err := c.Read(buffer)
		if last || !errors.Is(err, os.ErrDeadlineExceeded) {
			return string(buffer[:n]), err
		}
	}
}

// ping sends an echo request to it until that is answered, each second again: a queue that all namespaces share may
// drop one.
func (s *checkRig) ping(t *testing.T, service *lb.RoutedService, bound time.Duration) (err error) {
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err = s.balancer.Do(func() error { return s.checks.Ping(ctx, service.BackendKey(service.Backends[0])) })
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return err
}

// each runs a test for each of the services.
func (s *checkRig) each(t *testing.T, test func(*testing.T, *lb.RoutedService)) {
	for i := range s.state.Services {
		service := &s.state.Services[i]
		t.Run(fmt.Sprintf("%s/%s/%s", service.Mode, service.Protocol, service.VIP), func(t *testing.T) {
			test(t, service)
		})
	}
}

// expectReachable fails unless the backend answers by a service's mode.
func (s *checkRig) expectReachable(t *testing.T, service *lb.RoutedService) {
	t.Helper()
	want := netip.AddrPortFrom(service.VIP, service.Port)
	if service.Mode.Translates() {
		want = netip.AddrPortFrom(service.Backends[0].Address, service.Backends[0].Port)
	}
	answer, err := s.ask(t, service, 20*time.Second)
	if err != nil || answer != want.String() {
		t.Errorf("the backend answers %q (%v), and was to be asked as %s", answer, err, want)
	}
}

// expectUncounted fails if a service's counters include the checks.
func (s *checkRig) expectUncounted(t *testing.T) {
	t.Helper()
	counters, err := s.datapath.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for key, count := range counters.Backends {
		if count.Packets != 0 || count.ReturnedPackets != 0 || count.Flows != 0 {
			t.Errorf("%v counts packets of checks: %+v", key, count)
		}
	}
}

// TestChecksReachBackends asks the backend by every mode and family, with strict reverse path filtering on the host.
func TestChecksReachBackends(t *testing.T) {
	testenv.Root(t)
	for _, hook := range []lb.Hook{lb.HookTC, lb.HookXDP} {
		t.Run(string(hook), func(t *testing.T) {
			s := newCheckRig(t, hook)
			s.each(t, func(t *testing.T, service *lb.RoutedService) {
				s.expectReachable(t, service)
				err := s.ping(t, service, 20*time.Second)
				if service.Mode == lb.DSCP && errors.Is(err, health.ErrNoPath) {
					return
				}
				if err != nil {
					t.Errorf("an echo request is not answered: %v", err)
				}
			})
			s.expectUncounted(t)
			t.Run("down", func(t *testing.T) {
				s.failAll(t)
				s.each(t, s.expectReachable)
			})
		})
	}
}

// TestChecksMemory: the planned memory of the path for checks is the memory of its maps according to the kernel, and
// part of the plan that the data plane shows.
func TestChecksMemory(t *testing.T) {
	testenv.Root(t)
	s := newCheckRig(t, lb.HookTC)
	taken := memlock(t, s.checks.Answers()) + memlock(t, s.checks.Targets())
	plan := s.datapath.Memory()
	if plan.Checks > taken || taken > plan.Checks+plan.Checks/10+3*8192 {
		t.Errorf("%d bytes are planned, the kernel took %d", plan.Checks, taken)
	}
	testenv.In(t, s.balancer, func() error { return s.datapath.Apply(lb.State{}) })
	if later := s.datapath.Memory(); later.Checks != plan.Checks {
		t.Errorf("after a change: %v, before: %v", later, plan)
	}
	if err := sharedmaps.CheckPlan(s.checks.Plan(), memleft.Available{Bytes: 88 << 20, Source: "a test",
		Known: true}); err != nil {
		t.Errorf("refused with 88 MiB left: %v", err)
	}
	if err := sharedmaps.CheckPlan(s.checks.Plan(), memleft.Available{Bytes: 80 << 20, Source: "a test",
		Known: true}); !errors.Is(err,
		lb.ErrTooLarge) || !strings.HasSuffix(err.Error(), "(via: address)") {
		t.Errorf("with 80 MiB left: %v", err)
	}
}

// failAll makes all backends fail, in services that move or reset flows of such: a backend that is not checked any more
// would never be found healthy.
func (s *checkRig) failAll(t *testing.T) {
	t.Helper()
	state := s.state
	state.Services = slices.Clone(state.Services)
	for i := range state.Services {
		service := &state.Services[i]
		service.Observed = service.Observed.With(0, lb.Observed{Unhealthy: "refuses connections"})
		service.Checks.OnDown = lb.ResetFlows
		if service.Protocol == lb.UDP {
			service.Checks.OnDown = lb.MoveFlows
		}
	}
	testenv.In(t, s.balancer, func() error { return s.datapath.Apply(state) })
}

// TestChecksSeeFaults makes the backend refuse, and then removes its set-up for packets to a VIP, while it answers by
// its own address.
func TestChecksSeeFaults(t *testing.T) {
	testenv.Root(t)
	for _, hook := range testenv.Some(t, testenv.HooksTarget, 1, []lb.Hook{lb.HookTC, lb.HookXDP}) {
		t.Run(string(hook), func(t *testing.T) {
			s := newCheckRig(t, hook)
			t.Run("no server", func(t *testing.T) {
				s.each(t, func(t *testing.T, service *lb.RoutedService) {
					if _, err := s.askPort(t, service, 9, 20*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
						t.Errorf("a port without a server says %v, not that it refuses", err)
					}
				})
			})
			testenv.In(t, s.backend, s.agent.Close)
			t.Run("no VIP", func(t *testing.T) {
				s.each(t, func(t *testing.T, service *lb.RoutedService) {
					if service.Mode.Translates() {
						s.expectReachable(t, service)
						return
					}
					if answer, err := s.ask(t, service, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the backend answers %q (%v), and takes no packet for the VIP", answer, err)
					}
				})
			})
			testenv.In(t, s.balancer, func() error {
				c, err := net.DialTimeout("tcp", netip.AddrPortFrom(checkHost(vip4, 2), checkTranslatedPort+4).String(),
					20*time.Second)
				if err == nil {
					err = c.Close()
				}
				return err
			})
		})
	}
}

// TestChecksOutliveChanges replaces the programs under the checks; nothing is left at the end.
func TestChecksOutliveChanges(t *testing.T) {
	testenv.Root(t)
	s := newCheckRig(t, lb.HookTC)
	all := s.state
	apply := func(state lb.State) {
		t.Helper()
		s.state = state
		testenv.In(t, s.balancer, func() error { return s.datapath.Apply(state) })
	}
	// Fewer modes make another program, and the backends another number.
	fewer := all
	fewer.Services = all.Services[8:12]
	apply(fewer)
	s.each(t, s.expectReachable)
	other := all
	other.Hook = lb.HookXDP
	apply(other)
	s.each(t, s.expectReachable)

	gone := &all.Services[0]
	fewer.Hook = lb.HookXDP
	apply(fewer)
	if _, err := s.ask(t, gone, 20*time.Second); !errors.Is(err, health.ErrNoPath) {
		t.Errorf("a service that is gone is asked: %v", err)
	}
	testenv.In(t, s.balancer, s.datapath.Close)
	if _, err := s.ask(t, &fewer.Services[0], 20*time.Second); !errors.Is(err, ErrClosed) {
		t.Errorf("a data plane that is closed says %v", err)
	}
	testenv.In(t, s.balancer, func() error {
		links, err := netdump.Links()
		for _, l := range links {
			if name := l.Attrs().Name; name != "lo" && name != "eth0" {
				t.Errorf("the interface %s is left", name)
			}
		}
		return err
	})
}
