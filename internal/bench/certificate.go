// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/lab"
)

// certificate is what a laboratory's TLS servers show: one that signed itself, as in
// the first document (openssl genrsa 2048, x509 -days 3650).
type certificate struct {
	// path is a file with the certificate and its key (PEM), as HAProxy and nginx take
	// them.
	path string
	// roots hold it, for those who check what a server shows.
	roots *x509.CertPool
}

const (
	// tlsPort is the port of HTTPS.
	tlsPort            = 443
	certificateKeyBits = 2048
	certificateDays    = 3650
)

// newCertificate makes one for the VIP and the servers' own addresses, in the
// laboratory's directory, with which it goes.
func newCertificate(l *lab.Lab) (*certificate, error) {
	made, err := makeCertificate(l)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return made, nil
}

func makeCertificate(l *lab.Lab) (*certificate, error) {
	key, err := rsa.GenerateKey(rand.Reader, certificateKeyBits)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "jeoul laboratory"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, certificateDays),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		IPAddresses: []net.IP{l.VIP4.AsSlice()},
	}
	for _, server := range l.Servers {
		template.IPAddresses = append(template.IPAddresses, server.IPv4.AsSlice())
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(signed)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = errors.Join(
		pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	)
	c := &certificate{path: filepath.Join(l.Dir, "tls.pem"), roots: x509.NewCertPool()}
	c.roots.AddCert(parsed)
	return c, errors.Join(err, os.WriteFile(c.path, text.Bytes(), 0o600))
}

// pem is the path of the file; empty for nil, which stands for no TLS.
func (c *certificate) pem() string {
	if c == nil {
		return ""
	}
	return c.path
}

// encrypted says whether a load of the form is over TLS.
func (f Form) encrypted() bool {
	for _, l := range f.Loads {
		if l.TLS {
			return true
		}
	}
	return false
}
