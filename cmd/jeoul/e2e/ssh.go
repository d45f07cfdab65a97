// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// SSH is OpenSSH on the hosts of a lab, and a key for root that they accept.
type SSH struct {
	dir  string
	sshd string
}

// privilegeDir is the directory that sshd requires for its privilege separation.
const privilegeDir = "/run/sshd"

// NewSSH makes the keys. They are removed with the test.
func NewSSH(tb testing.TB) *SSH {
	tb.Helper()
	s := &SSH{dir: tb.TempDir(), sshd: testenv.Program(tb, "sshd")}
	testenv.Program(tb, "ssh")
	keygen := testenv.Program(tb, "ssh-keygen")
	for _, name := range []string{"host", "root", "wrong"} {
		if output, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-C", name, "-f",
			s.path(name)).CombinedOutput(); err != nil {
			tb.Fatalf("making a key: %v: %s", err, output)
		}
	}
	err := os.Mkdir(privilegeDir, 0o755)
	if err == nil {
		tb.Cleanup(func() { os.Remove(privilegeDir) })
	} else if !errors.Is(err, fs.ErrExist) {
		tb.Fatal(err)
	}
	return s
}

func (s *SSH) path(name string) string { return filepath.Join(s.dir, name) }

// Key is the private key that the hosts accept.
func (s *SSH) Key() string { return s.path("root") }

// WrongKey is a private key that the hosts reject.
func (s *SSH) WrongKey() string { return s.path("wrong") }

// Start starts sshd on hosts, at port 22, and waits until it answers. It ends with the laboratory.
func (s *SSH) Start(tb testing.TB, hosts ...*lab.Host) {
	tb.Helper()
	public, err := os.ReadFile(s.path("host.pub"))
	if err != nil {
		tb.Fatal(err)
	}
	known, err := os.OpenFile(s.path("known_hosts"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer known.Close()
	for _, host := range hosts {
		config := filepath.Join(host.Dir, "sshd_config")
		text := strings.Join([]string{
			"HostKey " + s.path("host"), "AuthorizedKeysFile " + s.path("root.pub"), "StrictModes no", "PidFile none",
			"PermitRootLogin yes", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "MaxStartups 100",
			"UsePAM no",
			"Subsystem sftp internal-sftp", "",
		}, "\n")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		if _, err := host.Start(context.WithoutCancel(tb.Context()),
			lab.Command{Path: s.sshd, Args: []string{"-D", "-e", "-f", config}}); err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(known, "%v %s", host.IPv4, public)
		testenv.Eventually(tb, WaitLimit, "sshd answers on "+host.Name, func() bool {
			return listens(host, netip.AddrPortFrom(host.IPv4, 22))
		})
	}
}

func listens(host *lab.Host, at netip.AddrPort) bool {
	return host.Do(func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", at.String())
		if err != nil {
			return err
		}
		return conn.Close()
	}) == nil
}

// Inventory writes an Ansible inventory of a lab, in INI, and returns its path. further is appended to it.
func (s *SSH) Inventory(tb testing.TB, l *lab.Lab, further string) string {
	tb.Helper()
	var text strings.Builder
	for _, group := range []struct {
		name  string
		hosts []*lab.Host
	}{{"clients", l.Clients}, {"balancers", []*lab.Host{l.Balancer}}, {"servers", l.Servers}} {
		fmt.Fprintf(&text, "[%s]\n", group.name)
		for _, host := range group.hosts {
			fmt.Fprintf(&text, "%s ansible_host=%v\n", host.Name, host.IPv4)
		}
	}
	fmt.Fprintf(&text, "[all:vars]\nansible_user=root\nansible_ssh_private_key_file=%s\n", s.Key())
	fmt.Fprintf(&text, "ansible_ssh_common_args=-F none -o UserKnownHostsFile=%s -o StrictHostKeyChecking=yes\n",
		s.path("known_hosts"))
	fmt.Fprintf(&text, "jeoul_vip=%v\njeoul_fullnat_address=%v\n%s", l.VIP4, l.FullNAT, further)
	path := filepath.Join(tb.TempDir(), "hosts.ini")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
