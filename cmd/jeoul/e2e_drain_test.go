// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/e2e"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

// How much traffic the drains meet.
const (
	heldDownloads  = 24
	newConnections = 60
	// heldStep is how much of a download is read between two changes, in bytes: more
	// than buffers hold, so that the server has to go on sending.
	heldStep = 4 << 20
)

// TestDrain takes a backend out while long downloads go through it, in a service that
// keeps no flows and in one that keeps all: none breaks, nothing new comes to it, the
// report comes to nothing, and undo brings it back.
func TestDrain(t *testing.T) {
	forEachHook(t, func(t *testing.T, hook lb.Hook) {
		s := buildStage(t, hook, 1, bulk)
		for _, server := range s.Servers {
			s.startAgent(t, server)
			s.startServers(t, server)
		}
		configuration := s.configuration()
		configuration["flows"] = entry{"timeouts": entry{"fin": "2s", "closed": "1s"}}
		s.configure(t, hook, configuration)
		s.start(t)
		for _, p := range paths() {
			if p.mode == lb.L2DSR || p.mode == lb.NAT && p.vip.Is4() {
				for _, port := range []uint16{webPort, otherWebPort} {
					t.Run(fmt.Sprintf("%s-%d", p, port), func(t *testing.T) {
						s.drainGently(t, p, port)
						s.drainByDeadline(t, p, port)
					})
				}
			}
		}
	})
}

// drainGently waits for the downloads to end.
func (s *stage) drainGently(t *testing.T, p path, port uint16) {
	held := s.hold(t, p, port)
	name := s.Servers[0].Name
	target := fmt.Sprintf("%s-%s-%d/%s", p.mode, familyName(p.vip), port, name)
	drain := s.command(t, "backend", "drain", target, "--wait")
	s.eventually(t, target+" is drained", func(status *api.Status) bool { return stateNow(status, target) == api.Draining })
	s.checkNew(t, p, port, func(server string) bool { return server != name })
	held.read(t, heldStep)
	s.checkRefused(t, "refused: ", "backend", "drain", target)
	select {
	case <-drain.Done():
		t.Errorf("nothing is left, says the drain, and %d downloads are under way:\n%s", heldDownloads, drain.output)
	default:
	}
	held.finish(t)
	testenv.Eventually(t, 3*e2e.Patience, "nothing is left on "+target, func() bool {
		select {
		case <-drain.Done():
			return true
		default:
			return false
		}
	})
	if err := drain.Wait(); err != nil || !strings.Contains(drain.output.String(), target+": nothing is left after ") {
		t.Errorf("the drain ended with %v:\n%s", err, drain.output)
	}
	s.run(t, "backend", "undo")
	seen := map[string]bool{}
	s.checkNew(t, p, port, func(server string) bool { seen[server] = true; return true })
	if !seen[name] {
		t.Errorf("%s gets no new connection after the undo, only %v", name, seen)
	}
}

// drainByDeadline does not wait.
func (s *stage) drainByDeadline(t *testing.T, p path, port uint16) {
	held := s.hold(t, p, port)
	defer held.close()
	name := s.Servers[1].Name
	target := fmt.Sprintf("%s-%s-%d/%s", p.mode, familyName(p.vip), port, name)
	drain := s.command(t, "backend", "drain", target, "--wait", "--deadline", "12s") // long enough to count what is left
	s.eventually(t, target+" is drained", func(status *api.Status) bool { return stateNow(status, target) == api.Draining })
	held.read(t, heldStep) // where nothing is tracked, flows are remembered when they speak
	err := drain.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitLeft || !strings.Contains(drain.output.String(), target+": out at its deadline, and with it what was left: ") {
		t.Errorf("the drain ended with %v, want status %d:\n%s", err, exitLeft, drain.output)
	}
	if state := stateNow(s.status(t), target); state != api.Out {
		t.Errorf("the state of %s is %s, want %s", target, state, api.Out)
	}
	s.checkNew(t, p, port, func(server string) bool { return server != name })
	s.run(t, "backend", "enable", target)
	s.eventually(t, target+" is up", func(status *api.Status) bool { return stateNow(status, target) == api.Up })
}

