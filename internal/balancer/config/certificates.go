// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// errNoAuthorities is the error of a file of authorities that has none.
var errNoAuthorities = errors.New("there is no certificate in it; write the authorities' as PEM")

// CheckCertificates reports the files of the services' certificates and authorities that a proxy cannot use: unreadable
// files, files without a certificate or its key, or with another certificate's key. It warns of expired certificates,
// which a proxy still serves, and returns the paths of those that cannot be used. It reads the files by read: this
// package does no I/O.
func (c *Config) CheckCertificates(read func(path string) ([]byte, error), now time.Time) (problems,
	warnings yamlfile.Problems, unusable map[string]bool) {
	known := map[string]fileResult{}
	unusable = map[string]bool{}
	look := func(field, path string, check func([]byte, time.Time) fileResult) {
		result, done := known[path]
		if !done {
			if data, err := read(path); err != nil {
				result.err = err
			} else {
				result = check(data, now)
			}
			known[path] = result
		}
		switch {
		case result.err != nil:
			problems = append(problems, c.At(field, "%s: %v", path, result.err))
			unusable[path] = true
		case result.warning != "":
			warnings = append(warnings, c.At(field, "%s: %s", path, result.warning))
		}
	}
	for i, s := range c.Services {
		if !s.Mode.Proxied() || s.Proxy == nil {
			continue
		}
		for k, path := range s.Proxy.Certificates {
			look(yamlfile.Element(proxyField(i, "certificates"), k), path, checkCertificate)
		}
		if path := s.Proxy.BackendCA; path != "" {
			look(proxyField(i, "backend_ca"), path, checkAuthorities)
		}
	}
	return problems, warnings, unusable
}

// fileResult is the error or the warning about a file's content.
type fileResult struct {
	err     error
	warning string
}

// checkCertificate checks the content of a file that is to have a certificate, its chain and its key.
func checkCertificate(data []byte, now time.Time) fileResult {
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return fileResult{err: fmt.Errorf(
			"%w; a file has a certificate, those between it and its authority, and its private key, all as PEM", err)}
	}
	leaf := pair.Leaf
	switch {
	case now.After(leaf.NotAfter):
		return fileResult{warning: fmt.Sprintf("the certificate of %s has expired at %s; renew it", nameOf(leaf),
			leaf.NotAfter.Format(time.DateTime))}
	case now.Before(leaf.NotBefore):
		return fileResult{warning: fmt.Sprintf(
			"the certificate of %s is not valid before %s; is this host's clock right?", nameOf(leaf),
			leaf.NotBefore.Format(time.DateTime))}
	}
	return fileResult{}
}

// nameOf returns the name of a certificate for messages.
func nameOf(leaf *x509.Certificate) string {
	if len(leaf.DNSNames) > 0 {
		return leaf.DNSNames[0]
	}
	return leaf.Subject.CommonName
}

func checkAuthorities(data []byte, _ time.Time) fileResult {
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return fileResult{err: errNoAuthorities}
	}
	return fileResult{}
}
