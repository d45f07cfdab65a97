// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// proxyBound is how long the proxy engine may take for a change: it starts a process, and waits for it.
	proxyBound = 30 * time.Second
	// statsBound is how long a status waits for what it has counted.
	statsBound = 2 * time.Second
)

// errNoProxy is for a configuration that needs what this program is without.
var errNoProxy = errors.New("this program has no proxy engine; use another mode")

// findProxied finds the services of mode proxy, and the backends of the others.
func (l *layout) findProxied() {
	for i, s := range l.cfg.Services {
		if s.Mode.Proxied() {
			l.proxied = append(l.proxied, i)
		}
	}
	if len(l.proxied) == 0 {
		l.watched = l.backends
		return
	}
	for n, addr := range l.backends {
		if slices.ContainsFunc(l.uses[n], func(at use) bool { return !l.cfg.Services[at.i].Mode.Proxied() }) {
			l.watched = append(l.watched, addr)
		}
	}
}

// packets is what the data plane gets of a view: the state without the services of mode proxy.
func (v *view) packets() lb.State {
	state := v.state
	if len(v.proxied) > 0 {
		state.Services = slices.DeleteFunc(slices.Clone(v.state.Services), func(s lb.RoutedService) bool {
			return s.Mode.Proxied()
		})
	}
	return state
}

// desired is what the proxy engine gets of a view.
func (v *view) desired() proxy.Desired {
	d := proxy.Desired{Engine: v.cfg.Proxy}
	for _, i := range v.proxied {
		if i < len(v.state.Services) { // there are none before the first view
			s := &v.state.Services[i]
			d.Services = append(d.Services, proxy.Service{Service: s.Service, Observed: s.Observed})
		}
	}
	return d
}

// leaving are the services that are not in the next state.
func leaving(was, is proxy.Desired) (gone []proxy.Service) {
	for _, s := range was.Services {
		if !slices.ContainsFunc(is.Services, func(o proxy.Service) bool { return o.Key() == s.Key() }) {
			gone = append(gone, s)
		}
	}
	return gone
}

// sameDesired says whether the engine has nothing to do. Within a configuration only backends change.
func sameDesired(a, b proxy.Desired, sameLayout bool) bool {
	if len(a.Services) != len(b.Services) || !sameLayout && !reflect.DeepEqual(a.Engine, b.Engine) {
		return false
	}
	for i := range a.Services {
		x, y := a.Services[i].Service, b.Services[i].Service
		if !slices.Equal(x.Backends, y.Backends) || !a.Services[i].Observed.Equal(b.Services[i].Observed) {
			return false
		}
		x.Backends, y.Backends = nil, nil
		if !sameLayout && !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// proxyError names the place in the configuration where the engine does.
func (l *layout) proxyError(err error) error {
	if problem, ok := ProxyProblem(l.cfg, err); ok {
		return yamlfile.Problems{problem}
	}
	return err
}

// ProxyProblem returns the place in a configuration of what a proxy engine refuses, if its error names one.
func ProxyProblem(cfg *config.Config, err error) (problem yamlfile.Problem, ok bool) {
	var at *proxy.FieldError
	if !errors.As(err, &at) {
		return problem, false
	}
	if at.Engine {
		field := at.Field
		if field != "proxy" && !strings.HasPrefix(field, "proxy.") {
			field = yamlfile.Join("proxy", field)
		}
		return cfg.At(strings.TrimSuffix(field, "."), "%v", at), true
	}
	for i, s := range cfg.Services {
		if s.Key() == at.Service {
			return cfg.At(config.ServiceField(i, at.Field), "%v", at), true
		}
	}
	return problem, false
}

// showProxied shows what the proxy does for a service.
func showProxied(s lb.Service, counts proxy.Stats, status *ops.Service) {
	if !s.Mode.Proxied() {
		return
	}
	n := counts.Services[s.Key()]
	status.TableSize = 0
	status.Proxy = &ops.ProxiedService{Speaks: cmp.Or(s.Proxy.Speaks, lb.SpeaksTCP), TLS: len(s.Proxy.Certificates) > 0,
		Connections: n.Connections, BytesIn: n.BytesIn, BytesOut: n.BytesOut, Denied: n.Denied, Proxied: proxiedOf(n)}
	for j := range status.Backends {
		b := &status.Backends[j]
		key := lb.BackendKey{Service: s.Key(), Address: b.Address, Port: b.Port}
		of := proxiedOf(counts.Backends[key])
		b.Proxied = &of
		// The kernel leads there, and what is known of the address is another service's.
		b.Neighbour, b.Interface, b.NextHop, b.MAC, b.MTU, b.Narrow = "", "", netip.Addr{}, "", 0, false
	}
}

func proxiedOf(n proxy.Counts) ops.Proxied {
	r := n.Responses
	return ops.Proxied{Requests: n.Requests, Failed: n.Failed, Retried: n.Retried, Redispatched: n.Redispatched,
		Queued: n.Queued,
		Responses: ops.Responses{Other: r[0], Informational: r[1], Successful: r[2], Redirection: r[3],
			ClientError: r[4], ServerError: r[5]}}
}
