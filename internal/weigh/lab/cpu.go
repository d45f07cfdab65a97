// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/softirq"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// CPU is the CPU time that a host has used since its lab was built.
//
// Total counts every process in the host's namespace, by its CPU clock
// (nanoseconds, ended threads included), less the packet work that ran on top of
// them, plus that which was done for the host's devices, on top of whomever. A
// process that ended is not lost: one started by Host.Start counts with the
// resource usage that the kernel reports at its end (microseconds), a child that
// was waited for counts in its parent (10 ms), and one whose parent is outside of
// the lab with what it had used when CPU was last called. Not counted: what Do
// runs in this process, and softirqs that are no packets' (timers).
type CPU struct {
	Total time.Duration
	// Threads maps "comm/tid" to the time of one thread: a thread that uses a
	// whole core is saturated, however idle the others are. Of a running thread
	// up to one timer tick may be missing. A process that ended keeps the entry
	// of its main thread; those of its other threads are gone. "softirq/INDEX" is
	// the work for a device, if it has one queue, which is one core's at a time.
	Threads map[string]time.Duration
}

// CPUTime returns what the process itself has used by its CPU clock, its ended
// threads included, and with them the packet work that ran on top of it. It is an
// error once the process has ended.
func (p *Process) CPUTime() (time.Duration, error) {
	used, err := briefly(processClockTask, p.host, p.PID())
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s on %s: %w", p.name, p.host.Name, err)
	}
	return used, nil
}

var processClockTask = NewTask("process-clock", func(_ context.Context, _ *Host, pid int) (time.Duration, error) {
	return processClock(pid)
})

// Sub returns what was used since an earlier reading. Threads that used nothing
// meanwhile are left out.
func (c CPU) Sub(earlier CPU) CPU {
	d := CPU{Total: c.Total - earlier.Total, Threads: map[string]time.Duration{}}
	for name, t := range c.Threads {
		if used := t - earlier.Threads[name]; used > 0 {
			d.Threads[name] = used
		}
	}
	return d
}

// Busiest returns the thread with the most time; the empty name if none has any.
func (c CPU) Busiest() (thread string, used time.Duration) {
	for name, t := range c.Threads {
		if t > used || t == used && name < thread {
			thread, used = name, t
		}
	}
	return thread, used
}

// CPU returns what the host has used.
func (h *Host) CPU() (CPU, error) {
	all, err := h.lab.CPU()
	return all[h.Name], err
}

// CPUTime returns the Total of CPU.
func (h *Host) CPUTime() (time.Duration, error) {
	c, err := h.CPU()
	return c.Total, err
}

// CPU returns what every host has used, by name, from one walk through /proc.
func (l *Lab) CPU() (map[string]CPU, error) {
	if l.far != nil {
		return l.cpuFar()
	}
	return l.usage.read(l.Hosts())
}

// usage keeps the books of a lab's CPU time.
type usage struct {
	mu    sync.Mutex
	live  map[int]*Process // started and not yet ended, by PID
	hosts map[string]*hostUsage
	meter *softirq.Meter
	// spread says that several cores may do a device's work at a time.
	spread atomic.Bool
}

// hostUsage is what a host's ended tasks have used.
type hostUsage struct {
	ended   time.Duration
	threads map[string]time.Duration
	// loose are the tasks that no process of the lab waits for, as last seen; their
	// time would be lost at their end.
	loose map[taskKey]task
}

// taskKey tells tasks apart across the reuse of PIDs.
type taskKey struct {
	pid   int
	start uint64 // clock ticks since boot
}

// task is a process at one moment.
type task struct {
	key     taskKey
	ppid    int
	host    string
	used    time.Duration // with the children that were waited for
	threads map[string]time.Duration
}

func (u *usage) init() {
	u.live = map[int]*Process{}
	u.hosts = map[string]*hostUsage{}
}

func (u *usage) host(name string) *hostUsage {
	if u.hosts[name] == nil {
		u.hosts[name] = &hostUsage{threads: map[string]time.Duration{}, loose: map[taskKey]task{}}
	}
	return u.hosts[name]
}

// started runs start and enters its process, such that no reading comes between.
func (u *usage) started(p *Process, start func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := start(); err != nil {
		return err
	}
	u.live[p.PID()] = p
	return nil
}

// ended books what a process, which is not yet reaped, has used in all.
func (u *usage) ended(p *Process, used time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pid := p.PID()
	delete(u.live, pid)
	h := u.host(p.host.Name)
	h.ended += used
	if proc, err := procfs.NewProc(pid); err == nil {
		maps.Copy(h.threads, threadTimes(proc))
	}
}

// processes returns those that have not ended.
func (u *usage) processes() []*Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []*Process
	for _, p := range u.live {
		all = append(all, p)
	}
	return all
}

// stop kills all processes that were started and waits for their end.
func (u *usage) stop(ctx context.Context) error {
	processes := u.processes()
	for _, p := range processes {
		p.signalEnd(unix.SIGKILL)
	}
	var errs []error
	for _, p := range processes {
		select {
		case <-p.Done():
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("process %d (%s on %s) does not end", p.PID(), p.cmd.Path, p.host.Name))
		}
	}
	return errors.Join(errs...)
}

