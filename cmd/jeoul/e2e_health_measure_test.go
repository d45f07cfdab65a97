// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// measureInto is a directory for measurements of health checks, as `make bench-health` makes them. Without it, these
// tests are skipped, because they assert no time and take long.
const measureInto = "JEOUL_MEASURE"

// measured returns a file for a measurement, or skips the test.
func measured(t *testing.T, name string) *os.File {
	t.Helper()
	dir := os.Getenv(measureInto)
	if dir == "" {
		t.Skipf("this measures: make bench-health, or %s=DIRECTORY", measureInto)
	}
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// measuredTimes is how often a backend's death is measured in each mode by each hook.
const measuredTimes = 50

// quietAfter is the time without a SYN after which the last SYN is assumed to be the last.
const quietAfter = 300 * time.Millisecond

// TestMeasureLastNewFlow measures the time from a verdict that a backend fails to the last SYN that it receives, at
// 2,000 new connections a second.
func TestMeasureLastNewFlow(t *testing.T) {
	file := measured(t, "health-last-flow.txt")
	fmt.Fprintf(file,
		"# Milliseconds from the verdict (\"since\" of jeoul status -o json) to the last SYN at the backend's\n"+
			"# interface (kernel's time stamp, same clock); negative: none came after the verdict. 2,000 SYNs a second over\n"+
			"# three backends; check tcp, interval 100ms, timeout 100ms, fall 2, rise 1.\n")
	var all []float64
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		for _, mode := range []lb.Mode{lb.L2DSR, lb.NAT} {
			t.Run(fmt.Sprintf("%s/%s", hook, mode), func(t *testing.T) {
				samples := lastFlows(t, hook, mode)
				fmt.Fprintf(file, "%s %s:", mode, hook)
				for _, ms := range samples {
					fmt.Fprintf(file, " %.2f", ms)
				}
				fmt.Fprintln(file)
				all = append(all, samples...)
			})
		}
	}
	if len(all) == 0 {
		t.Fatal("nothing was measured")
	}
	slices.Sort(all)
	at := func(percent int) float64 { return all[min(len(all)-1, len(all)*percent/100)] }
	fmt.Fprintf(file, "# all %d: median %.2f, p90 %.2f, p99 %.2f, max %.2f\n", len(all), at(50), at(90), at(99),
		all[len(all)-1])
}

// lastFlows measures one mode in one hook.
func lastFlows(t *testing.T, hook lb.Hook, mode lb.Mode) (samples []float64) {
	s := buildStage(t, hook, 1)
	p := paths()[2*slices.Index(lb.PacketModes, mode)]
	service := s.service(p, otherWebPort)
	service["check"] = entry{"type": "tcp", "interval": "100ms", "timeout": "100ms", "fall": 2, "rise": 1}
	configuration := s.configuration()
	configuration["services"] = []entry{service}
	s.configure(t, hook, configuration)
	servers := map[string]*faultyServer{}
	for _, server := range s.Servers {
		s.startAgent(t, server)
		servers[server.Name] = startFaultyServer(t, server, otherWebPort+portShift[mode])
	}
	s.start(t)
	faulty := s.Servers[1]
	arrivals := e2e.NoteArrivals(t, faulty, s.Clients[0].IPv4)
	ctx, cancel := context.WithCancel(t.Context())
	syns := e2e.SendSYNs(t, ctx, s.Clients[0], netip.AddrPortFrom(p.vip, otherWebPort), 2000)
	defer syns.Wait()
	defer cancel()
	for range measuredTimes {
		s.awaitHealth(t, faulty, lb.Healthy)
		before := arrivals.Count()
		testenv.Eventually(t, e2e.WaitLimit, "SYNs come to "+faulty.Name, func() bool {
			return arrivals.Count() > before+10
		})
		servers[faulty.Name].close(t)
		since := s.awaitHealth(t, faulty, lb.Failing)
		testenv.Eventually(t, e2e.WaitLimit, "no SYN comes to "+faulty.Name+" any more", func() bool {
			return time.Since(arrivals.Last()) > quietAfter && time.Since(since) > quietAfter
		})
		samples = append(samples, float64(arrivals.Last().Sub(since).Microseconds())/1e3)
		servers[faulty.Name].open(t)
	}
	return samples
}

