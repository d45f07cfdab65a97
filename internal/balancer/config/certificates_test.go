// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testcert"
)

// TestCheckCertificates: a file that cannot be served is reported at its field, and one that has expired is warned of.
func TestCheckCertificates(t *testing.T) {
	ca, dir := testcert.NewAuthority(t), t.TempDir()
	made := func(left time.Duration) (certificate, key []byte) {
		t.Helper()
		paths := []string{filepath.Join(dir, "crt"), filepath.Join(dir, "key")}
		ca.Write(t, pkix.Name{CommonName: "localhost"}, left, paths[0], paths[1])
		texts := make([][]byte, 2)
		for i, path := range paths {
			var err error
			if texts[i], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		return texts[0], texts[1]
	}
	certificate, key := made(time.Hour)
	other, _ := made(time.Hour)
	old, oldKey := made(-time.Hour)
	authority, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	join := func(texts ...[]byte) string {
		all := ""
		for _, text := range texts {
			all += string(text)
		}
		return all
	}
	files := map[string]string{"/good": join(certificate, authority, key), "/first": join(key, certificate),
		"/old":   join(old, oldKey),
		"/nokey": join(certificate), "/mixed": join(other, key), "/text": "hello", "/ca": join(authority)}
	cfg, err := Parse("f",
		[]byte(proxied("proxy:", "  certificates: [/good, /first, /missing, /old, /nokey, /mixed, /text]",
			"  backend_tls: verify", "  backend_ca: /text")))
	if err != nil {
		t.Fatal(err)
	}
	problems, warnings, unusable := cfg.CheckCertificates(func(path string) ([]byte, error) {
		text, there := files[path]
		if !there {
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	}, time.Now())
	var got []string
	for _, p := range append(problems, warnings...) {
		field, _, _ := strings.Cut(strings.TrimPrefix(p.Error(), "f:"), ": /")
		got = append(got, field)
	}
	want := []string{"8: services[0].proxy.certificates[2]", "8: services[0].proxy.certificates[4]",
		"8: services[0].proxy.certificates[5]",
		"8: services[0].proxy.certificates[6]", "10: services[0].proxy.backend_ca",
		"8: services[0].proxy.certificates[3]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems and warnings (-want +got):\n%s\n%v\n%v", diff, problems, warnings)
	}
	bad := map[string]bool{"/missing": true, "/nokey": true, "/mixed": true, "/text": true}
	if diff := cmp.Diff(bad, unusable); diff != "" {
		t.Errorf("files that cannot be used (-want +got):\n%s", diff)
	}
}
