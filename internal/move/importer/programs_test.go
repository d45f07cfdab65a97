// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"cmp"
	"crypto/x509/pkix"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestProgramsTake: the program of a dialect accepts the inputs of these tests, except the ones that are wrong on
// purpose.
func TestProgramsTake(t *testing.T) {
	takes := map[string]func(*testing.T, testcase){
		"haproxy": haproxyTakes, "ipvsadm": ipvsadmTakes, "iptables": iptablesTakes, "keepalived": keepalivedTakes,
		"nftables": nftTakes, "nginx": nginxTakes}
	for _, c := range cases(t) {
		if strings.Contains(c.path, "unknown") {
			continue
		}
		t.Run(c.name(), func(t *testing.T) { takes[c.dialect](t, c) })
	}
}

// accepts runs a program, which must succeed.
func accepts(t *testing.T, input, program string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Stdin = strings.NewReader(input)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, output.String())
	}
}

var certificate = regexp.MustCompile(`(\s(?:crt|ca-file) )\S+`)

func haproxyTakes(t *testing.T, c testcase) {
	program, dir := testenv.Program(t, "haproxy"), t.TempDir()
	text, pem := c.section("in"), filepath.Join(dir, "server.pem")
	if certificate.MatchString(text) {
		ca := testcert.NewAuthority(t)
		ca.Write(t, pkix.Name{CommonName: "test"}, time.Hour, pem, pem+".key")
		text = certificate.ReplaceAllString(text, "${1}"+pem)
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	accepts(t, "", program, "-c", "-f", file)
}

// command matches the program's name before the input of ipvsadm-restore.
var command = regexp.MustCompile(`(?m)^(sudo )?\S*ipvsadm `)

// ipvsadmTakes loads the rules into the kernel of a namespace, because ipvsadm does not check them otherwise.
func ipvsadmTakes(t *testing.T, c testcase) {
	if _, err := exec.LookPath("ipvsadm-restore"); err != nil {
		t.Skip("ipvsadm is not installed, and nothing else of Jeoul needs it")
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Skip("this kernel has no IPVS, and ipvsadm judges no rule without it")
	}
	testenv.Root(t)
	text := c.section("in")
	if strings.Contains(text, "example.com") {
		t.Skip("names hosts that are in no DNS")
	}
	accepts(t, command.ReplaceAllString(text, ""), testenv.Program(t, "unshare"), "--net", "ipvsadm-restore")
}

// iptablesTakes checks the rules in a separate namespace. Command lines become input of iptables-restore.
func iptablesTakes(t *testing.T, c testcase) {
	testenv.Root(t)
	text, program := c.section("in"), "iptables-restore"
	if strings.Contains(text, "ip6tables") {
		program = "ip6tables-restore"
	}
	if commands := iptablesCommand.FindAllStringSubmatch(text, -1); commands != nil {
		tables := map[string]string{}
		for _, command := range commands {
			table := cmp.Or(command[1], "filter")
			tables[table] += command[2] + "\n"
		}
		text = ""
		for _, table := range slices.Sorted(maps.Keys(tables)) {
			text += "*" + table + "\n" + tables[table] + "COMMIT\n"
		}
	}
	accepts(t, text, testenv.Program(t, "unshare"), "--net", testenv.Program(t, program), "--test")
}

// iptablesCommand matches a command line, with its table and its operation.
var iptablesCommand = regexp.MustCompile(`(?m)^(?:sudo )?\S*ip6?tables (?:-w )?(?:-t (\S+) )?(.*)$`)

// keepalivedTakes checks that keepalived accepts an input. A missing script is no syntax error.
func keepalivedTakes(t *testing.T, c testcase) {
	program, dir := testenv.Program(t, "keepalived"), t.TempDir()
	for _, f := range c.archive.Files {
		name := filepath.Join(dir, f.Name)
		// keepalived accepts the old word, but ends with a deprecation error.
		data := bytes.ReplaceAll(f.Data, []byte("nb_get_retry"), []byte("retry"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Root(t)
	// VRRP needs its interface.
	accepts(t, "", testenv.Program(t, "unshare"), "--net", "sh", "-c",
		`ip link add eth0 type veth peer name eth1 && exec "$0" "$@"`, program, "-t", "-f", filepath.Join(dir, "in"))
}

func nftTakes(t *testing.T, c testcase) {
	testenv.Root(t)
	accepts(t, c.section("in"), testenv.Program(t, "unshare"), "--net", testenv.Program(t, "nft"), "-c", "-f", "-")
}

// nginxCertificate matches a directive with a certificate file.
var nginxCertificate = regexp.MustCompile(`(ssl_certificate(_key)? )\S+;`)

// nginxTakes loads the module stream, which Debian packages separately. It replaces the logs of an input by a file of
// the test.
func nginxTakes(t *testing.T, c testcase) {
	testenv.Root(t)
	program, dir := testenv.Program(t, "nginx"), t.TempDir()
	const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
	if _, err := os.Stat(module); err != nil {
		t.Skip("nginx's module stream is not installed: run `make deps`")
	}
	for _, f := range c.archive.Files {
		text := strings.ReplaceAll(string(f.Data), "/var/log/nginx", dir)
		if nginxCertificate.MatchString(text) {
			pem := filepath.Join(dir, "server.pem")
			testcert.NewAuthority(t).Write(t, pkix.Name{CommonName: "test"}, time.Hour, pem, pem+".key")
			text = nginxCertificate.ReplaceAllString(text, "${1}"+pem+"${2};")
			text = strings.ReplaceAll(text, pem+"_key;", pem+".key;")
		}
		if f.Name == "in" {
			text = "load_module " + module + ";\npid " + dir + "/pid;\n" + text
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	accepts(t, "", testenv.Program(t, "unshare"), "--net", program, "-t", "-e", dir+"/error.log", "-p", dir, "-c",
		filepath.Join(dir, "in"))
}
