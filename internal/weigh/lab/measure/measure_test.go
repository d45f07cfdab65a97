// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/cpus"
)

func TestParseNetStat(t *testing.T) {
	tests := []struct {
		name, text string
		want       map[string]uint64
		bad        bool
	}{
		{"pairs", "Tcp: ActiveOpens MaxConn\nTcp: 3 -1\nTcpExt: ListenDrops\nTcpExt: 7\n",
			map[string]uint64{"TcpActiveOpens": 3, "TcpExtListenDrops": 7}, false},
		{"odd lines", "Tcp: A\nTcp: 1\nIp: B\n", nil, true},
		{"fewer values", "Tcp: A B\nTcp: 1\n", nil, true},
		{"different prefixes", "Tcp: A\nIp: 1\n", nil, true},
		{"empty", "", nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]uint64{}
			err := ParseNetStat(test.text, got)
			if (err != nil) != test.bad {
				t.Fatalf("error %v, want one: %v", err, test.bad)
			}
			if diff := cmp.Diff(test.want, got); !test.bad && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseNetStat(f *testing.F) {
	f.Add("Tcp: ActiveOpens MaxConn\nTcp: 3 -1\n")
	f.Add("Tcp:\nTcp:\n")
	f.Add("\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		counters := map[string]uint64{}
		if err := ParseNetStat(text, counters); err != nil {
			return
		}
		for name := range counters {
			if !strings.Contains(text, name[len(name)-1:]) {
				t.Errorf("counter %q is not from %q", name, text)
			}
		}
	})
}

// TestTimesOf: the times of CPUs that the process may not use are not among the machine's.
func TestTimesOf(t *testing.T) {
	full := procfs.CPUStat{User: 1, Nice: 2, System: 4, SoftIRQ: 8, IRQ: 16, Idle: 32, Iowait: 64}
	free := procfs.CPUStat{Idle: 1000}
	stat := procfs.Stat{
		CPUTotal: procfs.CPUStat{User: 2, Nice: 4, System: 8, SoftIRQ: 16, IRQ: 32, Idle: 2064, Iowait: 128},
		CPU:      map[int64]procfs.CPUStat{0: free, 1: free, 6: full, 7: full}}
	want := procfs.CPUStat{User: 2, Nice: 4, System: 8, SoftIRQ: 16, IRQ: 32, Idle: 64, Iowait: 128}
	if diff := cmp.Diff(want, timesOf(stat, []int{6, 7})); diff != "" {
		t.Errorf("the times of CPUs 6 and 7 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(stat.CPUTotal, timesOf(stat, []int{0, 1, 6, 7})); diff != "" {
		t.Errorf("the times of all CPUs (-want +got):\n%s", diff)
	}
}

// pinnedTest names the environment variable of a test process that may use the CPU in its value only.
const pinnedTest = "JEOUL_TEST_PINNED"

// TestReadMachinePinned: a process that may use one CPU reads the times of that one.
func TestReadMachinePinned(t *testing.T) {
	if only := os.Getenv(pinnedTest); only != "" {
		cpu, err := strconv.Atoi(only)
		if err != nil {
			t.Fatal(err)
		}
		before := userTime(t, cpu)
		machine, err := ReadMachine()
		if err != nil {
			t.Fatal(err)
		}
		if after := userTime(t, cpu); machine.Cores != 1 || machine.User < before || machine.User > after {
			t.Errorf("%d cores, user time %v; want 1 core, whose time is %v to %v", machine.Cores, machine.User, before, after)
		}
		return
	}
	all := cpus.Allowed()
	last := all[len(all)-1]
	command := exec.Command(os.Args[0], "-test.run=^TestReadMachinePinned$")
	command.Env = append(os.Environ(), pinnedTest+"="+strconv.Itoa(last))
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread, whose CPU the program inherits, ends with this function
		var set unix.CPUSet
		set.Set(last)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- err
			return
		}
		output, err := command.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, output)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// userTime returns the time of programs on a CPU.
func userTime(t *testing.T, cpu int) time.Duration {
	t.Helper()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c := stat.CPU[int64(cpu)]
	return time.Duration((c.User + c.Nice) * float64(time.Second))
}

func TestDropsTotal(t *testing.T) {
	before := Drops{HostReceive: 1, HostTransmit: 2, PortReceive: 2, PortTransmit: 0}
	after := Drops{HostReceive: 4, HostTransmit: 12, PortReceive: 12, PortTransmit: 1}
	if got := after.Sub(before).Total(); got != 10+3 {
		t.Errorf("Total = %d, want ten one way, counted at both ends, and three the other", got)
	}
}

func TestCPUSub(t *testing.T) {
	before := CPU{Total: 10, Threads: map[string]time.Duration{"a/1": 4, "b/2": 6}}
	after := CPU{Total: 30, Threads: map[string]time.Duration{"a/1": 4, "b/2": 10, "c/3": 4}}
	want := CPU{Total: 20, Threads: map[string]time.Duration{"b/2": 4, "c/3": 4}}
	got := after.Sub(before)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Sub (-want +got):\n%s", diff)
	}
	if name, used := got.Busiest(); name != "b/2" || used != 4 {
		t.Errorf("Busiest = %s, %v", name, used)
	}
	if name, used := (CPU{}).Busiest(); name != "" || used != 0 {
		t.Errorf("Busiest of nothing = %s, %v", name, used)
	}
}
