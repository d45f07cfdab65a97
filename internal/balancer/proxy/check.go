// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"fmt"
	"os/user"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Validate has HAProxy check a desired state; see Engine.
func (e *engine) Validate(ctx context.Context, d Desired) error {
	if len(d.Services) == 0 {
		return nil
	}
	c, err := e.prepare(ctx, d)
	if err != nil {
		return err
	}
	return e.validate(ctx, d, c)
}

// prepare renders a desired state, and makes the checks for which HAProxy's own messages are less helpful.
func (e *engine) prepare(ctx context.Context, d Desired) (*candidate, error) {
	if e.unsupported != nil {
		return nil, e.unsupported
	}
	r, err := Render(d, e.host)
	if err != nil {
		return nil, err
	}
	c := &candidate{rendering: r, certificates: map[string]*certificate{},
		authorities: map[string]*authorities{}}
	if c.program, err = e.findProgram(ctx, d.Engine.Program); err != nil {
		return nil, place{engine: true, field: "program"}.wrap(err)
	}
	if err := e.checkUser(d.Engine); err != nil {
		return nil, err
	}
	if err := e.readCertificates(d, c); err != nil {
		return nil, err
	}
	return c, nil
}

// validate has HAProxy check a candidate, unless it was the last that it has accepted.
func (e *engine) validate(ctx context.Context, d Desired, c *candidate) error {
	verdict := c.program.path + c.program.version + c.rendering.String()
	for _, path := range sortedKeys(c.certificates) {
		verdict += c.certificates[path].sum
	}
	for _, path := range sortedKeys(c.authorities) {
		verdict += c.authorities[path].sum
	}
	if e.isValidated(verdict) {
		return nil
	}
	if err := validate(ctx, d, e.host, c); err != nil {
		return err
	}
	e.mu.Lock()
	e.validated = verdict
	e.mu.Unlock()
	return nil
}

func (e *engine) isValidated(verdict string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.validated == verdict
}

// findProgram returns HAProxy's program, and queries its version again if its file has changed.
func (e *engine) findProgram(ctx context.Context, configured string) (program, error) {
	e.mu.Lock()
	p := e.program
	e.mu.Unlock()
	if p.isCurrent() && configured == p.configured {
		return p, nil
	}
	p, err := findProgram(ctx, configured)
	if err != nil {
		return p, err
	}
	p.configured = configured
	e.mu.Lock()
	e.program = p
	e.mu.Unlock()
	return p, nil
}

// checkUser returns an error if the host lacks the user that HAProxy switches to.
func (e *engine) checkUser(engine lb.ProxyEngine) error {
	name := cmp.Or(engine.User, lb.DefaultProxyUser)
	if !e.host.Root {
		return nil
	}
	if _, err := user.Lookup(name); err != nil {
		return place{engine: true,
			field: "user"}.wrap(fmt.Errorf(
			"looking up the user that HAProxy runs as: %v; Debian's package haproxy makes the user %q", err,
			lb.DefaultProxyUser))
	}
	return nil
}

// readCertificates reads the certificates for clients, and the authorities that vouch for backends. A certificate that
// has expired is refused, unless it is served already: a change of something else must not wait for a renewal that is
// late.
func (e *engine) readCertificates(d Desired, c *candidate) error {
	for i := range d.Services {
		s := &d.Services[i].Service
		if s.Proxy == nil {
			continue
		}
		for j, path := range s.Proxy.Certificates {
			at := place{service: s.Key(), field: fmt.Sprintf("proxy.certificates[%d]", j)}
			read, err := readCertificate(path)
			if err != nil {
				return at.wrap(err)
			}
			if why := read.served().problem(path, e.now()); why != "" && !e.isServed(path) {
				return at.wrap(fmt.Errorf("%w: %s", ErrCertificate, why))
			}
			c.certificates[path] = read
		}
		if s.Proxy.BackendTLS == lb.BackendTLSVerified && s.Proxy.BackendCA != "" {
			read, err := readAuthorities(s.Proxy.BackendCA)
			if err != nil {
				return place{service: s.Key(), field: "proxy.backend_ca"}.wrap(err)
			}
			c.authorities[s.Proxy.BackendCA] = read
		}
	}
	return nil
}
