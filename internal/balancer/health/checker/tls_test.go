// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

// serveTLS runs a server that completes handshakes and waits for the client's end.
func serveTLS(t *testing.T, config *tls.Config, ended chan<- error) netip.AddrPort {
	return serve(t, "127.0.0.1:0", func(c net.Conn) {
		s := tls.Server(c, config)
		if s.Handshake() == nil {
			_, err := s.Read(make([]byte, 1))
			if ended != nil {
				ended <- err
			}
		}
	})
}

func TestTLS(t *testing.T) {
	ca, other := testcert.NewAuthority(t), testcert.NewAuthority(t)
	const day = 24 * time.Hour
	for _, c := range []struct {
		name    string
		left    time.Duration
		want    lb.TLSCheck
		outcome health.Outcome
		words   string
	}{
		{"not verified", 90 * day, lb.TLSCheck{}, health.Passed, "TLS 1.3"},
		{"verified", 90 * day, lb.TLSCheck{Verify: true, CA: ca.File, ServerName: "www.example.com"}, health.Passed,
			"TLS 1.3"},
		{"verified by its address", 90 * day, lb.TLSCheck{Verify: true, CA: ca.File}, health.Passed, "TLS 1.3"},
		{"another name", 90 * day, lb.TLSCheck{Verify: true, CA: ca.File, ServerName: "api.example.com"}, health.Failed,
			"has a certificate that is not for api.example.com but for www.example.com, 127.0.0.1"},
		{"another authority", 90 * day, lb.TLSCheck{Verify: true, CA: other.File}, health.Failed,
			"whose authority is not known"},
		{"the host's authorities", 90 * day, lb.TLSCheck{Verify: true}, health.Failed, "whose authority is not known"},
		{"expired", -day, lb.TLSCheck{Verify: true, CA: ca.File}, health.Failed, "has a certificate that expired on "},
		{"no authorities", 90 * day, lb.TLSCheck{Verify: true, CA: "/nonexistent"}, health.NoEvidence,
			"reading certificate authorities"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := serveTLS(t, ca.Config(t, "www.example.com", c.left), nil)
			expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently, TLS: &c.want}), c.outcome, c.words)
		})
	}
}

func TestTLSWarnsOfExpiry(t *testing.T) {
	ca := testcert.NewAuthority(t)
	const day = 24 * time.Hour
	for _, c := range []struct {
		left  time.Duration
		words string
	}{
		{90 * day, ""}, {6*day + time.Hour, "has a certificate that expires on " +
			time.Now().Add(6*day+time.Hour).UTC().Format(time.DateOnly) + ", in 6 days"},
		{day + time.Hour, "in 1 day"}, {-time.Hour, "has a certificate that expired on "},
	} {
		to := serveTLS(t, ca.Config(t, "www.example.com", c.left), nil)
		got := check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently, TLS: &lb.TLSCheck{Expiry: 14 * day}})
		if got.Outcome != health.Passed || (got.Reason == "") != (c.words == "") {
			t.Errorf("%v left: %+v", c.left, got)
		}
		got.Text = got.Reason
		expect(t, got, health.Passed, c.words)
	}
}

func TestTLSBadServers(t *testing.T) {
	to := serve(t, "127.0.0.1:0", func(c net.Conn) {
		c.Write([]byte("220 mail.example.com ESMTP\r\n"))
		io.Copy(io.Discard, c)
	})
	expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently}), health.Failed, "does not speak TLS")
	to = serve(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(io.Discard, c) })
	expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: 200 * time.Millisecond}), health.Failed,
		"does not answer within 200ms")
	to = serve(t, "127.0.0.1:0", func(c net.Conn) { c.Read(make([]byte, 4096)) })
	expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently}), health.Failed,
		"closes the connection before it answers")
	to = serveTLS(t, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10,
		Certificates: testcert.NewAuthority(t).Config(t, "x", time.Hour).Certificates}, nil)
	expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently}), health.Failed, "TLS handshake")
}

// TestTLSOldSuites: a server whose suites have no forward secrecy, as old appliances have, serves its clients, and
// passes; also where its certificate is verified.
func TestTLSOldSuites(t *testing.T) {
	ca := testcert.NewAuthority(t)
	config := ca.RSAConfig(t, "www.example.com", time.Hour)
	config.MaxVersion = tls.VersionTLS12
	for _, suite := range []uint16{tls.TLS_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_128_CBC_SHA,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA256} {
		config.CipherSuites = []uint16{suite}
		to := serveTLS(t, config, nil)
		for _, want := range []*lb.TLSCheck{nil, {Verify: true, CA: ca.File}} {
			expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently, TLS: want}), health.Passed, "TLS 1.2")
		}
	}
	config.CipherSuites = []uint16{tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA}
	to := serveTLS(t, config, nil) // clients refuse these
	expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently}), health.Failed, "TLS handshake")
}

func TestTLSEndsWithoutReset(t *testing.T) {
	ended := make(chan error, 1)
	to := serveTLS(t, testcert.NewAuthority(t).Config(t, "www.example.com", time.Hour), ended)
	expect(t, check(t, to, lb.Check{Type: lb.CheckTLS, Timeout: patiently}), health.Passed, "TLS 1.3")
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the server read %v, expected the end of the stream", err)
	}
}

func TestHTTPS(t *testing.T) {
	ca := testcert.NewAuthority(t)
	secure := web(t, "127.0.0.1:0", ca)
	for _, h2 := range []bool{false, true} {
		want := httpCheck(lb.HTTPCheck{Path: "/healthz", Host: "www.example.com", HTTP2: h2,
			Body: "GET www.example.com HTTP/"})
		want.TLS = &lb.TLSCheck{Verify: true, CA: ca.File, Expiry: 24 * time.Hour * 365}
		got := check(t, secure, want)
		expect(t, got, health.Passed, "status 200")
		got.Text = got.Reason
		expect(t, got, health.Passed, "has a certificate that expires on")
		want.HTTP.Host = "api.example.com"
		expect(t, check(t, secure, want), health.Failed, "not for api.example.com")
		want.TLS = nil
		expect(t, check(t, secure, want), health.Failed, "")
	}
	h1 := serve(t, "127.0.0.1:0", func(c net.Conn) { tls.Server(c, ca.Config(t, "x", time.Hour)).Handshake() })
	want := httpCheck(lb.HTTPCheck{HTTP2: true})
	want.TLS = &lb.TLSCheck{}
	expect(t, check(t, h1, want), health.Failed, "does not offer HTTP/2")
}
