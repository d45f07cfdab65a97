// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// Purpose is what the key of Options is derived for.
const Purpose = "handover"

// identity returns what both ends of a connection prove to be: the holder of the members' key, by a key pair that follows from a
// key of ed25519.SeedSize bytes. TLS 1.3 has fresh secrets for each connection, so that nothing can be replayed or read later by
// who comes by the key. Certificates carry the public key only: names and times mean nothing, for members' clocks may be apart.
func identity(key []byte) (*tls.Config, error) {
	if len(key) != ed25519.SeedSize {
		return nil, fmt.Errorf("making the members' identity: the key has %d bytes, and %d are needed", len(key), ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(key)
	public := private.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "jeoul member"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("making the members' identity: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert,
		// The chain says nothing; VerifyConnection compares the key, which the handshake has proven to be there.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) != 1 {
				return ErrStranger
			}
			their, is := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !is || subtle.ConstantTimeCompare(their, public) != 1 {
				return ErrStranger
			}
			return nil
		},
	}, nil
}
