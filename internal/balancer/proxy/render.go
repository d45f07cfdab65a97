// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/snippet"
)

// MinVersion is the oldest HAProxy that can be the engine.
const MinVersion = "2.6"

// Bounds of workers that reloads leave behind, and of remembered clients.
const (
	// maxReloads is how many reloads a worker survives if its connections do not end: the next reload ends it.
	maxReloads = 16
	// maxPersistentClients bounds the persistence table of a service; the client that has been idle for longest is
	// evicted.
	maxPersistentClients = "1m"
)

// Host has the properties of the host that the configuration depends on.
type Host struct {
	// Dir is the directory of the instance's files: letters, digits and "._/-" only.
	Dir string
	// Root: HAProxy starts as root, and changes to another user in an empty root directory.
	Root bool
	// NonlocalBind: it may bind addresses that the host does not have yet.
	NonlocalBind bool
}

// The instance's files, in its directory.
func (h Host) file() string     { return filepath.Join(h.Dir, "haproxy.cfg") }
func (h Host) socket() string   { return filepath.Join(h.Dir, "haproxy.sock") }
func (h Host) master() string   { return filepath.Join(h.Dir, "master.sock") }
func (h Host) messages() string { return filepath.Join(h.Dir, "messages") }
func (h Host) root() string     { return filepath.Join(h.Dir, "root") }
func (h Host) state() string    { return filepath.Join(h.Dir, "state.json") }
func (h Host) counts() string   { return filepath.Join(h.Dir, "counts.json") }

// extra is a file beside the configuration, named by a hash of its content.
func (h Host) extra(kind, contents string) string { return h.hashedPath(kind, contents) }

// certificate is the engine's own copy of a certificate's file. HAProxy reads certificates at each reload and restart,
// which a half-written or invalid file must not prevent.
func (h Host) certificate(path string) string { return h.hashedPath("certificate", path) + ".pem" }

// authorities likewise is the engine's own copy of a file of authorities.
func (h Host) authorities(path string) string { return h.hashedPath("authorities", path) + ".pem" }

func (h Host) hashedPath(kind, text string) string {
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(h.Dir, kind+"-"+hex.EncodeToString(sum[:8]))
}