func (u *usage) read(hosts []*Host) (map[string]CPU, error) {
	result, err := u.processTimes(hosts)
	if err != nil || u.meter == nil {
		return result, err
	}
	reading, err := u.meter.Read()
	if err != nil {
		return nil, fmt.Errorf("read the hosts' CPU time: %w", err)
	}
	for _, h := range hosts {
		result[h.Name] = result[h.Name].withSoftirqs(h.inode, reading, u.spread.Load())
	}
	return result, nil
}

// processTimes reads what the hosts' processes have used, with the packet work that
// ran on top of them.
func (u *usage) processTimes(hosts []*Host) (map[string]CPU, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	tasks, err := u.tasks(hosts)
	if err != nil {
		return nil, fmt.Errorf("read the hosts' CPU time: %w", err)
	}
	u.settleLoose(tasks)
	result := map[string]CPU{}
	for _, h := range hosts {
		booked := u.host(h.Name)
		result[h.Name] = CPU{Total: booked.ended, Threads: maps.Clone(booked.threads)}
	}
	for _, t := range tasks {
		c := result[t.host]
		c.Total += t.used
		maps.Copy(c.Threads, t.threads)
		result[t.host] = c
	}
	return result, nil
}

// withSoftirqs adds the work that was done for a host's devices, and takes off
// what its processes were billed for devices of any host. Work that is spread over
// cores is no thread's.
func (c CPU) withSoftirqs(netns uint64, reading softirq.Reading, spread bool) CPU {
	for device, work := range reading.Devices {
		if device.Namespace != netns {
			continue
		}
		c.Total += work
		if !spread {
			c.Threads["softirq/"+strconv.Itoa(device.Index)] = work
		}
	}
	c.Total -= reading.Billed[netns]
	return c
}

// settleLoose books the loose tasks that are gone and remembers those there are.
func (u *usage) settleLoose(tasks map[int]task) {
	for _, h := range u.hosts {
		for key, t := range h.loose {
			if tasks[key.pid].key != key {
				h.ended += t.used
			}
		}
		clear(h.loose)
	}
	for pid, t := range tasks {
		_, waited := tasks[t.ppid]
		if u.live[pid] == nil && !waited {
			u.host(t.host).loose[t.key] = t
		}
	}
}

// tasks finds the lab's processes, by PID.
func (u *usage) tasks(hosts []*Host) (map[int]task, error) {
	byInode := map[uint64]string{}
	for _, h := range hosts {
		byInode[h.inode] = h.Name
	}
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	found := map[int]task{}
	var zombies []procfs.Proc
	for _, p := range procs {
		if p.PID == os.Getpid() {
			continue
		}
		inode, err := netns.OfProcess(p.PID)
		if err != nil {
			zombies = append(zombies, p)
			continue
		}
		if name := byInode[inode]; name != "" {
			addTask(found, p, name)
		}
	}
	u.addZombies(found, zombies)
	return found, nil
}

// addZombies adds the processes that ended but are not yet waited for: they
// have no namespace any more, so only their parent tells whose they are.
func (u *usage) addZombies(found map[int]task, zombies []procfs.Proc) {
	for _, p := range zombies {
		if live := u.live[p.PID]; live != nil {
			addTask(found, p, live.host.Name)
			continue
		}
		stat, err := p.Stat()
		if err != nil {
			continue
		}
		if parent, ok := found[stat.PPID]; ok {
			addTask(found, p, parent.host)
		}
	}
}

// addTask adds a task unless it ended meanwhile.
func addTask(found map[int]task, p procfs.Proc, host string) {
	stat, err := p.Stat()
	if err != nil {
		return
	}
	used, err := processClock(p.PID)
	if err != nil {
		return
	}
	children := time.Duration(stat.CUTime+stat.CSTime) * clockTick
	found[p.PID] = task{
		key:     taskKey{p.PID, stat.Starttime},
		ppid:    stat.PPID,
		host:    host,
		used:    used + children,
		threads: threadTimes(p),
	}
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 wherever
// Linux runs Go.
const clockTick = 10 * time.Millisecond

// processClock reads the CPU-time clock of a process (clock_getcpuclockid(3)),
// which counts its live and its ended threads in nanoseconds.
func processClock(pid int) (time.Duration, error) {
	// The kernel's encoding: the complement of the PID above three bits, which
	// are 2 for the scheduler's clock (include/linux/posix-timers_types.h).
	const schedulerClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}

// threadTimes returns the time of each thread of a process by "comm/tid".
func threadTimes(p procfs.Proc) map[string]time.Duration {
	times := map[string]time.Duration{}
	threads, err := procfs.AllThreads(p.PID)
	if err != nil {
		return times
	}
	for _, t := range threads {
		comm, err1 := t.Comm()
		s, err2 := t.Schedstat()
		if err1 == nil && err2 == nil {
			times[comm+"/"+strconv.Itoa(t.PID)] = time.Duration(s.RunningNanoseconds)
		}
	}
	return times
}
