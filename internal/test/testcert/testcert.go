// SPDX-License-Identifier: Apache-2.0

// Package testcert makes certificate authorities and certificates for tests.
package testcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for tests.
type Authority struct {
	// File is the path of the authority's certificate, as PEM.
	File string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority, which is removed after the test.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem")}
	a.key = newKey(t)
	der := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Config returns a server's configuration, with a certificate for name and 127.0.0.1 that expires after left.
func (a *Authority) Config(t *testing.T, name string, left time.Duration) *tls.Config {
	t.Helper()
	der, key := a.leaf(t, pkix.Name{}, name, left)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// RSAConfig returns a server's configuration as Config does, with an RSA key.
func (a *Authority) RSAConfig(t *testing.T, name string, left time.Duration) *tls.Config {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der := a.certify(t, pkix.Name{}, name, left, &key.PublicKey)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// Write makes a certificate for 127.0.0.1 with a subject, which expires after left. It writes the certificate and its
// key, as PEM, to the two paths.
func (a *Authority) Write(t *testing.T, subject pkix.Name, left time.Duration, certificate, key string) {
	t.Helper()
	der, private := a.leaf(t, subject, "localhost", left)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, "PRIVATE KEY", encoded)
	write(t, certificate, "CERTIFICATE", der)
}

func (a *Authority) leaf(t *testing.T, subject pkix.Name, name string, left time.Duration) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key := newKey(t)
	return a.certify(t, subject, name, left, &key.PublicKey), key
}

// certify signs a certificate for a server's or a client's key.
func (a *Authority) certify(t *testing.T, subject pkix.Name, name string, left time.Duration,
	key crypto.PublicKey,
) []byte {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return a.sign(t, &x509.Certificate{
		SerialNumber: serial, Subject: subject, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-1000 * time.Hour), NotAfter: time.Now().Add(left),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(t *testing.T, c *x509.Certificate, key crypto.PublicKey) []byte {
	t.Helper()
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func write(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
