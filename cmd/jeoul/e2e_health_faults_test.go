// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// quickFaults are the faults in `make test`; `make test-matrix` has all.
var quickFaults = []string{"killed", "hangs", "cable out", "without VIPs and decapsulation"}

// runs reports whether the fault is a case of this run.
func (i checkFault) runs() bool {
	return testenv.InTarget(matrixTarget) || slices.Contains(quickFaults, i.name)
}

// checkFault is a way in which a backend stops serving.
type checkFault struct {
	name string
	// prepare is called before, and changes nothing; nil: there is nothing to prepare.
	prepare, inject, repair func()
	// tcp and http are parts of the reasons that checks of these types give for it; none: they do not detect it.
	tcp, http string
}

// none marks a check that does not detect a fault.
const none = ""

// checkFaults returns the faults of a backend with this server, with checks of this timeout.
func (s *stage) checkFaults(t *testing.T, p *faultyServer, timeout time.Duration) []checkFault {
	silent, unopened := "does not answer within "+timeout.String(), timeout.String()
	var replacement process
	replaceServer := func() {
		if replacement == nil {
			replacement = p.replaceServer(t)
		}
	}
	return []checkFault{
		// The kernel continues to accept connections for a stopped process.
		{"stopped", replaceServer, func() { replacement.signal(t, syscall.SIGSTOP) },
			func() { replacement.signal(t, syscall.SIGCONT) },
			none, silent},
		{"killed", replaceServer, func() { replacement.kill(t) }, func() { p.open(t) }, "refuses connections",
			"refuses connections"},
		{"hangs", nil, func() { p.answer(t, 0) }, func() { p.answer(t, http.StatusOK) }, none, silent},
		{"answers 503", nil, func() { p.answer(t, http.StatusServiceUnavailable) }, func() {
			p.answer(t, http.StatusOK)
		}, none, "503"},
		{"slow", nil, func() { p.delayAnswers(10 * timeout) }, func() { p.delayAnswers(0) }, none, silent},
		{"accept queue full", nil, func() { p.fillAcceptQueues(t, true) }, func() { p.fillAcceptQueues(t, false) },
			unopened, unopened},
		{"cable out", nil, func() { s.setCable(t, p.host, true) }, func() { s.setCable(t, p.host, false) }, unopened, unopened},
	}
}

// checkFaultsByVIP returns the faults of a backend that serves at its own address, and accepts nothing for the VIPs.
func (s *stage) checkFaultsByVIP(t *testing.T, faulty *lab.Host, timeout time.Duration) []checkFault {
	return []checkFault{
		{"VIPs dropped", nil, func() { s.setVIPs(t, faulty, false) }, func() { s.setVIPs(t, faulty, true) },
			timeout.String(), timeout.String()},
		{"without VIPs and decapsulation", nil, func() { stop(t, s.agents[faulty.Name]) }, func() {
			s.startAgent(t, faulty)
		}, none, none},
	}
}