// awaitHealth waits until the checks have a verdict on a backend, and returns the time since which they have it.
func (s *stage) awaitHealth(t *testing.T, host *lab.Host, state lb.Health) (since time.Time) {
	t.Helper()
	s.eventually(t, fmt.Sprintf("%s is %s", host.Name, state), func(status *ops.Status) bool {
		for _, b := range status.Services[0].Backends {
			if b.Name == host.Name && b.Health != nil && b.Health.State == state {
				since = b.Health.Since
				return true
			}
		}
		return false
	})
	return since
}

// addressesEach is the number of addresses on each server that are checked while packets saturate the cores.
const addressesEach = 40

// saturatedFor is the duration, unless JEOUL_MEASURE_TIME sets another.
const saturatedFor = 10 * time.Minute

// TestMeasureFalseDowns counts backends that checks find failing although they serve, while packets saturate the cores.
func TestMeasureFalseDowns(t *testing.T) {
	file := measured(t, "health-false-downs.txt")
	lasts := saturatedFor
	if text := os.Getenv("JEOUL_MEASURE_TIME"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := buildStage(t, lb.HookTC, 2)
	p := paths()[2*slices.Index(lb.PacketModes, lb.NAT)]
	service := s.service(p, webPort)
	var backends []entry
	for i, server := range s.Servers {
		s.startServers(t, server)
		for k := range addressesEach {
			address := netip.AddrFrom4([4]byte{198, 18, byte(20 + i), byte(1 + k)})
			s.addAddress(t, server, address)
			backends = append(backends, entry{"name": fmt.Sprintf("%s-%d", server.Name, k), "address": address.String(),
				"port": webPort + portShift[p.mode]})
		}
	}
	service["backends"] = backends
	service["check"] = entry{"type": "http", "path": "/who", "interval": "1s"}
	configuration := s.configuration()
	configuration["services"] = []entry{service}
	s.configure(t, lb.HookTC, configuration)
	s.start(t)
	s.eventually(t, "every backend is found healthy", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return b.Health.State == lb.Healthy })
	})
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var senders []*e2e.SYNs
	for _, client := range s.Clients {
		senders = append(senders, e2e.SendSYNs(t, ctx, client, netip.AddrPortFrom(p.vip, webPort), 0))
	}
	before, forwarded := machine(t).CPUTotal, s.outcomes(t)
	began := time.Now()
	<-ctx.Done()
	took := time.Since(began)
	after := machine(t).CPUTotal
	var sent uint64
	for _, sender := range senders {
		sender.Wait()
		sent += sender.Sent()
	}
	log := s.log.String()
	downs := strings.Count(log, " is unhealthy")
	open := strings.Count(log, "a health check could not be made")
	var passed uint64
	for _, b := range s.status(t).Services[0].Backends {
		passed += uint64(b.Health.Checks[0].Passed)
	}
	busy := (after.User + after.System + after.SoftIRQ + after.IRQ + after.Nice) - (before.User + before.System +
		before.SoftIRQ + before.IRQ + before.Nice)
	fmt.Fprintf(file, "%d endpoints (mode nat, hook tc), check http, interval 1s, timeout 1s, fall 3, rise 2\n",
		len(backends))
	fmt.Fprintf(file,
		"for %s: %d SYNs sent, %d a second; the machine's cores were busy %.2f of %.2f, %.2f of it in softirqs\n",
		took.Round(time.Second), sent,
		uint64(float64(sent)/took.Seconds()), busy/took.Seconds(), float64(len(machine(t).CPU)),
		(after.SoftIRQ-before.SoftIRQ)/took.Seconds())
	fmt.Fprintf(file,
		"backends found to fail: %d; checks passed in a row at the end, all backends together: %d; log lines that left checks out of the count: %d\n", downs, passed, open)
	fmt.Fprintf(file, "packets ended before:%s\npackets ended after:%s\n", ended(forwarded), ended(s.outcomes(t)))
	if downs > 0 {
		t.Errorf("%d backends were found to fail though they serve", downs)
	}
}

// machine returns the CPU times of the machine, per CPU and in total.
func machine(t *testing.T) procfs.Stat {
	t.Helper()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat
}

// addAddress adds an address to a host.
func (s *stage) addAddress(t *testing.T, host *lab.Host, address netip.Addr) {
	t.Helper()
	err := host.Do(func() error {
		link, err := netlink.LinkByName(host.Interface)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link,
			&netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(16, 32)}})
	})
	if err != nil {
		t.Fatal(err)
	}
}
