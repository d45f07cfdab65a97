// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestProgramsTake: the program of a dialect accepts the result.
func TestProgramsTake(t *testing.T) {
	takes := map[string]func(*testing.T, string){
		"haproxy": haproxyTakes, "ipvsadm": ipvsadmTakes, "keepalived": keepalivedTakes}
	for _, c := range cases(t) {
		for _, dialect := range Dialects() {
			result := c.export(t, dialect)
			if result.Services == 0 {
				continue
			}
			t.Run(c.name+"/"+dialect, func(t *testing.T) { takes[dialect](t, string(result.Text)) })
		}
	}
}

// accepts runs a program, which must succeed, and returns its output.
func accepts(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command.Args, " "), err, output.String())
	}
	return output.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "exported")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writePEM writes a self-signed certificate and its key.
func writePEM(t *testing.T, path string) {
	t.Helper()
	c := testcert.NewAuthority(t).Config(t, "www.test", time.Hour).Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	contents := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		t.Fatal(err)
	}
}

// haproxyTakes checks that HAProxy accepts the result without warnings.
func haproxyTakes(t *testing.T, text string) {
	dir := t.TempDir()
	writePEM(t, filepath.Join(dir, "www.pem"))
	text = strings.ReplaceAll(text, "/etc/ssl/private/", dir+"/")
	said := accepts(t, exec.CommandContext(t.Context(), testenv.Program(t, "haproxy"), "-c", "-f", write(t, text)))
	if strings.Contains(said, "[WARNING]") {
		t.Errorf("HAProxy warns:\n%s", said)
	}
}

// keepalivedTakes checks that keepalived accepts the result: it reports unknown words.
func keepalivedTakes(t *testing.T, text string) {
	testenv.Root(t)
	path := write(t, text)
	said := accepts(t, exec.CommandContext(t.Context(), testenv.Program(t, "unshare"), "--net",
		testenv.Program(t, "keepalived"), "--config-test", "--log-console", "-f", path))
	for line := range strings.Lines(said) {
		if strings.Contains(line, path) || strings.Contains(line, "nknown") {
			t.Errorf("keepalived says: %s", line)
		}
	}
}

// ipvsadmTakes makes ipvsadm read the rules with a library that simulates a kernel with IPVS, because ipvsadm asks the
// kernel first. The library does not support IPv6.
func ipvsadmTakes(t *testing.T, text string) {
	if strings.Contains(text, "[2001:") {
		t.Skip("ipvsadm has IPv6 by the kernel's netlink alone")
	}
	testenv.Root(t)
	library := filepath.Join(t.TempDir(), "ipvs.so")
	accepts(t, exec.CommandContext(t.Context(), testenv.Program(t, "clang"), "-shared", "-fPIC", "-o", library,
		"testdata/ipvs/ipvs.c"))
	command := exec.CommandContext(t.Context(), testenv.Program(t, "ipvsadm-restore"))
	command.Stdin, command.Env = strings.NewReader(text), append(os.Environ(), "LD_PRELOAD="+library)
	accepts(t, command)
}
