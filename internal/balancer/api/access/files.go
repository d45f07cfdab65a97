// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// maxFile bounds each of the files, in bytes.
const maxFile = 1 << 20

// credentials is the content of the files.
type credentials struct {
	certificate tls.Certificate
	path        string
	// authorities is nil where no client certificate is accepted.
	authorities *x509.CertPool
	tokens      tokens
	// stamps are the stamps of the files as they were read.
	stamps [4]stamp
}

// stamp shows whether a file has been replaced or written to.
type stamp struct {
	inode    uint64
	size     int64
	modified time.Time
}

// fileError is an error in the file that a key names.
type fileError struct {
	key string
	err error
}

func (e fileError) Error() string { return "api." + e.key + ": " + e.err.Error() }
func (e fileError) Unwrap() error { return e.err }

// stamps returns the stamps of the files that a configuration names; zero for a missing one.
func stamps(cfg config.API) (all [4]stamp) {
	for i, path := range []string{cfg.Certificate, cfg.Key, cfg.Tokens, cfg.ClientCA} {
		if info, err := os.Stat(path); path != "" && err == nil {
			all[i] = stamp{inodeOf(info), info.Size(), info.ModTime()}
		}
	}
	return all
}

// readCredentials reads the files. Errors: fileError.
func readCredentials(cfg config.API) (*credentials, error) {
	m := &credentials{path: cfg.Certificate, stamps: stamps(cfg)}
	certificate, err := readFile(cfg.Certificate, false)
	if err != nil {
		return nil, fileError{"certificate", err}
	}
	key, err := readFile(cfg.Key, true)
	if err != nil {
		return nil, fileError{"key", err}
	}
	if m.certificate, err = tls.X509KeyPair(certificate, key); err != nil {
		return nil, fileError{"certificate", fmt.Errorf("%s and %s are not a certificate and its key: %w",
			cfg.Certificate, cfg.Key, err)}
	}
	if cfg.ClientCA != "" {
		authorities, err := readFile(cfg.ClientCA, false)
		if err != nil {
			return nil, fileError{"client_ca", err}
		}
		if m.authorities = x509.NewCertPool(); !m.authorities.AppendCertsFromPEM(authorities) {
			return nil, fileError{"client_ca",
				fmt.Errorf("%s has no certificate; it needs those of the authorities, as PEM", cfg.ClientCA)}
		}
	}
	if cfg.Tokens != "" {
		text, err := readFile(cfg.Tokens, true)
		if err == nil {
			m.tokens, err = parseTokens(cfg.Tokens, text)
		}
		if err != nil {
			return nil, fileError{"tokens", err}
		}
	}
	return m, nil
}

// readFile reads a file; only its owner and group may have access to a secret one.
func readFile(path string, secret bool) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); secret && mode&0o027 != 0 {
		return nil, fmt.Errorf(
			"%s has mode %04o: others could read it, or its group change it; run `chmod u=rw,g=r,o= %s`, and replace what they may have read", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d KiB", path, maxFile>>10)
	}
	return text, err
}

// problem names the fault of the server's certificate at a time; "" where there is none.
func (m *credentials) problem(now time.Time) string {
	leaf := m.certificate.Leaf
	const form = "the certificate of the API over TCP (%s) %s %s; clients refuse it: renew it, it is read again then"
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Sprintf(form, m.path, "has expired at", leaf.NotAfter.Local().Format(time.DateTime))
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf(
			"the certificate of the API over TCP (%s) holds only from %s on; clients refuse it until then: is the clock right?", m.path, leaf.NotBefore.Local().Format(time.DateTime))
	case leaf.NotAfter.Sub(leaf.NotBefore) > 2*warnBefore && now.Add(warnBefore).After(leaf.NotAfter):
		return fmt.Sprintf("the certificate of the API over TCP (%s) expires at %s; renew it, it is read again then",
			m.path, leaf.NotAfter.Local().Format(time.DateTime))
	}
	return ""
}

// verify verifies a client's chain of certificates again, as the handshake did: its connection may have outlasted its
// certificate, or the authority's place in the file. Errors: ErrUnknown.
func (m *credentials) verify(certificates []*x509.Certificate) error {
	others := x509.NewCertPool()
	for _, c := range certificates[1:] {
		others.AddCert(c)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{Roots: m.authorities, Intermediates: others,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("%w: the certificate %s is not valid here: %w; use a valid one of an authority in api.client_ca",
			ErrUnknown, certificates[0].Subject, err)
	}
	return nil
}

// inodeOf returns the inode number of a file, by which a replaced file is noticed.
func inodeOf(info fs.FileInfo) uint64 {
	if system, ok := info.Sys().(*syscall.Stat_t); ok {
		return system.Ino
	}
	return 0
}
