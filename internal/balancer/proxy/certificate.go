// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxPEM bounds a certificate's file, in bytes.
const maxPEM = 1 << 20

// certificate is a file with a certificate, its chain and its key.
type certificate struct {
	path string
	// sum is a hash of the file's contents.
	sum  string
	pem  []byte
	leaf *x509.Certificate
}

// readCertificate reads a PEM file for HAProxy to serve. Its error names the fault and the remedy.
func readCertificate(path string) (*certificate, error) {
	contents, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrCertificate, err)
	}
	sum := sha256.Sum256(contents)
	c := &certificate{path: path, sum: hex.EncodeToString(sum[:])}
	var key any
	for rest := contents; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if err := c.addBlock(block, &key); err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrCertificate, path, err)
		}
	}
	switch {
	case c.leaf == nil && key == nil:
		err = errors.New(
			"it has neither a certificate nor a key; write both into it, as PEM: the certificate first, its chain, and the key")
	case c.leaf == nil:
		err = errors.New("it has a key, but no certificate")
	case key == nil:
		err = errors.New("it has no private key; append the key to the certificate and its chain, as PEM")
	case !matches(c.leaf, key):
		err = fmt.Errorf(
			"its key does not belong to its first certificate (%s); the server's own certificate must come first, and then its chain", c.leaf.Subject)
	default:
		return c, nil
	}
	return nil, fmt.Errorf("%w: %s: %v", ErrCertificate, path, err)
}

// authorities is a file of the authorities that vouch for backends.
type authorities struct {
	// sum is a hash of the file's contents.
	sum      string
	contents []byte
}

// readAuthorities reads a PEM file of authorities for HAProxy to verify backends by.
func readAuthorities(path string) (*authorities, error) {
	contents, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("reading the authorities that vouch for backends: %v", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(contents) {
		return nil, fmt.Errorf("reading the authorities that vouch for backends: %s has no certificate; "+
			"write the authorities' into it, as PEM", path)
	}
	sum := sha256.Sum256(contents)
	return &authorities{sum: hex.EncodeToString(sum[:]), contents: contents}, nil
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	contents, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err == nil && len(contents) > maxPEM {
		err = fmt.Errorf("%s has more than %d bytes", path, maxPEM)
	}
	return contents, err
}

// addBlock adds a block of the file.
func (c *certificate) addBlock(block *pem.Block, key *any) (err error) {
	switch block.Type {
	case "CERTIFICATE":
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("reading a certificate: %v", err)
		}
		if c.leaf == nil {
			c.leaf = parsed
		}
	case "PRIVATE KEY":
		*key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		*key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		*key, err = x509.ParseECPrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return errors.New("its key needs a passphrase, which is asked for by nothing here; store it without one")
	}
	if err != nil {
		return fmt.Errorf("reading the private key: %v", err)
	}
	// The runtime socket takes a file until the first empty line: it gets the blocks alone.
	c.pem = append(c.pem, bytes.TrimSpace(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))...)
	c.pem = append(c.pem, '\n')
	return nil
}

// matches reports whether a key is the certificate's.
func matches(leaf *x509.Certificate, key any) bool {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return false
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(leaf.PublicKey)
}

// served returns the properties of a certificate that are saved.
func (c *certificate) served() served {
	return served{Sum: c.sum, Subject: c.leaf.Subject.String(), NotBefore: c.leaf.NotBefore, NotAfter: c.leaf.NotAfter}
}

// problem names the fault of a certificate's validity, and the remedy; empty: there is none.
func (s served) problem(path string, now time.Time) string {
	switch {
	case now.After(s.NotAfter):
		return fmt.Sprintf("the certificate %s (%s) expired at %s; renew it", path, s.Subject,
			s.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(s.NotBefore):
		return fmt.Sprintf("the certificate %s (%s) is valid from %s on only; see whether the clock is right", path,
			s.Subject, s.NotBefore.UTC().Format(time.RFC3339))
	}
	return ""
}
