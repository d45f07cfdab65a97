// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// Purpose is the purpose for which the keys of Options are derived.
const Purpose = "handover"

// identity returns the TLS configuration by which both ends of a connection prove that they hold a key of the members:
// by a key pair derived from a key of ed25519.SeedSize bytes. It proves the first of several keys, and accepts each.
// TLS 1.3 has fresh secrets for each connection, so that a stolen key neither decrypts nor replays earlier connections.
// Certificates carry the public key only: names and times are ignored, because members' clocks may differ.
func identity(keys ...[]byte) (*tls.Config, error) {
	if len(keys) == 0 {
		return nil, errors.New("making the members' identity: there is no key")
	}
	accepted := make([]ed25519.PublicKey, len(keys))
	for i, key := range keys {
		if len(key) != ed25519.SeedSize {
			return nil, fmt.Errorf("making the members' identity: the key has %d bytes, and %d are needed", len(key),
				ed25519.SeedSize)
		}
		accepted[i] = ed25519.NewKeyFromSeed(key).Public().(ed25519.PublicKey)
	}
	private := ed25519.NewKeyFromSeed(keys[0])
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "jeoul member"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, accepted[0], private)
	if err != nil {
		return nil, fmt.Errorf("making the members' identity: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert,
		// The chain is not verified; VerifyConnection compares the key, whose possession the handshake has proven.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			their := peerKey(state)
			if !slices.ContainsFunc(accepted, func(own ed25519.PublicKey) bool {
				return subtle.ConstantTimeCompare(their, own) == 1
			}) {
				return ErrUntrusted
			}
			return nil
		},
	}, nil
}

// peerKey returns the key that the other end of a connection has proven; nil if it is none of the members'.
func peerKey(state tls.ConnectionState) ed25519.PublicKey {
	if len(state.PeerCertificates) != 1 {
		return nil
	}
	their, _ := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	return their
}

// PrepareKeys returns a function that changes the exchange to other keys: it proves the first of them, and accepts
// each. Connections go on, except those whose other end has proven a key that is no longer accepted: it connects again,
// and is sent all flows. The error says that the keys cannot be used.
func (e *Exchange) PrepareKeys(keys [][]byte) (use func(), err error) {
	config, err := identity(keys...)
	if err != nil {
		return nil, err
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.tls = config
		for conn, state := range e.authenticated {
			if config.VerifyConnection(state) != nil {
				conn.Close()
			}
		}
	}, nil
}

// identity is the TLS configuration of new connections.
func (e *Exchange) identity() *tls.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tls
}

// authenticate records the key that the other end of a connection has proven; false if it is no longer accepted.
// forgetConn removes the record.
func (e *Exchange) authenticate(conn *tls.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := conn.ConnectionState()
	e.authenticated[conn.NetConn()] = state
	return e.tls.VerifyConnection(state) == nil
}

// forgetConn removes the record of a connection that has ended.
func (e *Exchange) forgetConn(conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.authenticated, conn)
}
