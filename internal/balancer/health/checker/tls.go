// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
)

// cipherSuites are the suites that are offered for TLS 1.2: all but those that common clients refuse, too. A check asks
// whether clients are served, so that it also offers those without forward secrecy, which crypto/tls leaves out.
var cipherSuites = func() (ids []uint16) {
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if !strings.Contains(suite.Name, "_RC4_") && !strings.Contains(suite.Name, "_3DES_") {
			ids = append(ids, suite.ID)
		}
	}
	return ids
}()

// tls completes a handshake.
func (a *ask) tls() health.Answer {
	conn, err := a.dial("tcp")
	if err != nil {
		return a.answerOf(err)
	}
	defer finish(conn)
	secured, answer := a.handshake(conn, "")
	if secured == nil {
		return answer
	}
	secured.CloseWrite() // says close_notify; finish ends the stream
	return answer
}

// handshake makes conn a TLS connection. Without one, the answer says why; with one, it is that of a check that passed,
// with a warning of the certificate's expiry.
func (a *ask) handshake(conn net.Conn, protocol string) (*tls.Conn, health.Answer) {
	config := &tls.Config{ServerName: a.serverName(), InsecureSkipVerify: true, CipherSuites: cipherSuites}
	if protocol != "" {
		config.NextProtos = []string{protocol}
	}
	if want := a.check.TLS; want != nil && want.Verify {
		config.InsecureSkipVerify = false
		var err error
		if config.RootCAs, err = authorities.pool(want.CA); err != nil {
			return nil, trouble(err)
		}
	}
	secured := tls.Client(conn, config)
	if err := secured.Handshake(); err != nil {
		return nil, a.evaluateTLS(err)
	}
	state := secured.ConnectionState()
	answer := health.Pass(tls.VersionName(state.Version))
	if want := a.check.TLS; want != nil && want.Expiry > 0 && len(state.PeerCertificates) > 0 {
		answer.Reason = expires(state.PeerCertificates[0].NotAfter, want.Expiry)
	}
	a.step("tls", fmt.Sprintf("%s, %s", answer.Text, tls.CipherSuiteName(state.CipherSuite)), false)
	return secured, answer
}

// serverName is the name that is sent and verified: the one configured, or that of the request.
func (a *ask) serverName() string {
	if a.check.TLS != nil && a.check.TLS.ServerName != "" {
		return a.check.TLS.ServerName
	}
	if a.check.HTTP != nil && a.check.HTTP.Host != "" {
		host := a.check.HTTP.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		return host
	}
	return a.endpoint.Address.Unmap().WithZone("").String()
}

// expires warns of a certificate's end that is near or past.
func expires(end time.Time, near time.Duration) string {
	left := time.Until(end)
	day := end.UTC().Format(time.DateOnly)
	switch {
	case left > near:
		return ""
	case left <= 0:
		return "has a certificate that expired on " + day
	}
	return fmt.Sprintf("has a certificate that expires on %s, in %s", day, days(left))
}

func days(d time.Duration) string {
	if n := int(d / (24 * time.Hour)); n != 1 {
		return fmt.Sprintf("%d days", n)
	}
	return "1 day"
}

// evaluateTLS makes an answer of why a handshake failed.
func (a *ask) evaluateTLS(err error) health.Answer {
	var (
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		header  tls.RecordHeaderError
		remote  *net.OpError
	)
	switch {
	case errors.As(err, &name):
		return health.Fail("certificate of another name", "has a certificate that is not for "+plain(name.Host)+
			" but for "+names(name.Certificate))
	case errors.As(err, &unknown):
		return health.Fail("certificate of an unknown authority", "has a certificate whose authority is not known")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		if time.Now().Before(invalid.Cert.NotBefore) {
			return health.Fail("certificate not yet valid", "has a certificate that is not valid before "+
				invalid.Cert.NotBefore.UTC().Format(time.DateTime))
		}
		return health.Fail("certificate expired", "has a certificate that expired on "+
			invalid.Cert.NotAfter.UTC().Format(time.DateOnly))
	case errors.As(err, &invalid):
		return health.Fail("certificate invalid", "has a certificate that is not valid: "+plain(invalid.Error()))
	case errors.As(err, &header):
		return health.Fail("no TLS", "does not speak TLS")
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert, as crypto/tls wraps it
		return health.Fail("TLS alert", "refuses the TLS handshake: "+plain(remote.Err.Error()))
	case strings.HasPrefix(err.Error(), "tls: "):
		return health.Fail("TLS failed", "fails the TLS handshake: "+plain(err.Error()))
	}
	return a.answerOf(err)
}

// names lists the names and addresses of a certificate, the first few where there are many.
func names(c *x509.Certificate) string {
	all := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, addr.String())
		}
	}
	if len(all) == 0 {
		return "no name at all"
	}
	const most = 3
	if len(all) > most {
		return plain(fmt.Sprintf("%s and %d others", strings.Join(all[:most], ", "), len(all)-most))
	}
	return plain(strings.Join(all, ", "))
}

// authorities are the authorities that were read from files, kept until a file changes.
var authorities authorityCache

type authorityCache struct {
	mu    sync.Mutex
	files map[string]authorityFile
}

type authorityFile struct {
	pool     *x509.CertPool
	modified time.Time
	size     int64
}

// pool returns the authorities in a file; without a file nil, which stands for the host's.
func (c *authorityCache) pool(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("reading certificate authorities: %w", err)
	}
	if known, ok := c.files[file]; ok && known.size == info.Size() && known.modified.Equal(info.ModTime()) {
		return known.pool, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	if c.files == nil {
		c.files = map[string]authorityFile{}
	}
	c.files[file] = authorityFile{pool: pool, modified: info.ModTime(), size: info.Size()}
	return pool, nil
}