// Render returns HAProxy's configuration for a desired state. It is a pure function of its arguments. Its error names
// the service and the field: see FieldError.
func Render(d Desired, h Host) (*Rendering, error) {
	r := &Rendering{Files: map[string]string{}, Certificates: map[string]string{}, Authorities: map[string]string{},
		HardStop: cmp.Or(d.Engine.HardStop, lb.DefaultHardStop)}
	services := slices.Clone(d.Services)
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(a.VIP.Compare(b.VIP), cmp.Compare(a.Port, b.Port))
	})
	if err := renderGlobal(r, d.Engine, h); err != nil {
		return nil, err
	}
	for i := range services {
		if i > 0 && services[i].Key() == services[i-1].Key() {
			return nil, place{service: services[i].Key()}.wrap(fmt.Errorf("%q and %q have one address and port",
				services[i-1].Name, services[i].Name))
		}
		if err := renderService(r, &services[i], h, hasLog(d.Engine)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func renderGlobal(r *Rendering, e lb.ProxyEngine, h Host) error {
	t := &sectionWriter{from: place{engine: true}}
	t.lines = append(t.lines,
		line{text: "# Jeoul has made this file and replaces it: change its configuration instead."})
	t.section("what all services share", "global")
	t.add("", "stats", "socket", h.socket(), "mode", "600", "level", "admin", "expose-fd", "listeners")
	if h.Root {
		user := cmp.Or(e.User, lb.DefaultProxyUser)
		t.add("user", "user", user)
		t.add("group", "group", cmp.Or(e.Group, user))
		t.add("", "chroot", h.root())
	}
	if e.Threads > 0 {
		t.add("threads", "nbthread", strconv.Itoa(int(e.Threads)))
	}
	for i, m := range e.CPUMap {
		t.add(fmt.Sprintf("cpu_map[%d]", i), append([]string{"cpu-map"}, strings.Split(m, " ")...)...)
	}
	if e.Connections > 0 {
		t.add("connections", "maxconn", strconv.FormatUint(uint64(e.Connections), 10))
	}
	t.add("hard_stop", "hard-stop-after", milliseconds(r.HardStop))
	t.add("", "mworker-max-reloads", strconv.Itoa(maxReloads))
	t.add("", "ssl-default-bind-options", "ssl-min-ver", "TLSv1.2")
	t.add("", "ssl-default-server-options", "ssl-min-ver", "TLSv1.2")
	t.verbatim("global", e.Global, snippet.GlobalKeys)
	r.addBlock(t, Block{}, nil)
	return t.err
}

// hasLog reports whether the engine's lines name a log.
func hasLog(e lb.ProxyEngine) bool {
	for text := range strings.Lines(e.Global) {
		if strings.HasPrefix(snippet.TrimLine(text), "log ") {
			return true
		}
	}
	return false
}

// renderService renders the sections of a service.
func renderService(r *Rendering, s *Service, h Host, logged bool) error {
	p := s.Proxy
	if p == nil {
		p = &lb.Proxy{}
	}
	c := &service{Service: s, p: p, http: p.Speaks == lb.SpeaksHTTP, name: serviceName(s.Key()), host: h, out: r,
		logs: logged}
	if err := c.checkSupported(); err != nil {
		return err
	}
	t := &sectionWriter{from: place{service: s.Key()}}
	c.clients(t)
	r.addBlock(t, Block{}, nil)
	if t.err != nil {
		return t.err
	}
	for i, route := range p.Routes {
		if err := c.backends(c.routeName(i), fmt.Sprintf("%s, route %d", s.Name, i+1), c.routeBackends(route)); err != nil {
			return err
		}
	}
	all := make([]int, len(s.Backends))
	for i := range all {
		all[i] = i
	}
	return c.backends(c.name+allOf, s.Name, all)
}

// service is a service that is rendered.
type service struct {
	*Service
	p    *lb.Proxy
	http bool
	name string
	host Host
	out  *Rendering
	// logs: a log is configured.
	logs bool
}

func (c *service) routeName(i int) string { return c.name + routeOf + strconv.Itoa(i) }

// routeBackends returns the indices of a route's backends, in the service's order. Those that discovery has not found
// are not among them.
func (c *service) routeBackends(route lb.Route) (indices []int) {
	for i, b := range c.Backends {
		if slices.Contains(route.Backends, b.Name) {
			indices = append(indices, i)
		}
	}
	return indices
}

// checkSupported refuses settings that this engine does not support for a service.
func (c *service) checkSupported() error {
	for _, f := range []struct {
		field string
		bad   bool
		why   string
	}{
		{"protocol", c.Protocol != lb.TCP, "the proxy engine serves TCP only"},
		{"persistence.group", c.Persistence.Group != "",
			"the proxy engine does not share persistence between services"},
		{"proxy.routes", len(c.p.Routes) > 0 && !c.http, "routes need `speaks: http`"},
		{"proxy.cookie", c.p.Cookie != "" && !c.http, "a cookie needs `speaks: http`"},
		{"proxy.security_headers", c.p.SecurityHeaders && !c.http, "headers need `speaks: http`"},
		{"proxy.request_headers", len(c.p.RequestHeaders) > 0 && !c.http, "headers need `speaks: http`"},
		{"proxy.response_headers", len(c.p.ResponseHeaders) > 0 && !c.http, "headers need `speaks: http`"},
		{"proxy.redirect_tls", c.p.RedirectTLS && !c.http, "a redirect needs `speaks: http`"},
		{"proxy.send_proxy", c.p.SendProxy > 2, "the PROXY protocol has versions 1 and 2"},
	} {
		if f.bad {
			return place{service: c.Key(), field: f.field}.wrap(fmt.Errorf("%s", f.why))
		}
	}
	return nil
}
