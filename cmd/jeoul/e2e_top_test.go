// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// tmux is a terminal in which a program of ours runs.
type tmux struct{ program, socket string }

// startTmux runs this program with arguments in a terminal of a number of columns and lines.
func startTmux(t *testing.T, columns, lines int, arguments ...string) *tmux {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &tmux{testenv.Program(t, "tmux"), filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() { _, _ = m.try(context.Background(), "kill-server") })
	command := []string{"-f", "/dev/null", "-u", "new-session", "-d", "-x", fmt.Sprint(columns), "-y",
		fmt.Sprint(lines),
		"env", "LC_ALL=C.UTF-8", actAsJeoul + "=1", own}
	if out, err := m.try(t.Context(), append(command, arguments...)...); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := m.try(context.Background(), "capture-pane", "-p")
			t.Logf("the terminal shows:\n%s", out)
		}
	})
	return m
}

func (m *tmux) try(ctx context.Context, arguments ...string) (string, error) {
	out, err := exec.CommandContext(ctx, m.program, append([]string{"-S", m.socket}, arguments...)...).CombinedOutput()
	return string(out), err
}

// do runs a tmux command, which must succeed.
func (m *tmux) do(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := m.try(t.Context(), arguments...)
	if err != nil {
		t.Fatalf("tmux %q: %v\n%s", arguments, err, out)
	}
	return out
}

// press presses keys, by tmux' names.
func (m *tmux) press(t *testing.T, keys ...string) {
	t.Helper()
	m.do(t, append([]string{"send-keys"}, keys...)...)
}

// eventually waits until ok accepts the screen.
func (m *tmux) eventually(t *testing.T, what string, ok func(screen []string) bool) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, "the terminal shows "+what, func() bool {
		return ok(strings.Split(m.do(t, "capture-pane", "-p"), "\n"))
	})
}

// shows waits until one line of the screen contains all of some texts.
func (m *tmux) shows(t *testing.T, texts ...string) {
	t.Helper()
	m.eventually(t, fmt.Sprintf("%q", texts), func(screen []string) bool { return lineWith(screen, texts...) != nil })
}

// lineWith returns the words of the first line that contains all of some texts; nil if there is none.
func lineWith(screen []string, texts ...string) []string {
	for _, line := range screen {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return strings.Fields(strings.TrimPrefix(line, "▸"))
		}
	}
	return nil
}

// TestTopInTerminal: `jeoul top` shows the values of the API in a real terminal, and its keys have their effect. It
// continues when the daemon is restarted.
func TestTopInTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 2})
	b := newBalancer(t, l.Balancer)
	vip := netip.MustParseAddrPort("198.18.0.105:5300")
	var backends []entry
	for i, server := range l.Servers {
		echo(t, server, netip.AddrPortFrom(netip.IPv6Unspecified(), 5300))
		backends = append(
			backends,
			entry{"name": server.Name, "address": server.IPv4.String(), "port": 5300, "weight": 1 + i},
		)
	}
	b.configure(t, lb.HookTC, entry{"fullnat": entry{"addresses": []string{"198.18.0.99"}}, "services": []entry{
		{
			"name":      "echo",
			"vip":       vip.Addr().String(),
			"port":      vip.Port(),
			"protocol":  "udp",
			"mode":      "fullnat",
			"scheduler": "wrr",
			"backends":  backends,
		},
		{"name": "shut", "vip": vip.Addr().String(), "port": 5301, "protocol": "udp", "mode": "fullnat",
			"backends": []entry{{"name": "none", "address": "198.18.2.250"}}}}})
	b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
	b.eventually(
		t,
		"the service has its backends",
		func(s *ops.Status) bool { return allUp(&ops.Status{Services: s.Services[:1]}) },
	)
	err := l.Clients[0].Do(func() (err error) {
		for range 30 {
			err = errors.Join(err, exchange(vip))
		}
		for range 5 {
			err = errors.Join(err, sendDatagram(netip.AddrPortFrom(vip.Addr(), 5301)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := startTmux(t, 200, 24, "top", "--socket", b.socket, "--view", "backends", "--interval", "100ms")
	m.eventually(
		t,
		"each backend as the API has it",
		func(screen []string) bool { return showsBackends(screen, b.status(t)) },
	)
	m.press(t, "3")
	m.eventually(t, "each drop as the API has it", func(screen []string) bool {
		row := lineWith(screen, "dropped_no_backend")
		return len(row) > 2 && row[2] == "5" && showsDrops(screen, b.status(t))
	})

	first, second := l.Servers[0].Name, l.Servers[1].Name
	m.press(t, "2", "x")
	m.shows(t, "Disable echo/"+first)
	if state := b.status(t).Services[0].Backends[0].State; state != lb.Up {
		t.Errorf("%s is %s before the question is answered", first, state)
	}
	m.press(t, "Enter")
	m.shows(t, " "+first+" ", " out ")
	b.eventually(t, "it is out", func(s *ops.Status) bool { return s.Services[0].Backends[0].State == lb.Out })
	m.press(t, "Down", "x")
	m.shows(t, "No other backend of echo")
	m.press(t, "Enter")
	m.shows(t, "disable echo/"+second+": refused")

	m.do(t, "resize-window", "-x", "20", "-y", "10")
	m.shows(t, "too small")
	m.do(t, "resize-window", "-x", "80", "-y", "24")
	m.shows(t, "[2 backends]")

	kill(t, b.daemon)
	m.shows(t, "no answer since")
	b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
	m.shows(t, "answers again")
	m.press(t, "q")
	testenv.Eventually(t, e2e.WaitLimit, "q ends it", func() bool {
		_, err := m.try(t.Context(), "has-session")
		return err != nil
	})
}

// sendDatagram sends one UDP datagram and does not wait for an answer.
func sendDatagram(to netip.AddrPort) error {
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("datagram"))
	return err
}

// showsBackends reports whether the view of backends agrees with the API.
func showsBackends(screen []string, status *ops.Status) bool {
	titles := lineWith(screen, "SERVICE", "BACKEND", "TOTAL")
	cell := func(row []string, title string) string {
		if i := slices.Index(titles, title); i >= 0 && i < len(row) {
			return row[i]
		}
		return ""
	}
	service := status.Services[0]
	for _, backend := range service.Backends {
		row := lineWith(screen, service.Name, " "+backend.Name+" ")
		if cell(row, "BACKEND") != backend.Name || cell(row, "STATE") != string(backend.State) ||
			cell(row, "WEIGHT") != fmt.Sprint(backend.Weight) || cell(row, "ACTIVE") != cmdkit.Count(uint64(backend.Active)) ||
			cell(row, "TOTAL") != cmdkit.Count(backend.Connections) || cell(row, "ADDRESS") != backend.Address.String() {
			return false
		}
	}
	return true
}

// showsDrops reports whether the view of drops agrees with the API.
func showsDrops(screen []string, status *ops.Status) bool {
	shown := 0
	for _, o := range status.Outcomes {
		row := lineWith(screen, " "+o.Name+" ")
		if row == nil {
			continue
		}
		if len(row) < 3 || row[2] != cmdkit.Count(o.Packets) {
			return false
		}
		shown++
	}
	return shown >= 1
}
