// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// newContainerLab builds a lab with two servers behind a bridge on the balancer.
func newContainerLab(t *testing.T) *Lab {
	t.Helper()
	testenv.Root(t)
	l, err := New(t.Context(), Spec{Clients: 1, Servers: 2, Containers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// hasCgroup reports whether there is a cgroup of a lab.
func hasCgroup(t *testing.T, id string) bool {
	t.Helper()
	root, err := claim.OpenCgroups()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var st unix.Stat_t
	return unix.Fstatat(int(root.Fd()), claim.CgroupName(id), &st, 0) == nil
}

// reach connects from a host, and returns the address that the other end sees.
func reach(h *Host, server net.Listener) (from netip.Addr, err error) {
	err = h.Do(func() error {
		c, err := net.DialTimeout("tcp", server.Addr().String(), waitTimeout)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		return from, err
	}
	c, err := server.Accept()
	if err != nil {
		return from, err
	}
	defer c.Close()
	return netip.MustParseAddrPort(c.RemoteAddr().String()).Addr(), nil
}

// TestContainersAreBehindTheBalancer reaches servers from the balancer directly, from one another through the bridge,
// and from a client only if the balancer forwards.
func TestContainersAreBehindTheBalancer(t *testing.T) {
	l := newContainerLab(t)
	for _, address := range []netip.Addr{l.Servers[0].IPv4, l.Servers[0].IPv6} {
		server := listen(t, l.Servers[0], address)
		gateway := topology.ContainerBridge
		if address.Is6() {
			gateway = topology.ContainerBridge6
		}
		if from, err := reach(l.Balancer, server); err != nil || from != gateway {
			t.Errorf("the balancer asks %v from %v (%v), want the bridge's address %v", address, from, err, gateway)
		}
		if from, err := reach(l.Servers[1], server); err != nil || from != l.Servers[1].IPv4 &&
			from != l.Servers[1].IPv6 {
			t.Errorf("a container asks %v from %v: %v", address, from, err)
		}
	}
	server := listen(t, l.Servers[1], l.Servers[1].IPv4)
	if _, err := reach(l.Clients[0], server); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("a client reaches a container that nothing leads to: %v", err)
	}
	if err := errors.Join(l.Forward(true), l.DetourRequests(true), l.DetourReplies(true)); err != nil {
		t.Fatal(err)
	}
	if from, err := reach(l.Clients[0], server); err != nil || from != l.Clients[0].IPv4 {
		t.Errorf("through the balancer a client asks from %v: %v", from, err)
	}
	for _, on := range []bool{true, false} {
		if err := l.Offload(on); err != nil {
			t.Errorf("offloads %v: %v", on, err)
		}
		if from, err := reach(l.Balancer, server); err != nil || from != topology.ContainerBridge {
			t.Errorf("with offloads %v the balancer asks from %v: %v", on, from, err)
		}
	}
	if drops, err := l.Servers[0].DeviceDrops(); err != nil {
		t.Errorf("the drops of a container's link: %v, %v", drops, err)
	}
}

// TestSpreadOverContainers spreads the balancer's own connections over all servers by a route.
func TestSpreadOverContainers(t *testing.T) {
	l := newContainerLab(t)
	if err := l.Spread([]*Host{l.Balancer}, l.VIP4, l.Servers, true); err != nil {
		t.Fatal(err)
	}
	next, err := l.Balancer.NextHop(l.VIP4)
	if err != nil || next != l.Servers[0].IPv4 && next != l.Servers[1].IPv4 {
		t.Errorf("the next hop to the VIP is %v, %v; want a server", next, err)
	}
	if err := l.Spread([]*Host{l.Balancer}, l.VIP4, l.Servers, false); err != nil {
		t.Error(err)
	}
}

// TestBalancerHasACgroupOfItsOwn starts programs on the balancer and elsewhere, and checks in which cgroup they run.
func TestBalancerHasACgroupOfItsOwn(t *testing.T) {
	l := newContainerLab(t)
	if l.Balancer.Cgroup == "" {
		t.Fatalf("the balancer has none: %q", l.Notes)
	}
	for _, h := range []*Host{l.Balancer, l.Servers[0]} {
		var out strings.Builder
		p, err := h.Start(t.Context(), Command{Path: "cat", Args: []string{"/proc/self/cgroup"}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		if inside := strings.Contains(out.String(), "0::/"+claim.CgroupName(l.ID)+"\n"); inside != (h == l.Balancer) {
			t.Errorf("what runs on %s is in\n%s", h.Name, out.String())
		}
	}
	err := l.Balancer.Do(func() error {
		_, err := os.Stat(l.Balancer.Cgroup + "/cgroup.procs")
		return err
	})
	if err != nil {
		t.Errorf("the balancer's programs do not see it: %v", err)
	}
}
