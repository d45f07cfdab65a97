// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func TestUnsupported(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		check lb.Check
		want  string
	}{
		"fit":        {lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress}, ""},
		"by the VIP": {lb.Check{Type: lb.CheckTCP, Via: lb.ViaVIP}, "write via: address"},
		"new type":   {lb.Check{Type: "smtp", Via: lb.ViaAddress}, "makes no checks of type smtp"},
	} {
		if got := New(nil).Unsupported(test.check); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for path, want := range map[string]string{plain: "is no executable file", "/no/such": "no such file",
		filepath.Dir(plain): "is no executable file", "/bin/sh": ""} {
		if got := unsupportedProgram(path); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := unsupportedAuthorities(plain); !strings.Contains(got, "holds no certificate") {
		t.Errorf("authorities: %q", got)
	}
}