// stateNow returns the state of SERVICE/BACKEND.
func stateNow(status *api.Status, target string) api.State {
	for _, s := range status.Services {
		for _, b := range s.Backends {
			if s.Name+"/"+b.Name == target {
				return b.State
			}
		}
	}
	return ""
}

// command is a jeoul that is running.
type command struct {
	*lab.Process
	output *syncBuffer
}

func (s *stage) command(t *testing.T, arguments ...string) command {
	t.Helper()
	output := &syncBuffer{}
	return command{jeoul(t, s.host, output, append(arguments, "--socket", s.socket)...), output}
}

// run runs a command that must do.
func (s *stage) run(t *testing.T, arguments ...string) {
	t.Helper()
	c := s.command(t, arguments...)
	if err := c.Wait(); err != nil {
		t.Fatalf("jeoul %s: %v\n%s", strings.Join(arguments, " "), err, c.output)
	}
}

// checkRefused runs a command that must not do.
func (s *stage) checkRefused(t *testing.T, says string, arguments ...string) {
	t.Helper()
	c := s.command(t, arguments...)
	if err := c.Wait(); err == nil || !strings.Contains(c.output.String(), says) {
		t.Errorf("jeoul %s: %v, want a refusal with %q:\n%s", strings.Join(arguments, " "), err, says, c.output)
	}
}

// checkNew makes new connections and looks at who answers.
func (s *stage) checkNew(t *testing.T, p path, port uint16, right func(server string) bool) {
	t.Helper()
	for range newConnections {
		seen, err := e2e.NewBrowser(s.Clients[0]).Who(bounded(t), netip.AddrPortFrom(p.vip, port))
		if err != nil {
			t.Fatal(err)
		}
		if !right(seen.Server) {
			t.Errorf("%s has answered a new connection", seen.Server)
		}
	}
}

// held are downloads that are read when a test says so.
type held struct {
	connections []net.Conn
	bodies      []io.Reader
	hashes      []io.Writer
	sums        []func() e2e.Hash
	want        e2e.Hash
	by          map[string]int
}

// hold begins downloads.
func (s *stage) hold(t *testing.T, p path, port uint16) *held {
	t.Helper()
	h := &held{want: s.files.Hash(bulk), by: map[string]int{}}
	t.Cleanup(h.close)
	for range heldDownloads {
		var connection net.Conn
		err := s.Clients[0].Do(func() (err error) {
			connection, err = new(net.Dialer).DialContext(bounded(t), "tcp", netip.AddrPortFrom(p.vip, port).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		h.connections = append(h.connections, connection)
		_ = connection.SetDeadline(time.Now().Add(6 * e2e.Patience))
		if _, err := fmt.Fprintf(connection, "GET /%d HTTP/1.0\r\nHost: lab\r\n\r\n", bulk); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("begin a download: %v, %+v", err, response)
		}
		sum := sha256.New()
		h.by[response.Header.Get("Lab-Server")]++
		h.bodies, h.hashes = append(h.bodies, response.Body), append(h.hashes, sum)
		h.sums = append(h.sums, func() e2e.Hash { return e2e.Hash(sum.Sum(nil)) })
	}
	t.Logf("downloads by server: %v", h.by)
	return h
}

// read reads on, in all of them at once; fewer bytes are the end.
func (h *held) read(t *testing.T, bytes int64) {
	t.Helper()
	group, _ := errgroup.WithContext(context.WithoutCancel(t.Context()))
	for i := range h.bodies {
		group.Go(func() error {
			_, err := io.CopyN(h.hashes[i], h.bodies[i], bytes)
			return err
		})
	}
	if err := group.Wait(); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("a download broke: %v", err)
	}
}

// finish reads all to their ends and compares them with the file.
func (h *held) finish(t *testing.T) {
	t.Helper()
	h.read(t, bulk)
	for i, sum := range h.sums {
		if sum() != h.want {
			t.Errorf("download %d is not the file", i)
		}
	}
	h.close()
}

func (h *held) close() {
	for _, connection := range h.connections {
		connection.Close()
	}
}
