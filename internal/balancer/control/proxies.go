// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// proxies is the actuator of the proxy engine. It comes before the data plane: when a service changes to mode proxy,
// the proxy serves it before its packets are passed to the kernel, and when it changes to another mode, until they no
// longer are.
type proxies struct {
	*core
	// stale: the desired state has to be applied even if it has not changed. It is true at the start: the previous
	// process may have left an engine that serves, which is taken over, or one whose services are gone, which is
	// stopped.
	stale bool
	// logged is the engine's state as logged last.
	logged proxy.State
	// certificates are the hashes of the files that the engine has read, and rejected those of files that it was not
	// given because they are invalid.
	certificates, rejected map[string]digest
	// evaluated is when the files were validated last, and problems the problems found then.
	evaluated time.Time
	problems  []string
	// stats are the engine's counters as it reported them last; Status writes them.
	stats     proxy.Stats
	renewTask *loop.Task
	// callEnds is when a call of the engine under way must have ended, which the loop waits for; nil: there is none.
	callEnds atomic.Pointer[time.Time]
}

// call calls the engine, and waits for the end.
func (p *proxies) call(do func(context.Context) error) error {
	ends := time.Now().Add(engineBound)
	p.callEnds.Store(&ends)
	defer p.callEnds.Store(nil)
	ctx, cancel := context.WithTimeout(context.Background(), proxyBound)
	defer cancel()
	return do(ctx)
}

// isCalling reports whether the loop waits for the engine, whose time is not over.
func (p *proxies) isCalling() bool {
	ends := p.callEnds.Load()
	return ends != nil && time.Now().Before(*ends)
}

func (p *proxies) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
	previous, desired := before.ProxyDesired(), next.ProxyDesired()
	if p.opt.Proxy == nil && len(previous.Services)+len(desired.Services) == 0 {
		return nil, nil
	}
	if !p.stale && view.SameDesired(previous, desired, before.Layout == next.Layout) {
		return nil, nil
	}
	both := desired
	both.Services = slices.Concat(desired.Services, view.RemovedServices(previous, desired))
	apply = []steps.Step{{
		Do:   func() error { return proxyError(next.Layout, p.applyProxy(both, next)) },
		Undo: func() error { return p.applyProxy(previous, before) },
	}}
	if len(both.Services) > len(desired.Services) {
		cleanup = []steps.Step{{Do: func() error { return p.applyProxy(desired, next) }}}
	}
	return apply, cleanup
}

// applyProxy brings the engine to the desired state of a view.
func (p *proxies) applyProxy(d proxy.Desired, v *view.View) error {
	if p.opt.Proxy == nil {
		return errNoProxy
	}
	read := p.readCertificates(v.Config) // before the engine reads them: a later change is noticed again
	first := p.certificates == nil
	if err := p.call(func(ctx context.Context) error { return p.opt.Proxy.Apply(ctx, d) }); err != nil {
		p.stale = true
		return fmt.Errorf("change the proxy: %w", err)
	}
	p.stale = false
	// The engine has read the files that are new to it. The others may have changed, and keep their old hashes, so that
	// renew notices it.
	for path := range read {
		if hash, known := p.certificates[path]; known {
			read[path] = hash
		}
	}
	if first && len(read) > 0 { // they may have changed since the previous process passed them to the engine
		if err := p.call(p.opt.Proxy.RenewCertificates); err != nil {
			p.opt.Log.Warn("certificates that have changed are not taken, which is tried again: " + loglines.OneLine(err))
			clear(read)
		}
	}
	p.certificates = read
	p.evaluateCertificates(v.Config)
	p.armRenewal(v.Config)
	return nil
}

// checkProxy has the engine validate a configuration, without discovered backends, and validates its certificates.
func (p *proxies) checkProxy(l *view.Layout) (warnings yamlfile.Problems, err error) {
	if len(l.Proxied) == 0 {
		return nil, nil
	}
	if p.opt.Proxy == nil {
		return nil, yamlfile.Problems{l.Config.At(config.ServiceField(l.Proxied[0], "mode"), "%v", errNoProxy)}
	}
	problems, warnings, _ := l.Config.CheckCertificates(p.opt.ReadFile, time.Now())
	if err := problems.Err(); err != nil {
		return nil, err
	}
	d := proxy.Desired{Engine: l.Config.Proxy}
	for _, i := range l.Proxied {
		d.Services = append(d.Services, proxy.Service{Service: l.Config.Services[i]})
	}
	err = p.call(func(ctx context.Context) error { return p.opt.Proxy.Validate(ctx, d) })
	return warnings, proxyError(l, err)
}

// logState logs changes of the engine's process.
func (p *proxies) logState() {
	previous, state := p.logged, p.opt.Proxy.State()
	p.logged = state
	about := events.About{Kind: events.KindProxy}.Attr()
	if previous.PID != 0 && previous.PID != state.PID && len(p.view.Proxied) > 0 {
		p.opt.Log.Warn(fmt.Sprintf("the proxy has ended: HAProxy, process %d", previous.PID), about)
	}
	if state.PID != 0 && previous.PID != state.PID {
		p.opt.Log.Info(fmt.Sprintf("the proxy runs: HAProxy %s, process %d", state.Version, state.PID), about)
	}
	switch {
	case state.Problem != "" && state.Problem != previous.Problem:
		p.opt.Log.Warn("the proxy: "+state.Problem, about)
	case state.Problem == "" && previous.Problem != "":
		p.opt.Log.Info("the proxy has no problem any more", about)
	}
}

// renewInterval is how often certificate files are read: they are renewed some days before they expire, and watching
// their directory would miss a symbolic link whose target changes elsewhere. Expiry is checked every evaluateInterval.
const (
	renewInterval    = 5 * time.Second
	evaluateInterval = time.Minute
)

