// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/daemon"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// configurable is a segment whose file has the services on hashPort; those on turnPort belong to the API.
func configurable(t *testing.T) *segment {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 2})
	s := &segment{l, newBalancer(t, l.Balancer)}
	for _, server := range l.Servers {
		s.serve(t, server)
	}
	s.configure(t, lb.HookTC, entry{"services": []entry{s.service("hash", hashPort, l.Servers)}})
	return s
}

func (s *segment) service(name string, port int, servers []*lab.Host) entry {
	var backends []entry
	for _, server := range servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String()})
	}
	return entry{"name": name, "vip": s.VIP4.String(), "port": port, "backends": backends}
}

// apply configures one service on turnPort through the API.
func (s *segment) apply(t *testing.T, servers ...*lab.Host) error {
	t.Helper()
	_, err := api.NewClient(s.socket).Apply(t.Context(), sources.API,
		yamlOf(t, entry{"services": []entry{s.service("turn", turnPort, servers)}}), false)
	return err
}

// wantServers checks which servers answer on turnPort.
func (s *segment) wantServers(t *testing.T, when string, servers ...*lab.Host) {
	t.Helper()
	counts := s.askMany(t, "tcp", netip.AddrPortFrom(s.VIP4, turnPort), 20)
	for _, server := range servers {
		delete(counts, server.Name)
	}
	if len(counts) > 0 {
		t.Errorf("%s, %v answered, too", when, counts)
	}
}

// stored returns the directory of the API's configuration.
func (s *segment) stored(t *testing.T) string {
	t.Helper()
	dir, err := sources.DirectoryOf(s.store(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestConfiguredOutlivesReboot: the API's configuration is still there after a reboot, which leaves nothing under /run,
// also if an earlier version has stored it there. An error names a corrupt file.
func TestConfiguredOutlivesReboot(t *testing.T) {
	t.Parallel()
	s := configurable(t)
	s.start(t)
	if err := s.apply(t, s.Servers[1]); err != nil {
		t.Fatal(err)
	}
	reboot := func() {
		t.Helper()
		stop(t, s.daemon)
		if err := os.RemoveAll(filepath.Join(s.host.Dir, "state")); err != nil {
			t.Fatal(err)
		}
	}
	reboot()
	s.start(t)
	s.wantServers(t, "after a reboot", s.Servers[1])
	stop(t, s.daemon)

	// As an earlier version has left it, for an upgrade.
	err := s.host.Do(func() error {
		previous, err := daemon.PreviousSources(s.host.Interface, filepath.Join(s.host.Dir, "state"))
		return errors.Join(err, os.Rename(s.stored(t), previous))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.start(t)
	reboot()
	s.start(t)
	s.wantServers(t, "after an upgrade and a reboot", s.Servers[1])
	stop(t, s.daemon)

	path := filepath.Join(s.stored(t), "api.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := 1 + bytes.Count(text[:bytes.Index(text, []byte("port: 7001"))], []byte("\n"))
	if err := os.WriteFile(path, bytes.Replace(text, []byte("port: 7001"), []byte("port: many"), 1),
		0o600); err != nil {
		t.Fatal(err)
	}
	var output cmdtest.SyncBuffer
	if err := jeoul(t, s.host, &output, s.arguments()...).Wait(); err == nil ||
		!strings.Contains(output.String(), fmt.Sprintf("api:%d: services[0].port: \"many\"", line)) ||
		!strings.Contains(output.String(), s.stored(t)) {
		t.Errorf("a start with a spoilt file: %v: %s", err, output.String())
	}
}

// TestFullDisk: a change that cannot be stored is refused with the cause, and both the configuration in force and the
// stored one stay; with room the same change is made.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := configurable(t)
	if err := os.MkdirAll(s.store(), 0o755); err != nil {
		t.Fatal(err)
	}
	// Four pages, in the mount namespace of the host, with which it is removed.
	if err := s.host.Do(func() error { return unix.Mount("tmpfs", s.store(), "tmpfs", 0, "size=16k") }); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if err := s.apply(t, s.Servers[0]); err != nil {
		t.Fatal(err)
	}
	fill := func() error {
		return os.WriteFile(filepath.Join(s.store(), "filler"), bytes.Repeat([]byte("x"), 1<<20), 0o600)
	}
	if err := s.host.Do(fill); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	cmdtest.WantError(t, s.apply(t, s.Servers[1]), "no space left on device; nothing was changed: make room there")
	s.wantServers(t, "on a full disk", s.Servers[0])
	kill(t, s.daemon)
	s.start(t)
	s.wantServers(t, "with another process on a full disk", s.Servers[0])
	if err := s.host.Do(func() error { return os.Remove(filepath.Join(s.store(), "filler")) }); err != nil {
		t.Fatal(err)
	}
	if err := s.apply(t, s.Servers[1]); err != nil {
		t.Fatal(err)
	}
	s.wantServers(t, "with room again", s.Servers[1])
}
