// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// controller returns a controller that acts on the world.
func (w *world) controller(file string) *Controller {
	return New(Options{
		DataPlane: w, Paths: fakePaths{w}, Host: host{w}, Links: links{w},
		Announce: func(link string, vips ...netip.Addr) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, vip := range vips {
				w.note("announce %s on %s", vip, link)
			}
			return nil
		},
		Cgroup: func(path string) (string, error) {
			if path == "/missing" {
				return "", errors.New(path + ": no control group")
			}
			return cmp.Or(path, "/cgroup"), nil
		},
		Log:     slog.New(events.NewLog(events.DefaultCapacity, time.Now()).Handler(slog.NewTextHandler(w, nil))),
		Version: "v0",
	}, parse(w.t, file))
}

// run starts a controller and runs it; stop ends it and returns Run's error.
func (w *world) run(c *Controller) (stop func() error) {
	w.t.Helper()
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	return func() error {
		cancel()
		return <-result
	}
}

// quiet lets the announcements and the timers of the start pass.
func (w *world) quiet() {
	time.Sleep(time.Minute)
	synctest.Wait()
	w.done()
}

// running is a world with a controller that has started, and whose start has passed. answering
// are the backends that answer for their addresses, with a MAC that ends as the address does.
func running(t *testing.T, file string, answering ...string) (w *world, c *Controller, stop func() error) {
	t.Helper()
	w = newWorld(t)
	w.answer(answering...)
	c = w.controller(file)
	stop = w.run(c)
	w.quiet()
	return w, c, stop
}

// answer has backends answer with a MAC that ends as their address does.
func (w *world) answer(backends ...string) {
	for _, addr := range backends {
		bytes := netip.MustParseAddr(addr).AsSlice()
		w.found(addr, bytes[len(bytes)-1])
	}
}

// reload hands a file's content to the controller, in the background.
func (w *world) reload(c *Controller, file string) <-chan error {
	result := make(chan error, 1)
	go func() {
		result <- c.Reload(w.t.Context(), func() (*config.Config, error) { return config.Parse("f", []byte(file)) })
	}()
	return result
}

// mustReload reloads a file that must not be refused.
func (w *world) mustReload(c *Controller, file string) {
	w.t.Helper()
	if err := finished(w.t, w.reload(c, file)); err != nil {
		w.t.Fatal(err)
	}
}

// finished returns a reload's error, which must be there by now.
func finished(t *testing.T, result <-chan error) error {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-result:
		return err
	default:
		t.Fatal("the reload has not ended")
		return nil
	}
}

// statusOf returns the status once nothing more happens now.
func statusOf(t *testing.T, c *Controller) ops.Status {
	t.Helper()
	synctest.Wait()
	status, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func problems(t *testing.T, c *Controller) []string {
	t.Helper()
	return statusOf(t, c).Problems
}

// expectProblems compares the status' problems: one for each part, which it contains.
func expectProblems(t *testing.T, c *Controller, parts ...string) {
	t.Helper()
	got := problems(t, c)
	if len(got) != len(parts) {
		t.Errorf("problems %q, want %d", got, len(parts))
		return
	}
	for i, part := range parts {
		if !strings.Contains(got[i], part) {
			t.Errorf("problems %q: want %q in number %d", got, part, i+1)
		}
	}
}