// setVIPs adds the VIPs to a backend's lo, where the agent had put them, or deletes them.
func (s *stage) setVIPs(t *testing.T, host *lab.Host, on bool) {
	t.Helper()
	err := host.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		var errs []error
		for _, p := range paths() {
			switch address := (&netlink.Addr{IPNet: hostNet(p.vip)}); {
			case p.mode.Translates():
			case on:
				errs = append(errs, netlink.AddrAdd(lo, address))
			default:
				errs = append(errs, netlink.AddrDel(lo, address))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// process is a server in separate processes, one for each port, which can be stopped and killed.
type process []*lab.Process

// replaceServer has processes listen on the server's ports in its place, and returns when they do.
func (p *faultyServer) replaceServer(t *testing.T) process {
	t.Helper()
	p.close(t)
	var all process
	for i, port := range p.ports {
		all = append(all, jeoul(t, p.host, &cmdtest.SyncBuffer{}, "bench", "live-server", "--name", p.host.Name,
			"--port", fmt.Sprint(7000+i), "--health", fmt.Sprint(port)))
	}
	t.Cleanup(func() { all.kill(t) })
	browser := e2e.NewBrowser(p.host)
	for _, port := range p.ports {
		at := netip.AddrPortFrom(p.host.IPv4, port).String()
		testenv.Eventually(t, e2e.WaitLimit, "a process answers at "+at, func() bool {
			response, err := browser.Get("http://" + at)
			if err == nil {
				response.Body.Close()
			}
			return err == nil
		})
	}
	return all
}

func (p process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	for _, one := range p {
		if err := one.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
}

// kill kills the processes; ended ones are left alone.
func (p process) kill(t *testing.T) {
	t.Helper()
	for _, one := range p {
		if err := one.Kill(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, lab.ErrClosed) {
			t.Error(err)
		}
	}
}

// Parameters of the fault matrix's checks, which must find a fault within faultFound.
const (
	faultInterval, faultTimeout = 500 * time.Millisecond, 400 * time.Millisecond
	faultFall, faultRise        = 3, 2
	faultFound                  = faultInterval*faultFall + faultTimeout
)

// TestMeasureFaults measures, for each mode and family by each hook, how long it takes until a fault is detected, and
// until its end is detected.
func TestMeasureFaults(t *testing.T) {
	file := measured(t, "health-faults.txt")
	fmt.Fprintf(file,
		"# Seconds from a fault to the verdict (\"since\" of jeoul status -o json), and from its end to the other verdict.\n"+
			"# Check http, interval %v, timeout %v, fall %d, rise %d: a fault is to be found within %v.\n",
		faultInterval,
		faultTimeout, faultFall, faultRise, faultFound)
	forEachHook(t, func(t *testing.T, hook lb.Hook) {
		s := buildStage(t, hook, 1)
		check := entry{"type": "http", "path": "/healthz", "interval": faultInterval.String(),
			"timeout": faultTimeout.String(), "fall": faultFall, "rise": faultRise}
		every := func(lb.Mode) bool { return true }
		servers := s.startChecked(t, hook, every, check, webPort, webPort+portShift[lb.NAT],
			webPort+portShift[lb.FullNAT])
		s.awaitVerdicts(t, s.Servers[1], lb.Healthy, every)
		faulty := s.Servers[1]
		for _, fault := range s.checkFaults(t, servers[faulty.Name], faultTimeout) {
			s.measureFault(t, file, faulty, fault, every)
		}
		for _, fault := range s.checkFaultsByVIP(t, faulty, faultTimeout) {
			s.measureFault(t, file, faulty, fault, keepsVIP)
		}
		var plain *lab.Process
		s.measureFault(t, file, faulty, checkFault{name: "without decapsulation",
			inject: func() { plain = s.replaceAgent(t, faulty) },
			repair: func() { stop(t, plain); s.startAgent(t, faulty) }},
			func(mode lb.Mode) bool { return keepsVIP(mode) && mode != lb.L2DSR })
	})
}

// keepsVIP: packets reach backends with the VIP in them.
func keepsVIP(mode lb.Mode) bool { return !mode.Translates() }

// startChecked starts the balancer with a service of the web port for each wanted mode and family, all with one check,
// with servers on these ports of each backend, which it returns by their names. Backends have an agent.
func (s *stage) startChecked(t *testing.T, hook lb.Hook, wanted func(lb.Mode) bool, check entry,
	ports ...uint16) map[string]*faultyServer {
	t.Helper()
	var services []entry
	for _, p := range paths() {
		if wanted(p.mode) {
			service := s.service(p, webPort)
			service["check"] = check
			services = append(services, service)
		}
	}
	configuration := s.configuration()
	configuration["services"] = services
	s.configure(t, hook, configuration)
	servers := map[string]*faultyServer{}
	for _, server := range s.Servers {
		s.startAgent(t, server)
		servers[server.Name] = startFaultyServer(t, server, ports...)
	}
	s.start(t)
	return servers
}

// measureFault measures one fault, which the checks of some modes detect.
func (s *stage) measureFault(t *testing.T, file io.Writer, faulty *lab.Host, fault checkFault,
	finds func(lb.Mode) bool) {
	t.Run(fault.name, func(t *testing.T) {
		if fault.prepare != nil {
			fault.prepare()
		}
		began := time.Now()
		fault.inject()
		found := s.awaitVerdicts(t, faulty, lb.Failing, finds)
		repaired := time.Now()
		fault.repair()
		back := s.awaitVerdicts(t, faulty, lb.Healthy, finds)
		fmt.Fprintf(file, "%s, %s:", s.hook, fault.name)
		for _, p := range paths() {
			if !finds(p.mode) {
				continue
			}
			name := fmt.Sprintf("%s-%s-%d", p.mode, familyName(p.vip), webPort)
			fmt.Fprintf(file, " %s %.2f/%.2f", p, found[name].since.Sub(began).Seconds(),
				back[name].since.Sub(repaired).Seconds())
			if reason := found[name].reason; !strings.Contains(reason, fault.http) {
				t.Errorf("%s: the reason is %q, and should say %q", p, reason, fault.http)
			}
		}
		fmt.Fprintln(file)
	})
}

// verdictChange is the time and the reason of the change of a service's checks to their verdict on a backend.
type verdictChange struct {
	since  time.Time
	reason string
}

// awaitVerdicts waits until the checks of these modes have a verdict on a backend, and those of the others find it
// healthy. It returns the changes, by services' names.
func (s *stage) awaitVerdicts(t *testing.T, host *lab.Host, state lb.Health,
	of func(lb.Mode) bool) map[string]verdictChange {
	t.Helper()
	all := map[string]verdictChange{}
	s.eventually(t, fmt.Sprintf("%s is %s", host.Name, state), func(status *ops.Status) bool {
		return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
			if b.Name != host.Name || !of(service.Mode) {
				return b.Health.State == lb.Healthy
			}
			all[service.Name] = verdictChange{b.Health.Since, b.Health.Reason}
			return b.Health.State == state
		})
	})
	return all
}
