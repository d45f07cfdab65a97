// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testcert"
)

// writePEM writes a certificate, its chain and its key as a file.
func writePEM(t *testing.T, path string, config *tls.Config) {
	t.Helper()
	if err := os.WriteFile(path, encoded(t, config), 0o600); err != nil {
		t.Fatal(err)
	}
}

func encoded(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	c := config.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
}

func TestReadCertificate(t *testing.T) {
	t.Parallel()
	ca := testcert.NewAuthority(t)
	good, other := string(encoded(t, ca.Config(t, "a.test", time.Hour))),
		string(encoded(t, ca.Config(t, "b.test", time.Hour)))
	half := strings.Index(good, "-----BEGIN PRIVATE KEY")
	for name, c := range map[string]struct{ contents, want string }{
		"good":        {"a comment\n\n" + good, ""},
		"key first":   {good[half:] + good[:half], ""},
		"chain":       {good[:half] + other[:strings.Index(other, "-----BEGIN PRIVATE KEY")] + good[half:], ""},
		"no key":      {good[:half], "has no private key"},
		"another key": {good[:half] + other[strings.Index(other, "-----BEGIN PRIVATE KEY"):], "does not belong to"},
		"key alone":   {good[half:], "but no certificate"},
		"nothing":     {"", "neither a certificate nor a key"},
		"passphrase": {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
			"passphrase"},
		"broken": {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "reading a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "c.pem")
			if err := os.WriteFile(path, []byte(c.contents), 0o600); err != nil {
				t.Fatal(err)
			}
			read, err := readCertificate(path)
			if c.want == "" {
				if err != nil || strings.Contains(string(read.pem), "\n\n") ||
					strings.Contains(string(read.pem), "comment") {
					t.Errorf("%v, %+v", err, read)
				}
				return
			}
			if !errors.Is(err, ErrCertificate) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := readCertificate("/nowhere/c.pem"); !errors.Is(err, ErrCertificate) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestReadVersion(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\n": "2.6.12-1+deb12u4",
		"HA-Proxy version 2.6-dev1 2022\n":                                     "2.6-dev1",
		"HAProxy version 3.0.11-1 2025\n":                                      "3.0.11-1",
		"HA-Proxy version 2.4.22-0 2022/01/01\n":                               "old",
		"HA-Proxy version 1.8.30 2021/04/12\n":                                 "old",
		"nginx version: nginx/1.22.1":                                          "",
	} {
		got, err := readVersion([]byte(output))
		switch {
		case want == "old":
			if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "apt-get install haproxy") {
				t.Errorf("%q: %v", output, err)
			}
		case want == "":
			if !errors.Is(err, ErrNoProgram) {
				t.Errorf("%q: %v", output, err)
			}
		case got != want || err != nil:
			t.Errorf("%q: %q, %v", output, got, err)
		}
	}
}
