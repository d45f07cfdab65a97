// SPDX-License-Identifier: Apache-2.0

package web

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
	"path/filepath"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// certificate is the certificate of a laboratory's TLS servers. It is self-signed, as in the first document (openssl
// genrsa 2048, x509 -days 3650).
type certificate struct {
	// pem has the certificate and its key, in the form that HAProxy and nginx read.
	pem []byte
	// der is the certificate alone (DER), for clients that verify a server's certificate.
	der []byte
}

const (
	// tlsPort is the port of HTTPS.
	tlsPort            = 443
	certificateKeyBits = 2048
	certificateDays    = 3650
	// certificateBefore is how far a machine's clock may be behind.
	certificateBefore = 24 * time.Hour
)

// newCertificate makes a certificate for the VIP and the servers' own addresses, and writes it to the directories of
// the balancer and of the servers, where only root can read its key. The files are removed with the laboratory.
func newCertificate(l *lab.Lab) (*certificate, error) {
	made, err := makeCertificate(l)
	if err == nil {
		err = lab.Each(append([]*lab.Host{l.Balancer}, l.Servers...), func(h *lab.Host) error {
			return h.WriteSecret(made.path(h), made.pem)
		})
	}
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
		NotBefore: now.Add(-certificateBefore), NotAfter: now.AddDate(0, 0, certificateDays),
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
	var text bytes.Buffer
	err = errors.Join(
		pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	)
	return &certificate{pem: text.Bytes(), der: signed}, err
}

// path returns the path of the certificate on a host; empty for nil, which means no TLS.
func (c *certificate) path(h *lab.Host) string {
	if c == nil {
		return ""
	}
	return filepath.Join(h.Dir, "tls.pem")
}

// encrypted reports whether a load of the form uses TLS.
func encrypted(f bench.Form) bool {
	return slices.ContainsFunc(f.Loads, func(l bench.Load) bool { return bench.SettingsOf[Settings](l).TLS })
}
