// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// listen listens as systemd does, and returns a function that receives the next message.
func listen(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	message := make([]byte, 4096)
	return func() string {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(testenv.WaitLimit)); err != nil {
			t.Fatal(err)
		}
		n, err := socket.Read(message)
		if err != nil {
			t.Fatal("no message: ", err)
		}
		return string(message[:n])
	}
}

func TestServiceManagerNotifications(t *testing.T) {
	next := listen(t)
	m := New(slog.New(slog.DiscardHandler))
	m.Ready()
	if got := next(); got != daemon.SdNotifyReady {
		t.Errorf("ready: %q", got)
	}
	m.Reloading()
	reloading, since, ok := strings.Cut(next(), "\nMONOTONIC_USEC=")
	if at, err := strconv.ParseInt(since, 10, 64); !ok || err != nil || at <= 0 ||
		reloading != daemon.SdNotifyReloading {
		t.Errorf("reloading: %q at %q: %v", reloading, since, err)
	}
}

// TestWatchdogNotifications makes three responses succeed and then none: the watchdog gets three messages, and the next
// message is another one.
func TestWatchdogNotifications(t *testing.T) {
	next := listen(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	m := New(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	hung, done, responses := make(chan struct{}), make(chan error, 1), 0
	go func() {
		done <- m.RunWatchdog(ctx, func(ctx context.Context) error {
			if responses++; responses <= 3 {
				return nil
			}
			close(hung)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-hung
	m.Ready()
	for i, want := range []string{daemon.SdNotifyWatchdog, daemon.SdNotifyWatchdog, daemon.SdNotifyWatchdog,
		daemon.SdNotifyReady} {
		if got := next(); got != want {
			t.Errorf("message %d: %q, expected %q", i, got, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
