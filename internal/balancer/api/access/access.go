// SPDX-License-Identifier: Apache-2.0

// Package access authenticates clients of the API over TCP and determines their roles: it reads the server's
// certificate, the authorities of client certificates and the file of tokens, and reads them again when they change.
package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Errors that callers may test for.
var (
	// ErrUnknown: a client has not authenticated.
	ErrUnknown = errors.New("credentials are needed")
	// ErrNoRole: an authenticated client has no role.
	ErrNoRole = errors.New("no role")
)

// Client is the client of a request.
type Client struct {
	// Name is for people to read, as in "token ci" or "certificate CN=ci".
	Name string
	Role ops.Role
}

// checkInterval is the interval of checks of whether files have changed.
const checkInterval = time.Second

// warnBefore is the time before a certificate's expiry from which it is a problem.
const warnBefore = 7 * 24 * time.Hour

// Guard knows the roles of clients.
type Guard struct {
	log *slog.Logger

	mu      sync.Mutex
	cfg     config.API
	current *credentials
	// checkedAt is the time of the last check of the files, and readError the error of reading them again; nil: there
	// was none.
	checkedAt time.Time
	readError error
}

// New reads the files that a configuration names. Errors: a yamlfile.Problem at the key of
// the file that cannot be used.
func New(cfg *config.Config, log *slog.Logger) (*Guard, error) {
	g := &Guard{log: log}
	use, err := g.Prepare(cfg)
	if err == nil {
		use()
	}
	return g, err
}

// Prepare reads the files that another configuration names; use puts them in force. Errors: those of New; then nothing
// was changed.
func (g *Guard) Prepare(cfg *config.Config) (use func(), err error) {
	held, err := readCredentials(cfg.API)
	var at fileError
	if errors.As(err, &at) {
		return nil, cfg.At("api."+at.key, "%v", at.err)
	}
	if err != nil {
		return nil, err
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.cfg, g.checkedAt = cfg.API, time.Now()
		g.setMaterial(held)
	}, nil
}

// setMaterial puts the files' content in force.
func (g *Guard) setMaterial(held *credentials) {
	g.current, g.readError = held, nil
	if problem := held.problem(time.Now()); problem != "" {
		g.log.Warn(problem)
	}
}

// currentCredentials returns the content of the files, read again if they have changed. If they cannot be read, the
// previous content stays valid.
func (g *Guard) currentCredentials() *credentials {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if since := now.Sub(g.checkedAt); since >= 0 && since < checkInterval {
		return g.current
	}
	g.checkedAt = now
	if stamps(g.cfg) == g.current.stamps && g.readError == nil {
		return g.current
	}
	held, err := readCredentials(g.cfg)
	if err == nil {
		g.log.Info("read the changed files of the API over TCP")
		g.setMaterial(held)
		return g.current
	}
	err = fmt.Errorf("reading the files of the API over TCP, whose previous content stays in force: %w", err)
	if g.readError == nil || g.readError.Error() != err.Error() {
		g.log.Warn(err.Error())
	}
	g.readError = err
	return g.current
}

// Problems returns the faults that need a person's attention, a line each: files that cannot be read, and a certificate
// that expires.
func (g *Guard) Problems() []string {
	problem := g.currentCredentials().problem(time.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	var lines []string
	if g.readError != nil {
		lines = append(lines, g.readError.Error())
	}
	if problem != "" {
		lines = append(lines, problem)
	}
	return lines
}

// TLS returns the server's side of connections: TLS 1.2 and later, with the certificate and the authorities of this
// moment. HTTP/2 is not offered, so that bounds on connections also bound requests.
func (g *Guard) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			held := g.currentCredentials()
			cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
				Certificates: []tls.Certificate{held.certificate}}
			if held.authorities != nil {
				cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, held.authorities
			}
			return cfg, nil
		},
	}
}

// Client returns the client of a request, by its token or, without one, by the certificate of its connection. Errors:
// ErrUnknown, ErrNoRole.
func (g *Guard) Client(token string, certificates []*x509.Certificate) (Client, error) {
	held := g.currentCredentials()
	if token != "" {
		return held.tokens.clientOf(token)
	}
	if len(certificates) == 0 || held.authorities == nil {
		return Client{}, fmt.Errorf("%w: send a token (Authorization: Bearer TOKEN), or use a client certificate",
			ErrUnknown)
	}
	if err := held.verify(certificates); err != nil {
		return Client{}, err
	}
	g.mu.Lock()
	clients := g.cfg.Clients
	g.mu.Unlock()
	return certificateRole(certificates[0], clients)
}

// Bind returns a context for a request of a client, which also ends when the request's credentials no longer give that
// client its role: a stream must not outlast them. Cancel it when the request has been answered.
func (g *Guard) Bind(request context.Context, client Client, token string,
	certificates []*x509.Certificate) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(request)
	var check func()
	check = func() {
		if ctx.Err() != nil {
			return
		}
		now, err := g.Client(token, certificates)
		if err != nil || now.Name != client.Name || !now.Role.Includes(client.Role) {
			cancel()
			return
		}
		time.AfterFunc(checkInterval, check)
	}
	first := time.AfterFunc(checkInterval, check) // most requests are answered before
	return ctx, func() {
		first.Stop()
		cancel()
	}
}

// certificateRole finds the role of a certificate's subject.
func certificateRole(certificate *x509.Certificate, clients []config.APIClient) (Client, error) {
	subject := certificate.Subject
	name := "certificate " + subject.String()
	for _, c := range clients {
		if c.Subject.Attribute == "CN" && c.Subject.Value == subject.CommonName ||
			c.Subject.Attribute == "OU" && slices.Contains(subject.OrganizationalUnit, c.Subject.Value) {
			return Client{name, c.Role}, nil
		}
	}
	return Client{Name: name}, fmt.Errorf("%w: no subject in api.clients fits %s; add its CN or one of its OUs there",
		ErrNoRole, name)
}
