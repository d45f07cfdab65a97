// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// kindProxy is the directory of the proxy engine's files, which are gone when it has stopped.
const kindProxy = "proxy"

// proxyStopTimeout is how long the end of the proxy may take.
const proxyStopTimeout = 30 * time.Second

// engine returns the proxy engine of an instance. It runs nothing until there is a service for it.
func (i instance) engine(log *slog.Logger) (proxy.Engine, error) {
	return proxy.New(proxy.Options{Dir: i.file(kindProxy), Log: log, Files: i.files})
}

// stopProxy ends a proxy.
func stopProxy(engine proxy.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), proxyStopTimeout)
	defer cancel()
	return engine.Stop(ctx)
}

// endProxy ends the proxy that a process of the instance has left, if it has.
func (i instance) endProxy() error {
	if _, err := os.Stat(i.file(kindProxy)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	engine, err := i.engine(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return stopProxy(engine)
}

// CheckProxied makes the checks of services of mode proxy that need the machine, as far as the caller's rights reach:
// of their certificates, and HAProxy's own. Warnings name checks that could not be made, too. Errors:
// yamlfile.Problems.
func CheckProxied(ctx context.Context, cfg *config.Config) (warnings []string, err error) {
	d := proxy.Desired{Engine: cfg.Proxy}
	for _, s := range cfg.Services {
		if s.Mode.Proxied() {
			d.Services = append(d.Services, proxy.Service{Service: s})
		}
	}
	if len(d.Services) == 0 {
		return nil, nil
	}
	var unreadable []string
	read := func(path string) ([]byte, error) {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrPermission) {
			unreadable = append(unreadable, path)
		}
		return data, err
	}
	problems, certificateWarnings, _ := cfg.CheckCertificates(read, time.Now())
	for _, warning := range certificateWarnings {
		warnings = append(warnings, fmt.Sprint(warning))
	}
	if len(unreadable) > 0 {
		return append(warnings,
			fmt.Sprintf("certificates were not looked at, nor was HAProxy asked, for want of the right to "+
				"read %s: check as root", unreadable[0])), nil
	}
	if err := problems.Err(); err != nil {
		return warnings, err
	}
	engine, err := proxy.New(proxy.Options{Dir: "/run/jeoul/check"})
	if err != nil {
		return warnings, err
	}
	err = engine.Validate(ctx, d)
	if errors.Is(err, proxy.ErrNoProgram) && cfg.Proxy.Program == "" {
		return append(warnings, fmt.Sprintf("HAProxy has not checked the configuration: %v", err)), nil
	}
	if problem, ok := control.ProxyProblem(cfg, err); ok {
		return warnings, yamlfile.Problems{problem}
	}
	return warnings, err
}
