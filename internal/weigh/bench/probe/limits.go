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

// Limits are the bounds of the machine that a trial may run into. They are read
// before a run, so that a point beyond them is known before it is tried.
type Limits struct {
	// OpenFiles is the number of file descriptors that one process may have.
	OpenFiles uint64
	// Cores is the number of processors that this process may use.
	Cores int
	// LocalPorts is the number of source ports that a client has towards one
	// address and port.
	LocalPorts int
	// Orphans is how many closed TCP connections a kernel keeps until all was acknowledged (tcp_max_orphans), TCPPages
	// how many pages TCP may hold before it drops arriving segments (the second of tcp_mem); 0 where that is not to be
	// seen, because they are the machine's and no namespace's.
	Orphans, TCPPages int
}

// ReadLimits reads the limits of this process, which the ones it starts
// inherit, as they will be after a process raised its soft limit to the hard one.
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

// ReadKernel reads the limits that only the machine's own namespace shows, for limits that were read in another of its.
func (l *Limits) ReadKernel() {
	l.Orphans, l.TCPPages = kernelLimit("net.ipv4.tcp_max_orphans", 0), kernelLimit("net.ipv4.tcp_mem", 1)
}

// kernelLimit reads the number at a place of a sysctl; 0 if it is not to be had.
func kernelLimit(name string, place int) int {
	text, err := sysctl.Read(name)
	if fields := strings.Fields(text); err == nil && place < len(fields) {
		n, _ := strconv.Atoi(fields[place])
		return n
	}
	return 0
}
