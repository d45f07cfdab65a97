// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Services of mode proxy are a part of every view as others are: operations, checks, backups, slow start and
// the panic threshold decide about their backends. What becomes of that is the proxy engine's to do, and not the
// data plane's, which leaves packets for them to the kernel.

// Proxy runs the services of mode proxy; see proxy.Engine. The rest of that, to leave and to stop it, is for
// its owner.
type Proxy interface {
	Check(ctx context.Context, d proxy.Desired) error
	Apply(ctx context.Context, d proxy.Desired) error
	Stats(ctx context.Context) (proxy.Stats, error)
	State() proxy.State
	Changes() <-chan struct{}
	Renewed(ctx context.Context) error
}

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
		if s.Mode == lb.ModeProxy {
			l.proxied = append(l.proxied, i)
		}
	}
	if len(l.proxied) == 0 {
		l.watched = l.backends
		return
	}
	for n, addr := range l.backends {
		if slices.ContainsFunc(l.uses[n], func(at use) bool { return l.cfg.Services[at.i].Mode != lb.ModeProxy }) {
			l.watched = append(l.watched, addr)
		}
	}
}

// packets is what the data plane gets of a view: the state without the services of mode proxy.
func (v *view) packets() lb.State {
	state := v.state
	if len(v.proxied) > 0 {
		state.Services = slices.DeleteFunc(slices.Clone(v.state.Services), func(s lb.RoutedService) bool { return s.Mode == lb.ModeProxy })
	}
	return state
}

// desired is what the proxy engine gets of a view.
func (v *view) desired() proxy.Desired {
	d := proxy.Desired{Engine: v.cfg.Proxy}
	for _, i := range v.proxied {
		if i < len(v.state.Services) { // there are none before the first view
			d.Services = append(d.Services, proxy.Service{Service: v.state.Services[i].Service})
		}
	}
	return d
}

// proxies is the proxy engine. It comes before the data plane, so that a service that gets the mode proxy is served before
// its packets are left to the kernel, and one that loses it until they are not any more.
type proxies struct{ c *Controller }

func (p proxies) change(before, next *view) (bring, retire []step) {
	was, is := before.desired(), next.desired()
	if p.c.opt.Proxy == nil && len(was.Services)+len(is.Services) == 0 {
		return nil, nil
	}
	if !p.c.proxy.stale && sameDesired(was, is, before.layout == next.layout) {
		return nil, nil
	}
	both := is
	both.Services = slices.Concat(is.Services, leaving(was, is))
	bring = []step{{
		do:   func() error { return next.proxyError(p.c.applyProxy(both, next)) },
		undo: func() error { return p.c.applyProxy(was, before) },
	}}
	if len(both.Services) > len(is.Services) {
		retire = []step{{do: func() error { return p.c.applyProxy(is, next) }}}
	}
	return bring, retire
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
		if !slices.Equal(x.Backends, y.Backends) {
			return false
		}
		x.Backends, y.Backends = nil, nil
		if !sameLayout && !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// applyProxy brings the engine to a desired state, which is of a view.
func (c *Controller) applyProxy(d proxy.Desired, of *view) error {
	if c.opt.Proxy == nil {
		return errNoProxy
	}
	ctx, cancel := context.WithTimeout(context.Background(), proxyBound)
	defer cancel()
	read := c.readCertificates(of.cfg) // before the engine reads them: what changes meanwhile is taken again
	first := c.proxy.certificates == nil
	if err := c.opt.Proxy.Apply(ctx, d); err != nil {
		c.proxy.stale = true
		return fmt.Errorf("change the proxy: %w", err)
	}
	c.proxy.stale = false
	// The engine has read those that are new to it. Others may have changed, and are taken as such.
	for path := range read {
		if was, known := c.proxy.certificates[path]; known {
			read[path] = was
		}
	}
	if first && len(read) > 0 { // they may have changed since a process before has handed them in
		if err := c.opt.Proxy.Renewed(ctx); err != nil {
			c.opt.Log.Warn("certificates that have changed are not taken, which is tried again: " + oneLine(err))
			clear(read)
		}
	}
	c.proxy.certificates = read
	c.judgeCertificates(of.cfg)
	c.armRenewal(of.cfg)
	return nil
}

// checkProxy has the engine judge a configuration, with its backends as they are written, and looks at its certificates.
func (c *Controller) checkProxy(l *layout) (warnings yamlfile.Problems, err error) {
	if len(l.proxied) == 0 {
		return nil, nil
	}
	if c.opt.Proxy == nil {
		return nil, yamlfile.Problems{l.cfg.At(config.ServiceField(l.proxied[0], "mode"), "%v", errNoProxy)}
	}
	problems, warnings := l.cfg.CheckCertificates(c.opt.ReadFile, time.Now())
	if err := problems.Err(); err != nil {
		return nil, err
	}
	d := proxy.Desired{Engine: l.cfg.Proxy}
	for _, i := range l.proxied {
		d.Services = append(d.Services, proxy.Service{Service: l.cfg.Services[i]})
	}
	ctx, cancel := context.WithTimeout(context.Background(), proxyBound)
	defer cancel()
	return warnings, l.proxyError(c.opt.Proxy.Check(ctx, d))
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

// proxying is what the loop knows of the proxy engine.
type proxying struct {
	// stale: it is to be brought to what is wanted, even if that is the same, as at the start: a process before may have left
	// one that serves, which is gone on with, or has no service any more, and ends.
	stale bool
	// told is its state as it was logged last.
	told proxy.State
	// certificates are the hashes of the files that it has read, and bad those that it was not told of since they
	// are of no use.
	certificates, bad map[string]digest
	// judged is when the files were looked at last, and troubles what was wrong with them then.
	judged   time.Time
	troubles []string
	// stats are what it has counted, as it said last; Status writes them.
	stats proxy.Stats
}

// tellProxy logs what is new about the engine's process.
func (c *Controller) tellProxy() {
	was, is := c.proxy.told, c.opt.Proxy.State()
	c.proxy.told = is
	about := events.About{Kind: events.KindProxy}.Attr()
	if was.PID != 0 && was.PID != is.PID && len(c.view.proxied) > 0 {
		c.opt.Log.Warn(fmt.Sprintf("the proxy has ended: HAProxy, process %d", was.PID), about)
	}
	if is.PID != 0 && was.PID != is.PID {
		c.opt.Log.Info(fmt.Sprintf("the proxy runs: HAProxy %s, process %d", is.Version, is.PID), about)
	}
	switch {
	case is.Trouble != "" && is.Trouble != was.Trouble:
		c.opt.Log.Warn("the proxy: "+is.Trouble, about)
	case is.Trouble == "" && was.Trouble != "":
		c.opt.Log.Info("the proxy has no trouble any more", about)
	}
}
