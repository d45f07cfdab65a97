// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// burn is a script that uses some CPU time and ends.
const burn = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`

func cpuTime(t *testing.T, h *Host) time.Duration {
	t.Helper()
	d, err := h.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCPUTimeOfEndedProcesses: however a process ends, its time stays with its host.
func TestCPUTimeOfEndedProcesses(t *testing.T) {
	l := newLab(t)
	h := l.Servers[0]
	tests := []struct {
		name   string
		script string
	}{
		{"started", burn},
		{"child that was waited for", `(` + burn + `)`},
		{"child whose parent went on", `(` + burn + `) & wait; true`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := cpuTime(t, h)
			run(t, h, test.script)
			after := cpuTime(t, h)
			// The loop cannot take less; other hosts' readings are near zero.
			if used := after - before; used < 5*time.Millisecond {
				t.Errorf("the script used %v", used)
			}
			if again := cpuTime(t, h); again < after {
				t.Errorf("CPU time went from %v back to %v", after, again)
			}
		})
	}
	if other := cpuTime(t, l.Servers[1]); other > 5*time.Millisecond {
		t.Errorf("another host is charged %v", other)
	}
}

// TestCPUTimeOfDaemon: no parent in the lab inherits a daemon's time, so the time at the last reading stays.
func TestCPUTimeOfDaemon(t *testing.T) {
	l := newLab(t)
	h := l.Balancer
	daemon := startDaemon(t, h, "while :; do :; done")
	var seen time.Duration
	eventually(t, "a burning daemon's time grows", func() bool {
		seen = cpuTime(t, h)
		return seen > 50*time.Millisecond
	})
	if err := unix.Kill(daemon, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon ends", func() bool { return !running(daemon) })
	if after := cpuTime(t, h); after < seen {
		t.Errorf("the daemon's end took its host's time from %v to %v", seen, after)
	}
}

func TestCPUThreads(t *testing.T) {
	l := newLab(t)
	before, err := l.CPU()
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Clients[0].Start(t.Context(), Command{Path: "sh", Args: []string{"-c", "while :; do :; done"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the burning thread is the busiest", func() bool {
		c, err := l.Clients[0].CPU()
		if err != nil {
			t.Fatal(err)
		}
		name, used := c.Sub(before["client01"]).Busiest()
		return strings.HasPrefix(name, "sh/") && used > 20*time.Millisecond
	})
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPacketWorkIsCharged checks the work that packets cause on hosts without a process. It is charged to a thread
// where one queue does all of it.
func TestPacketWorkIsCharged(t *testing.T) {
	l := newLab(t)
	for _, offloads := range []bool{false, true, false} {
		if err := l.Offload(offloads); err != nil {
			t.Fatal(err)
		}
		before, err := l.CPU()
		if err != nil {
			t.Fatal(err)
		}
		run(t, l.Clients[0], "ping -q -c 3 -i 0.01 "+l.Balancer.IPv4.String())
		after, err := l.CPU()
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"balancer", "switch", "client01"} {
			d := after[host].Sub(before[host])
			found := false
			for thread := range d.Threads {
				found = found || strings.HasPrefix(thread, "softirq/")
			}
			if found == offloads || d.Total <= 0 {
				t.Errorf("offloads %v: %s's packet work is charged as %+v", offloads, host, d)
			}
		}
	}
}