// digest is the hash of a file's content; zero: it could not be read.
type digest [sha256.Size]byte

// certificateFiles are the certificate files of a configuration's services, each once.
func certificateFiles(cfg *config.Config) []string {
	files := map[string]bool{}
	for _, s := range cfg.Services {
		if s.Proxy == nil {
			continue
		}
		for _, path := range s.Proxy.Certificates {
			files[path] = true
		}
		if s.Proxy.BackendCA != "" {
			files[s.Proxy.BackendCA] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

// readCertificates hashes the files of a configuration.
func (p *proxies) readCertificates(cfg *config.Config) map[string]digest {
	read := map[string]digest{}
	for _, path := range certificateFiles(cfg) {
		if data, err := p.opt.ReadFile(path); err == nil {
			read[path] = sha256.Sum256(data)
		} else {
			read[path] = digest{}
		}
	}
	return read
}

// armRenewal schedules the next look at certificate files, if there are any.
func (p *proxies) armRenewal(cfg *config.Config) {
	if len(certificateFiles(cfg)) > 0 {
		p.renewTask.Schedule(renewInterval)
	} else {
		p.renewTask.Cancel()
	}
}

// evaluateCertificates validates the files, and stores the problems for the status.
func (p *proxies) evaluateCertificates(cfg *config.Config) (problems, warnings yamlfile.Problems,
	unusable map[string]bool) {
	now := time.Now()
	problems, warnings, unusable = cfg.CheckCertificates(p.opt.ReadFile, now)
	var texts []string
	for _, problem := range problems {
		texts = append(texts, problem.Error()+" (the one before serves on until the proxy is reloaded)")
	}
	for _, warning := range warnings {
		texts = append(texts, warning.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluated, p.problems = now, texts
	return problems, warnings, unusable
}

// renew makes the engine load certificates whose files have changed. Invalid ones are logged once, and the previous
// ones stay in use, without holding up the others: a file may be half written, or gone for good.
func (p *proxies) renew() {
	cfg := p.view.Config
	defer p.armRenewal(cfg)
	now := p.readCertificates(cfg)
	changed := slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(path string) bool {
		return now[path] == p.certificates[path]
	})
	if len(changed) == 0 && time.Since(p.evaluated) < evaluateInterval {
		return
	}
	problems, warnings, unusable := p.evaluateCertificates(cfg)
	if len(changed) == 0 {
		return
	}
	usable := slices.DeleteFunc(changed, func(path string) bool { return unusable[path] })
	taken, err := p.renewFiles(usable)
	about := events.About{Kind: events.KindProxy}.Attr()
	if err = errors.Join(problems.Err(), err); err == nil {
		p.rejected = nil
	} else if !maps.Equal(p.rejected, now) {
		p.opt.Log.Warn("changed certificates are not taken, and those before serve on: "+loglines.OneLine(err), about)
		p.rejected = now
	}
	if len(taken) == 0 {
		return
	}
	for _, path := range taken {
		p.certificates[path] = now[path]
	}
	p.opt.Log.Info("the proxy has taken certificates that have changed: "+strings.Join(taken, ", "), about)
	for _, warning := range warnings {
		p.opt.Log.Warn(warning.Error(), about)
	}
}

// renewFiles makes the engine load these files, and returns those that it has taken, and why it has not taken others.
func (p *proxies) renewFiles(paths []string) (taken []string, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	failed := proxy.RenewalErrors{}
	if err := p.call(p.opt.Proxy.RenewCertificates); err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	var reasons []error // of the other files, it is known that they cannot be used
	for _, path := range paths {
		if why := failed[path]; why != nil {
			reasons = append(reasons, why)
		} else {
			taken = append(taken, path)
		}
	}
	return taken, errors.Join(reasons...)
}

// readStats returns the proxy's counters, or, with an error, those read last.
func (p *proxies) readStats() (proxy.Stats, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statsBound)
	defer cancel()
	stats, err := p.opt.Proxy.Stats(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		return p.stats, err
	}
	p.stats = stats
	return stats, nil
}

// engineStatus returns the status of the proxy's process; nil if no service needs one.
func (p *proxies) engineStatus(v *view.View) *ops.ProxyEngine {
	if len(v.Proxied) == 0 || p.opt.Proxy == nil {
		return nil
	}
	state := p.opt.Proxy.State()
	return &ops.ProxyEngine{Program: state.Program, Version: state.Version, PID: state.PID, Started: state.Started,
		Reloads: state.Reloads, Workers: state.Workers, Problem: state.Problem}
}

// engineProblems lists the problems of the proxy engine.
func (p *proxies) engineProblems(v *view.View) (list []string) {
	if engine := p.engineStatus(v); engine != nil && engine.Problem != "" {
		list = append(list, "the proxy: "+engine.Problem)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(list, p.problems)
}

const (
	// proxyBound bounds a change of the proxy engine until it begins: another one may be under way, and HAProxy checks
	// the configuration. engineBound bounds it to its end, which HAProxy may need a start or a reload for.
	proxyBound  = 30 * time.Second
	engineBound = proxyBound + proxy.ServeTimeout
	// statsBound bounds how long a status waits for the engine's counters.
	statsBound = 2 * time.Second
)

// errNoProxy is the error of a configuration that needs a proxy engine, in a program that has none.
var errNoProxy = errors.New("this program has no proxy engine; use another mode")

// proxyError converts an engine's error into a problem of the configuration, if it names a field.
func proxyError(l *view.Layout, err error) error {
	if problem, ok := ProxyProblem(l.Config, err); ok {
		return yamlfile.Problems{problem}
	}
	return err
}

// ProxyProblem returns the problem of a configuration that a proxy engine rejects, if the engine's error names a field.
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
