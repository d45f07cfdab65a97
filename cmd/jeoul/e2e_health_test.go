// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/ops"
)

// patient is a web server that can fall ill: its port closed, without an answer, or with status
// 503.
type patient struct {
	host  *lab.Host
	ports []uint16

	mu     sync.Mutex
	server *http.Server
	status int
	// held is open while requests wait in vain; nil: they do not.
	held chan struct{}
}

// admit starts a server on ports of all addresses of a host.
func admit(t *testing.T, host *lab.Host, ports ...uint16) *patient {
	p := &patient{host: host, ports: ports, status: http.StatusOK}
	p.open(t)
	t.Cleanup(func() {
		p.answer(t, http.StatusOK)
		p.close(t)
	})
	return p
}

func (p *patient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	status, held := p.status, p.held
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
		}
		return
	}
	w.Header().Set("Lab-Server", p.host.Name)
	for name, address := range map[string]string{"Client": r.RemoteAddr, "Local": r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()} {
		end := netip.MustParseAddrPort(address)
		w.Header().Set("Lab-"+name, end.Addr().Unmap().String())
		w.Header().Set("Lab-"+name+"-Port", fmt.Sprint(end.Port()))
	}
	w.WriteHeader(status)
}

// open lets the server listen.
func (p *patient) open(t *testing.T) {
	t.Helper()
	p.server = &http.Server{Handler: p}
	for _, port := range p.ports {
		var listener net.Listener
		err := p.host.Do(func() (err error) {
			listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		go p.server.Serve(listener)
	}
}

// close closes its ports, as the kernel does for a server that is killed.
func (p *patient) close(t *testing.T) {
	t.Helper()
	if err := p.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// answer has it answer with a status; with 0, requests wait in vain.
func (p *patient) answer(t *testing.T, status int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
	if p.status = status; status == 0 {
		p.held = make(chan struct{})
	}
}

// cut takes a host's cable out at the switch, or puts it in.
func (s *stage) cut(t *testing.T, host *lab.Host, out bool) {
	t.Helper()
	err := s.Switch.Do(func() error {
		port, err := netlink.LinkByName(host.Port)
		switch {
		case err != nil:
			return err
		case out:
			return netlink.LinkSetDown(port)
		}
		return netlink.LinkSetUp(port)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checksOf are what the services of the stage ask on each of its two web ports.
var checksOf = map[uint16]entry{
	webPort:      {"type": "tcp", "via": "address", "interval": "300ms", "timeout": "200ms"},
	otherWebPort: {"type": "http", "via": "address", "path": "/healthz", "interval": "300ms", "timeout": "200ms"},
}

// TestHealthChecks: a backend that falls ill in any way gets no new connection once its checks have
// found that, under the right reason, and serves again when it is cured.
func TestHealthChecks(t *testing.T) {
	s := buildStage(t, lb.HookTC, 1)
	var translating []path
	var ports []uint16
	var services []entry
	for _, p := range paths() {
		if !p.mode.Translates() {
			continue
		}
		translating = append(translating, p)
		for port, check := range checksOf {
			service := s.service(p, port)
			service["check"] = check
			services = append(services, service)
		}
	}
	for _, shift := range portShift {
		ports = append(ports, webPort+shift, otherWebPort+shift)
	}
	patients := map[string]*patient{}
	for _, server := range s.Servers {
		patients[server.Name] = admit(t, server, ports...)
	}
	configuration := s.configuration()
	configuration["services"] = services
	s.configure(t, lb.HookTC, configuration)
	s.start(t)
	s.eventually(t, "every backend is found healthy", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return b.Health.State == lb.Healthy })
	})
	ill := s.Servers[1]
	patient := patients[ill.Name]
	for _, test := range []struct {
		name       string
		hurt, heal func()
		// reasons are what the checks of TCP and of HTTP say; empty: they find nothing.
		tcp, http string
	}{
		{"killed", func() { patient.close(t) }, func() { patient.open(t) }, "refuses connections", "refuses connections"},
		{"hangs", func() { patient.answer(t, 0) }, func() { patient.answer(t, http.StatusOK) }, "", "does not answer within 200ms"},
		{"answers 503", func() { patient.answer(t, http.StatusServiceUnavailable) }, func() { patient.answer(t, http.StatusOK) }, "", "503"},
		{"cable out", func() { s.cut(t, ill, true) }, func() { s.cut(t, ill, false) }, "200ms", "200ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			reasons := map[uint16]string{webPort: test.tcp, otherWebPort: test.http}
			test.hurt()
			s.eventually(t, ill.Name+" is found ill", func(status *ops.Status) bool {
				return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
					reason := reasons[service.Port]
					failing := b.Name == ill.Name && reason != ""
					if !failing {
						return b.Health.State == lb.Healthy && b.State == lb.Up
					}
					return b.Health.State == lb.Failing && strings.Contains(b.Health.Reason, reason) && b.State != lb.Up
				})
			})
			for port, reason := range reasons {
				if reason == "" {
					continue
				}
				for _, p := range translating {
					s.spares(t, netip.AddrPortFrom(p.vip, port), ill)
				}
			}
			test.heal()
			s.eventually(t, ill.Name+" is found healthy", func(status *ops.Status) bool {
				return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return b.Health.State == lb.Healthy && b.State == lb.Up })
			})
		})
	}
	t.Run("asked now", func(t *testing.T) { s.askNow(t, patient) })
}

// everyBackend says whether something holds for every backend of every service.
func everyBackend(status *ops.Status, holds func(ops.Service, ops.Backend) bool) bool {
	for _, service := range status.Services {
		for _, b := range service.Backends {
			if b.Health == nil || !holds(service, b) {
				return false
			}
		}
	}
	return true
}

// spares makes new connections to a service: all are answered, and none by this host.
func (s *stage) spares(t *testing.T, to netip.AddrPort, host *lab.Host) {
	t.Helper()
	browser := e2e.NewBrowser(s.Clients[0])
	for range 12 {
		seen, err := browser.Who(bounded(t), to)
		if err != nil || seen.Server == host.Name {
			t.Errorf("%s: %q answered, %v", to, seen.Server, err)
			return
		}
	}
}

// askNow asks a backend by the command's way, while it serves and while it does not.
func (s *stage) askNow(t *testing.T, patient *patient) {
	client := api.NewClient(s.socket)
	for _, test := range []struct {
		status int
		want   lb.Health
		last   string
	}{{http.StatusOK, lb.Healthy, ""}, {http.StatusServiceUnavailable, lb.Failing, "503"}} {
		patient.answer(t, test.status)
		checked, err := client.Check(context.WithoutCancel(t.Context()), fmt.Sprintf("nat-IPv4-%d", otherWebPort), patient.host.Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(checked.Results) != 1 || checked.Results[0].State != test.want || !strings.Contains(checked.Results[0].Reason, test.last) || len(checked.Steps) < 2 {
			t.Errorf("with status %d: %+v, steps %+v", test.status, checked.Results, checked.Steps)
		}
	}
	patient.answer(t, http.StatusOK)
}
