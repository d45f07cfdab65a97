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

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/cmd/jeoul/operatecmd"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The traffic during the drains.
const (
	heldDownloads  = 24
	newConnections = 60
	// heldStep is the number of bytes of a download that are read between two changes: more than buffers hold, so that
	// the server must continue to send.
	heldStep = 4 << 20
)

// TestDrain drains a backend during long downloads through it, in a service that tracks no flows and in one that tracks
// all: none breaks, no new flow comes to it, the number of flows left falls to 0, and undo restores it.
func TestDrain(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := buildStage(t, hook, 1, bulk)
		for _, server := range s.Servers {
			s.startAgent(t, server)
			s.startServers(t, server)
		}
		configuration := s.configuration()
		configuration["flows"] = entry{"timeouts": entry{"fin": "2s", "closed": "1s"}}
		s.configure(t, hook, configuration)
		s.start(t)
		var cells []*drainCell
		for _, p := range paths() {
			if p.mode == lb.L2DSR || p.mode == lb.NAT && p.vip.Is4() || p.mode == lb.FullNAT && p.vip.Is6() {
				for i, port := range []uint16{webPort, otherWebPort} {
					// Otherwise one of each: without tracked flows and with them, by each family.
					if p.vip.Is6() == (i == 1) || testenv.InTarget(matrixTarget) {
						cells = append(cells, &drainCell{stage: s, path: p, port: port})
					}
				}
			}
		}
		t.Run("gently", func(t *testing.T) { testDrainWithoutDeadline(t, cells) })
		t.Run("by deadline", func(t *testing.T) { drainByDeadline(t, cells) })
	})
}

// drainCell is a service one of whose backends is drained.
type drainCell struct {
	*stage
	path  path
	port  uint16
	held  *heldDownloadSet
	drain command
}

// target returns one of its backends, in the form of commands.
func (c *drainCell) target(server *lab.Host) string {
	return fmt.Sprintf("%s-%s-%d/%s", c.path.mode, familyName(c.path.vip), c.port, server.Name)
}

// begin drains a server during downloads.
func (c *drainCell) begin(t *testing.T, server *lab.Host, arguments ...string) {
	t.Helper()
	c.held = c.startDownloads(t, c.path, c.port)
	c.drain = c.command(t, append([]string{"backend", "drain", c.target(server), "--wait"}, arguments...)...)
	c.eventually(t, c.target(server)+" is drained", func(status *ops.Status) bool {
		return stateNow(status, c.target(server)) == lb.Draining
	})
	c.checkNew(t, c.path, c.port, func(name string) bool { return name != server.Name })
	c.held.read(t, heldStep)
}

// testDrainWithoutDeadline waits for the downloads to end.
func testDrainWithoutDeadline(t *testing.T, cells []*drainCell) {
	server := cells[0].Servers[0]
	for _, c := range cells {
		c.begin(t, server)
		c.checkRefused(t, "refused: ", "backend", "drain", c.target(server))
	}
	for _, c := range cells {
		select {
		case <-c.drain.Done():
			t.Errorf("nothing is left, says the drain, and %d downloads are under way:\n%s", heldDownloads,
				c.drain.output)
		default:
		}
		c.held.finish(t)
	}
	for _, c := range cells {
		select {
		case <-c.drain.Done():
		case <-time.After(3 * e2e.WaitLimit):
			t.Fatalf("%s is not empty:\n%s", c.target(server), c.drain.output)
		}
		if err := c.drain.Wait(); err != nil || !strings.Contains(c.drain.output.String(), c.target(server)+
			": nothing is left after ") {
			t.Errorf("the drain ended with %v:\n%s", err, c.drain.output)
		}
	}
	for range cells {
		cells[0].run(t, "backend", "undo")
	}
	for _, c := range cells {
		seen := map[string]bool{}
		c.checkNew(t, c.path, c.port, func(name string) bool { seen[name] = true; return true })
		if !seen[server.Name] {
			t.Errorf("%s gets no new connection after the undo, only %v", c.target(server), seen)
		}
	}
}

// drainByDeadline drains a backend whose connections do not end before the deadline.
func drainByDeadline(t *testing.T, cells []*drainCell) {
	server := cells[0].Servers[1]
	for _, c := range cells {
		// Long enough to count the flows left.
		c.begin(t, server, "--deadline", "12s")
	}
	for _, c := range cells {
		err := c.drain.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != operatecmd.ExitLeft ||
			!strings.Contains(c.drain.output.String(), c.target(server)+": out at its deadline, and with it the flows left: ") {
			t.Errorf("the drain ended with %v, want status %d:\n%s", err, operatecmd.ExitLeft, c.drain.output)
		}
		c.held.close()
		if state := stateNow(c.status(t), c.target(server)); state != lb.Out {
			t.Errorf("the state of %s is %s, want %s", c.target(server), state, lb.Out)
		}
		c.checkNew(t, c.path, c.port, func(name string) bool { return name != server.Name })
		c.run(t, "backend", "enable", c.target(server))
		c.eventually(t, c.target(server)+" is up", func(status *ops.Status) bool {
			return stateNow(status, c.target(server)) == lb.Up
		})
	}
}

// stateNow returns the state of SERVICE/BACKEND.
func stateNow(status *ops.Status, target string) lb.BackendState {
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
	output *cmdtest.SyncBuffer
}

func (s *stage) command(t *testing.T, arguments ...string) command {
	t.Helper()
	output := &cmdtest.SyncBuffer{}
	return command{jeoul(t, s.host, output, append(arguments, "--socket", s.socket)...), output}
}

// run runs a command that must succeed.
func (s *stage) run(t *testing.T, arguments ...string) {
	t.Helper()
	c := s.command(t, arguments...)
	if err := c.Wait(); err != nil {
		t.Fatalf("jeoul %s: %v\n%s", strings.Join(arguments, " "), err, c.output)
	}
}

// checkRefused runs a command that must fail.
func (s *stage) checkRefused(t *testing.T, says string, arguments ...string) {
	t.Helper()
	c := s.command(t, arguments...)
	if err := c.Wait(); err == nil || !strings.Contains(c.output.String(), says) {
		t.Errorf("jeoul %s: %v, want a refusal with %q:\n%s", strings.Join(arguments, " "), err, says, c.output)
	}
}

// checkNew makes new connections and checks which servers answer.
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

// heldDownloadSet holds downloads that are read when a test asks for it.
type heldDownloadSet struct {
	connections []net.Conn
	bodies      []io.Reader
	hashes      []io.Writer
	sums        []func() e2e.Hash
	want        e2e.Hash
	by          map[string]int
}

// startDownloads begins downloads.
func (s *stage) startDownloads(t *testing.T, p path, port uint16) *heldDownloadSet {
	t.Helper()
	h := &heldDownloadSet{want: s.files.Hash(bulk), by: map[string]int{}}
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
		_ = connection.SetDeadline(time.Now().Add(6 * e2e.WaitLimit))
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

// read reads from all downloads at once; fewer bytes mean the end.
func (h *heldDownloadSet) read(t *testing.T, bytes int64) {
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

// finish reads all downloads to their ends and compares them with the file.
func (h *heldDownloadSet) finish(t *testing.T) {
	t.Helper()
	h.read(t, bulk)
	for i, sum := range h.sums {
		if sum() != h.want {
			t.Errorf("download %d is not the file", i)
		}
	}
	h.close()
}

func (h *heldDownloadSet) close() {
	for _, connection := range h.connections {
		connection.Close()
	}
}
