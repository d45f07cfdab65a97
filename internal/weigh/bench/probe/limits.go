// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/host/openfiles"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Limits are the limits of the machine that a trial may reach. They are read before a run, so that points beyond them
// are known before they are tried.
type Limits struct {
	// OpenFiles is the maximum number of file descriptors of a process.
	OpenFiles uint64
	// Cores is the number of processors that this process may use.
	Cores int
	// LocalPorts is the number of source ports that a client has for one destination address and port.
	LocalPorts int
	// Orphans is the number of closed TCP connections that a kernel keeps until all data is acknowledged
	// (tcp_max_orphans). TCPPages is the number of pages that TCP may hold before it drops arriving segments (the
	// second value of tcp_mem). Both are 0 where they cannot be read, because they belong to the machine and not to a
	// namespace.
	Orphans, TCPPages int
}

// ReadLimits reads the limits of this process, which its child processes inherit. OpenFiles is the value after the soft
// limit was raised to the hard one.
func ReadLimits() (Limits, error) {
	files, err := openfiles.Max()
	if err != nil {
		return Limits{}, err
	}
	ports, err := localPorts()
	if err != nil {
		return Limits{}, err
	}
	limits := Limits{OpenFiles: files, Cores: runtime.NumCPU(), LocalPorts: ports}
	limits.ReadKernel()
	return limits, nil
}

var limitsTask = lab.NewTask("limits", func(_ context.Context, h *lab.Host, _ struct{}) (limits Limits, err error) {
	err = h.Do(func() (err error) {
		limits, err = ReadLimits()
		return err
	})
	return limits, err
})

// LimitsOf reads the limits of a host.
func LimitsOf(ctx context.Context, host *lab.Host) (Limits, error) {
	return limitsTask.On(ctx, host, struct{}{})
}

func localPorts() (int, error) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the range of local ports: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0, fmt.Errorf("reading the range of local ports: %s holds %q", path, text)
	}
	first, errFirst := strconv.Atoi(fields[0])
	last, errLast := strconv.Atoi(fields[1])
	if errFirst != nil || errLast != nil || last < first {
		return 0, fmt.Errorf("reading the range of local ports: %s holds %q", path, text)
	}
	return last - first + 1, nil
}

// ReadKernel reads the limits that only the machine's own network namespace shows, for limits that were read in another
// one.
func (l *Limits) ReadKernel() {
	l.Orphans, l.TCPPages = kernelLimit("net.ipv4.tcp_max_orphans", 0), kernelLimit("net.ipv4.tcp_mem", 1)
}

// kernelLimit reads the number at an index in a sysctl; 0 if it cannot be read.
func kernelLimit(name string, place int) int {
	text, err := sysctl.Read(name)
	if fields := strings.Fields(text); err == nil && place < len(fields) {
		n, _ := strconv.Atoi(fields[place])
		return n
	}
	return 0
}
