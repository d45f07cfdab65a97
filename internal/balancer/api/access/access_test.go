// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

const configured = `interface: eth0
services: [{name: web, vip: 192.0.2.100, port: 80, backends: [{name: web01, address: 192.0.2.1}]}]
`

// host is a configuration's files, in a directory of its own.
type host struct {
	dir string
	ca  *testcert.Authority
	cfg *config.Config
	log bytes.Buffer
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{dir: t.TempDir(), ca: testcert.NewAuthority(t)}
	var err error
	if h.cfg, err = config.Parse("jeoul.yaml", []byte(configured)); err != nil {
		t.Fatal(err)
	}
	h.cfg.API = config.API{Certificate: h.path("crt"), Key: h.path("key"), Tokens: h.path("tokens"),
		ClientCA: h.ca.File,
		Clients: []config.APIClient{{Subject: config.Subject{Attribute: "CN", Value: "ci"}, Role: ops.RoleConfigure},
			{Subject: config.Subject{Attribute: "OU", Value: "operators"}, Role: ops.RoleOperate}}}
	h.renew(t, 90*24*time.Hour)
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) renew(t *testing.T, left time.Duration) {
	t.Helper()
	h.ca.Write(t, pkix.Name{CommonName: "lb1"}, left, h.cfg.API.Certificate, h.cfg.API.Key)
}

// token adds one to the file, and returns it.
func (h *host) token(t *testing.T, name string, role ops.Role) string {
	t.Helper()
	secret, entry, err := NewToken(name, role)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(h.cfg.API.Tokens)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if text, err = AddToken(h.cfg.API.Tokens, text, entry); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.cfg.API.Tokens, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return secret
}

