// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.conf.eth0.rp_filter":      "/proc/sys/net/ipv4/conf/eth0/rp_filter",
		"net.ipv4.conf.eth0/100.rp_filter":  "/proc/sys/net/ipv4/conf/eth0.100/rp_filter",
		"net/ipv4/conf/eth0.100/rp_filter":  "/proc/sys/net/ipv4/conf/eth0.100/rp_filter",
		"kernel.panic":                      "/proc/sys/kernel/panic",
		"net":                               "",
		"net.":                              "",
		"":                                  "",
		"net.ipv4..conf":                    "",
		"net.ipv4.//.//.kernel.panic":       "",
		"net/../kernel/panic":               "",
		"net/ipv4/../../../../etc/passwd":   "",
		"net.ipv4.conf.eth0\x00.arp_ignore": "",
		"/net/ipv4/conf/all/arp_ignore":     "",
		" net.ipv4.conf.all.arp_ignore":     "",
		"net.ipv4.conf.all.arp_ignore./.":   "",
	} {
		got, err := Tree{}.Path(name)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrName) {
			t.Errorf("Path(%q) = %q, %v", name, got, err)
		}
	}
}

func TestReadAndSet(t *testing.T) {
	tree := Tree{Root: t.TempDir()}
	path, err := tree.Path("net.ipv4.tcp_rmem")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("4096\t131072\t6291456\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Read("net.ipv4.tcp_rmem"); err != nil || got != "4096 131072 6291456" {
		t.Errorf("%q, %v", got, err)
	}
	if err := tree.Set("net.ipv4.tcp_rmem", "4096 131072 6291456", "1 2 3"); err != nil {
		t.Error(err)
	}
	if got, err := tree.Read("net.ipv4.tcp_rmem"); err != nil || got != "1 2 3" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := tree.Read("net.ipv4.absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := tree.Write("net.ipv4.absent", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there was made: %v", err)
	}
}

func FuzzPath(f *testing.F) {
	f.Add("net.ipv4.conf.eth0/100.rp_filter")
	f.Add("net/../kernel/panic")
	f.Fuzz(func(t *testing.T, name string) {
		path, err := Tree{Root: "/root"}.Path(name)
		if err != nil {
			return
		}
		if filepath.Clean(path) != path || !strings.HasPrefix(path, "/root/proc/sys/") {
			t.Fatalf("%q leads to %q", name, path)
		}
	})
}
