// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// bigFile is the size in bytes of the file that is transferred over paths with a hidden narrow link.
const bigFile = 10 << 20

// pingTimeout is how long ping waits for its answers, in seconds.
const pingTimeout = "6"

// TestPathMTU transfers files and large datagrams between servers and a client behind a narrow link, and through
// tunnels on links that have no room for them: only ICMP errors of routers and of the balancer report that.
func TestPathMTU(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := newStage(t, hook, 2, bigFile)
		near, gateway := s.Clients[0], s.Clients[1]
		far := e2e.NewFar(t, gateway, len(lb.PacketModes))
		s.routeToFar(t, gateway)
		each := oneOfEach()
		for _, i := range testenv.Some(t, matrixTarget, 3, indices(each)) {
			// From an address of the family for which no server has a cached path MTU yet.
			p, from := each[i], far.Addresses[i]
			t.Run("far client/"+p.String(), func(t *testing.T) {
				sent := tooBigSent(t, gateway)
				s.moveBig(t, p, far, from)
				if now := tooBigSent(t, gateway); now == sent {
					t.Error("no server got an ICMP error about the narrow path: this has shown nothing")
				}
			})
			t.Run("near client/"+p.String(), func(t *testing.T) {
				sent := s.outcomes(t)["answered_too_big"]
				s.moveBig(t, p, near, p.own(near))
				if now := s.outcomes(t)["answered_too_big"]; p.mode.Tunnels() && now == sent {
					t.Error("the balancer did not have to say that the tunnel is narrow: this has shown nothing")
				}
			})
			t.Run("ping/"+p.String(), func(t *testing.T) {
				for _, size := range []int{56, 3000} {
					s.ping(t, near, p.vip, size)
				}
			})
		}
	})
}

// routeToFar adds routes to the far client to the hosts of the segment.
func (s *stage) routeToFar(t *testing.T, gateway *lab.Host) {
	t.Helper()
	for _, host := range append([]*lab.Host{s.Balancer}, s.Servers...) {
		if err := host.Do(func() error { return e2e.LeadToFar(gateway, 0) }); err != nil {
			t.Fatal(err)
		}
	}
}

// tooBigSent returns the number of errors by which a host has reported that a packet is too big. In IPv4 these are
// counted with other errors that report an unreachable host.
func tooBigSent(t *testing.T, host *lab.Host) uint64 {
	t.Helper()
	four, err := host.NetStat("IcmpOutDestUnreachs")
	if err != nil {
		t.Fatal(err)
	}
	six, err := e2e.NetStat6(host)
	if err != nil {
		t.Fatal(err)
	}
	return four["IcmpOutDestUnreachs"] + six["Icmp6OutPktTooBigs"]
}

// moveBig transfers a file in both directions on each of a path's web services, and datagrams with each of its DNS
// services.
func (s *stage) moveBig(t *testing.T, p path, client e2e.Inside, from netip.Addr) {
	browser := e2e.NewBrowser(client, from)
	for _, port := range []uint16{webPort, otherWebPort} {
		to := netip.AddrPortFrom(p.vip, port)
		if _, err := browser.Download(t.Context(), to, s.files, bigFile); err != nil {
			t.Errorf("download: %v", err)
		}
		if _, err := browser.Upload(t.Context(), to, s.files, bigFile, "big", s.webs); err != nil {
			t.Errorf("upload: %v", err)
		}
	}
	for _, port := range []uint16{dnsPort, otherDNSPort} {
		asker, err := e2e.NewAsker(client, netip.AddrPortFrom(p.vip, port), from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := asker.Ask(e2e.NewQuery(e2e.Large, padding), e2e.Large); err != nil {
			t.Errorf("a large answer to a large query: %v", err)
		}
		asker.Close()
	}
}

// ping sends an echo request of a size to an address, until it is answered.
func (s *stage) ping(t *testing.T, client *lab.Host, to netip.Addr, size int) {
	t.Helper()
	output := &cmdtest.SyncBuffer{}
	// -c with -w: until that many answers have come.
	process, err := client.Start(t.Context(), lab.Command{Path: testenv.Program(t, "ping"), Stdout: output,
		Stderr: output,
		Args:   []string{"-n", "-c", "2", "-i", "0.2", "-w", pingTimeout, "-s", strconv.Itoa(size), to.String()}})
	if err == nil {
		err = process.Wait()
	}
	if err != nil {
		t.Error(fmt.Errorf("%d bytes: %w\n%s", size, err, output))
	}
}

// indices returns the indices of the paths, from 0.
func indices(of []path) (all []int) {
	for i := range of {
		all = append(all, i)
	}
	return all
}