func (h *host) guard(t *testing.T) *Guard {
	t.Helper()
	g, err := New(h.cfg, slog.New(slog.NewTextHandler(&h.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// expireCheck has the files looked at with the next question.
func (g *Guard) expireCheck() { g.checkedAt = time.Time{} }

// TestTokens: a token has its role until it is taken out of the file, and a file that cannot be used leaves the
// previous tokens.
func TestTokens(t *testing.T) {
	h := newHost(t)
	read, ci := h.token(t, "grafana", ops.RoleRead), h.token(t, "ci", ops.RoleConfigure)
	g := h.guard(t)
	for secret, want := range map[string]Client{read: {"token grafana", ops.RoleRead},
		ci: {"token ci", ops.RoleConfigure}} {
		if got, err := g.Client(secret, nil); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	for _, wrong := range []string{"", "x", ci + "x", ci[1:], strings.ToLower(ci)} {
		if got, err := g.Client(wrong, nil); !errors.Is(err, ErrUnknown) || got != (Client{}) {
			t.Errorf("token %q: %v, %v, want ErrUnknown", wrong, got, err)
		}
	}

	if err := os.WriteFile(h.cfg.API.Tokens, []byte("tokens: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.expireCheck()
	if _, err := g.Client(ci, nil); err != nil {
		t.Errorf("after a mistake in the file: %v", err)
	}
	if problems := g.Problems(); len(problems) != 1 ||
		!strings.Contains(problems[0], "previous content stays in force: api.tokens: "+h.cfg.API.Tokens+
			":1: tokens:") {
		t.Errorf("problems: %q", problems)
	}
	if err := os.Remove(h.cfg.API.Tokens); err != nil {
		t.Fatal(err)
	}
	other := h.token(t, "other", ops.RoleRead)
	g.expireCheck()
	if _, err := g.Client(ci, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("a token that was taken out: %v, want ErrUnknown", err)
	}
	if _, err := g.Client(other, nil); err != nil || len(g.Problems()) != 0 {
		t.Errorf("a token that was added: %v; problems: %q", err, g.Problems())
	}
}

// TestCertificates: the first subject that fits has the role.
func TestCertificates(t *testing.T) {
	h := newHost(t)
	h.token(t, "x", ops.RoleRead)
	g := h.guard(t)
	tests := map[string]struct {
		subject pkix.Name
		want    Client
		err     error
	}{
		"by name": {pkix.Name{CommonName: "ci", OrganizationalUnit: []string{"operators"}},
			Client{"certificate CN=ci,OU=operators", ops.RoleConfigure}, nil},
		"by unit": {pkix.Name{CommonName: "kim", OrganizationalUnit: []string{"sales", "operators"}},
			Client{"certificate CN=kim,OU=sales+OU=operators", ops.RoleOperate}, nil},
		"neither": {pkix.Name{CommonName: "operators", OrganizationalUnit: []string{"ci"}},
			Client{Name: "certificate CN=operators,OU=ci"}, ErrNoRole},
	}
	for name, test := range tests {
		got, err := g.Client("", h.certificate(t, test.subject, time.Hour))
		if !errors.Is(err, test.err) || got != test.want {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, err, test.want, test.err)
		}
	}
}

// certificate returns a new certificate of a client, with its chain.
func (h *host) certificate(t *testing.T, subject pkix.Name, left time.Duration) []*x509.Certificate {
	t.Helper()
	h.ca.Write(t, subject, left, h.path("client.crt"), h.path("client.key"))
	pair, err := tls.LoadX509KeyPair(h.path("client.crt"), h.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{pair.Leaf}
}

// TestCertificatesLater: a connection stays open, but its certificate counts only while it is valid, and its authority
// is one of the file.
func TestCertificatesLater(t *testing.T) {
	h := newHost(t)
	h.token(t, "x", ops.RoleRead)
	g := h.guard(t)
	certificates := h.certificate(t, pkix.Name{CommonName: "ci"}, time.Hour)
	if _, err := g.Client("", certificates); err != nil {
		t.Error(err)
	}
	expired := h.certificate(t, pkix.Name{CommonName: "ci"}, -time.Hour)
	if _, err := g.Client("", expired); !errors.Is(err, ErrUnknown) ||
		!strings.Contains(err.Error(), "certificate CN=ci is not valid here: ") {
		t.Errorf("a certificate that has expired: %v", err)
	}
	other, err := os.ReadFile(testcert.NewAuthority(t).File)
	if err == nil {
		err = os.WriteFile(h.cfg.API.ClientCA, other, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.expireCheck()
	if _, err := g.Client("", certificates); !errors.Is(err, ErrUnknown) {
		t.Errorf("a certificate of an authority that was taken out: %v, want ErrUnknown", err)
	}
}

// TestRenewed: a renewed certificate is used at once, one that ends is a problem.
func TestRenewed(t *testing.T) {
	h := newHost(t)
	h.token(t, "x", ops.RoleRead)
	g := h.guard(t)
	serial := func() string {
		g.expireCheck()
		cfg, err := g.TLS().GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Certificates[0].Leaf.SerialNumber.String()
	}
	first := serial()
	for _, step := range []struct {
		left time.Duration
		want string
	}{{-time.Hour, "has expired at"}, {24 * time.Hour, "expires at"}, {90 * 24 * time.Hour, ""}} {
		left, want := step.left, step.want
		h.renew(t, left)
		if second := serial(); second == first {
			t.Errorf("%s left: the certificate of before is used", left)
		} else {
			first = second
		}
		if got := strings.Join(g.Problems(), "\n"); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s left: problems %q, want %q", left, got, want)
		}
	}
	if err := os.WriteFile(h.cfg.API.Certificate, []byte("half a cert"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second := serial(); second != first || len(g.Problems()) != 1 {
		t.Errorf("half a file: certificate %s, want %s; problems %q", second, first, g.Problems())
	}
	serial() // it is read again, with the same result
	if n := strings.Count(h.log.String(), "previous content stays in force"); n != 1 {
		t.Errorf("it is logged %d times, want once:\n%s", n, h.log.String())
	}
}

// TestRefusedFiles: a file that cannot be used is refused at its key, with the cure.
func TestRefusedFiles(t *testing.T) {
	tests := map[string]struct {
		corrupt func(h *host) error
		want    string
	}{
		"tokens for all": {func(h *host) error { return os.Chmod(h.cfg.API.Tokens, 0o644) },
			"api.tokens: %s/tokens has mode 0644: others could read it, or its group change it; run `chmod u=rw,g=r,o= %[1]s/tokens`"},
		"tokens of the group": {func(h *host) error { return os.Chmod(h.cfg.API.Tokens, 0o640) }, ""},
		"key for all": {func(h *host) error { return os.Chmod(h.cfg.API.Key, 0o604) },
			"api.key: %s/key has mode 0604"},
		"no key": {func(h *host) error { return os.Remove(h.cfg.API.Key) },
			"api.key: read %s/key: no such file or directory"},
		"another's key": {func(h *host) error { return os.Rename(h.ca.File, h.cfg.API.Certificate) },
			"api.certificate: %s/crt and %[1]s/key are not a certificate and its key"},
		"no authority": {func(h *host) error { return os.WriteFile(h.ca.File, []byte("x"), 0o600) },
			"has no certificate; it needs those of the authorities"},
		"large": {func(h *host) error {
			return os.WriteFile(h.cfg.API.Tokens, make([]byte, maxFile+1), 0o600)
		}, "api.tokens: %s/tokens is larger than 1024 KiB"},
		"mistakes": {func(h *host) error {
			return os.WriteFile(h.cfg.API.Tokens, []byte("tokens:\n  - {name: a b, role: root, sha256: 12}\n"), 0o600)
		}, `tokens:2: tokens[0].name: "a b" is not 1 to 64 letters`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.token(t, "x", ops.RoleRead)
			if err := test.corrupt(h); err != nil {
				t.Fatal(err)
			}
			_, err := New(h.cfg, slog.New(slog.DiscardHandler))
			want := test.want
			if strings.Contains(want, "%") {
				want = fmt.Sprintf(want, h.dir)
			}
			if test.want == "" && err != nil || test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}
