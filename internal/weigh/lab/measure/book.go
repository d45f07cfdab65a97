// SPDX-License-Identifier: Apache-2.0

package measure

import (
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

// Process is a process that a lab has started.
type Process interface {
	PID() int
	// HostName is the name of the host that it runs on.
	HostName() string
}

// Host is a network namespace whose processes are counted.
type Host struct {
	Name string
	// Inode is the inode number of the namespace.
	Inode uint64
}

// CPUAccounts accounts for a lab's CPU time.
type CPUAccounts struct {
	mu    sync.Mutex
	live  map[int]Process // started and not yet ended, by PID
	hosts map[string]*hostUsage
	// Meter measures the packet work; nil: that is charged to the processes that it ran on top of.
	Meter *softirq.Meter
	// Spread is true if several cores may do a device's work at a time.
	Spread atomic.Bool
}

// hostUsage is the CPU time of a host's ended tasks.
type hostUsage struct {
	ended   time.Duration
	threads map[string]time.Duration
	// unwaited are the tasks that no process of the lab waits for, as last seen; otherwise their time would be lost
	// when they end.
	unwaited map[taskKey]task
}

// taskKey identifies a task across the reuse of PIDs.
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

// Init initializes the book.
func (b *CPUAccounts) Init() {
	b.live = map[int]Process{}
	b.hosts = map[string]*hostUsage{}
}

func (b *CPUAccounts) host(name string) *hostUsage {
	if b.hosts[name] == nil {
		b.hosts[name] = &hostUsage{threads: map[string]time.Duration{}, unwaited: map[taskKey]task{}}
	}
	return b.hosts[name]
}

// Started runs start and enters its process, so that no reading comes between the two.
func (b *CPUAccounts) Started(p Process, start func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := start(); err != nil {
		return err
	}
	b.live[p.PID()] = p
	return nil
}

// Ended books the whole CPU time of a process that is not yet reaped.
func (b *CPUAccounts) Ended(p Process, used time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pid := p.PID()
	delete(b.live, pid)
	h := b.host(p.HostName())
	h.ended += used
	if proc, err := procfs.NewProc(pid); err == nil {
		maps.Copy(h.threads, threadTimes(proc))
	}
}

// Processes returns the processes that have not ended.
func (b *CPUAccounts) Processes() []Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Process
	for _, p := range b.live {
		all = append(all, p)
	}
	return all
}

// Read returns the CPU time of the hosts, by name, from one walk through /proc.
func (b *CPUAccounts) Read(hosts []Host) (map[string]CPU, error) {
	result, err := b.ProcessTimes(hosts)
	if err != nil || b.Meter == nil {
		return result, err
	}
	reading, err := b.Meter.Read()
	if err != nil {
		return nil, fmt.Errorf("read the hosts' CPU time: %w", err)
	}
	for _, h := range hosts {
		result[h.Name] = result[h.Name].WithSoftirqs(h.Inode, reading, b.Spread.Load())
	}
	return result, nil
}

// ProcessTimes reads the CPU time of the hosts' processes, with the packet work that ran on top of them.
func (b *CPUAccounts) ProcessTimes(hosts []Host) (map[string]CPU, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tasks, err := b.tasks(hosts)
	if err != nil {
		return nil, fmt.Errorf("read the hosts' CPU time: %w", err)
	}
	b.chargeUnwaited(tasks)
	result := map[string]CPU{}
	for _, h := range hosts {
		booked := b.host(h.Name)
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

// WithSoftirqs adds the work for a host's devices, and subtracts the work for devices of any host that was billed to
// the host's processes. Work that is spread over cores is charged to no thread.
func (c CPU) WithSoftirqs(netns uint64, reading softirq.Reading, spread bool) CPU {
	for device, work := range reading.Devices {
		if device.Namespace != netns {
			continue
		}
		c.Total += work
		if !spread {
			c.Threads["softirq/"+strconv.Itoa(device.Index)] = work
		}
	}
	c.Total -= reading.PerNamespace[netns]
	return c
}

// chargeUnwaited charges the unwaited tasks that are gone and remembers those that exist.
func (b *CPUAccounts) chargeUnwaited(tasks map[int]task) {
	for _, h := range b.hosts {
		for key, t := range h.unwaited {
			if tasks[key.pid].key != key {
				h.ended += t.used
			}
		}
		clear(h.unwaited)
	}
	for pid, t := range tasks {
		_, waited := tasks[t.ppid]
		if b.live[pid] == nil && !waited {
			b.host(t.host).unwaited[t.key] = t
		}
	}
}

// tasks finds the lab's processes, by PID.
func (b *CPUAccounts) tasks(hosts []Host) (map[int]task, error) {
	byInode := map[uint64]string{}
	for _, h := range hosts {
		byInode[h.Inode] = h.Name
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
	b.addZombies(found, zombies)
	return found, nil
}

// addZombies adds the processes that have ended but were not yet waited for: they have no namespace any more, so only
// their parent identifies their host.
func (b *CPUAccounts) addZombies(found map[int]task, zombies []procfs.Proc) {
	for _, p := range zombies {
		if live := b.live[p.PID]; live != nil {
			addTask(found, p, live.HostName())
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

// addTask adds a task unless it has ended in the meantime.
func addTask(found map[int]task, p procfs.Proc, host string) {
	stat, err := p.Stat()
	if err != nil {
		return
	}
	used, err := ProcessClock(p.PID)
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

// ProcessClock reads the CPU-time clock of a process (clock_getcpuclockid(3)), which counts its running and its ended
// threads in nanoseconds.
func ProcessClock(pid int) (time.Duration, error) {
	// The kernel's encoding: the complement of the PID above three bits, which are 2 for the scheduler's clock
	// (include/linux/posix-timers_types.h).
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
