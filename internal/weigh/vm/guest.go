// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// portName is the name by which the machine finds its port.
const portName = "org.jeoul.bench"

// openFiles is the machine's limit of open files per process. Programs, such as nginx, reserve memory in proportion to
// it.
const openFiles = 65536

// ErrNotInit means that a process other than the machine's first called Init.
var ErrNotInit = errors.New("only the first process of a virtual machine does this")

// Init is a machine's first process: it prepares the machine and does its job. The error is a fault that Init could not
// report over the port. It belongs on the console, whose end the outside shows. After that, PowerOff must switch the
// machine off.
func Init() error {
	if os.Getpid() != 1 {
		return ErrNotInit
	}
	if _, err := os.Stat(jobPath); err != nil {
		return fmt.Errorf("%w: it has no job", ErrNotInit)
	}
	return guest()
}

// PowerOff switches the machine off.
func PowerOff() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func guest() error {
	os.Setenv("PATH", "/usr/bin:/usr/sbin")
	os.Setenv("HOME", "/root")
	if err := mountAll(); err != nil {
		return err
	}
	missing := loadModules()
	limit := unix.Rlimit{Cur: openFiles, Max: openFiles}
	if err := errors.Join(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit), loopbackUp()); err != nil {
		return fmt.Errorf("setting the machine up: %w", err)
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	p := &frameWriter{to: port}
	if err := p.sendFrame(FrameHello, Hello{Kernel: release(), Clock: clockSource(), Missing: missing}); err != nil {
		return err
	}
	status, err := do(p, port)
	end := End{Status: status}
	if err != nil {
		end.Error = err.Error()
	}
	return errors.Join(err, p.sendFrame(FrameEnd, end), port.Close())
}

// mountAll mounts the file systems that programs expect.
func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
		{"bpf", "/sys/fs/bpf"}, {"tracefs", "/sys/kernel/tracing"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.kind, m.at, err)
		}
	}
	return os.MkdirAll("/dev/shm", 0o777)
}

// loadModules returns the modules that could not be loaded.
func loadModules() (missing []string) {
	for _, name := range modules {
		if err := exec.Command("/usr/sbin/modprobe", "-q", name).Run(); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

func loopbackUp() error {
	link, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func release() string {
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return ""
	}
	return unix.ByteSliceToString(names.Release[:])
}

// clockSource is the clock source of the machine's kernel.
func clockSource() string {
	text, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return strings.TrimSpace(string(text))
}

// portTimeout is how long a driver that was just loaded may take to find the port.
const portTimeout = time.Minute

// openPort opens the serial port to the outside.
func openPort() (*os.File, error) {
	for deadline := time.Now().Add(portTimeout); ; <-time.After(10 * time.Millisecond) {
		port, err := findPort()
		if port != nil || err != nil {
			return port, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf(
				"the machine has no port %s: its kernel may have been fetched without the drivers (virtio_pci, virtio_console); remove it from the cache of kernels", portName)
		}
	}
}

// findPort returns nil while the kernel shows no port of that name.
func findPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(text)) != portName {
			continue
		}
		return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(name))), os.O_RDWR, 0)
	}
	return nil, nil
}

// frameWriter sends frames.
type frameWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (t *frameWriter) send(kind FrameKind, payload []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return WriteFrame(t.to, Frame{kind, payload})
}

func (t *frameWriter) sendFrame(kind FrameKind, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return t.send(kind, payload)
}

// do runs the job and sends its output and its result.
func do(p *frameWriter, port io.Reader) (status int, err error) {
	text, err := os.ReadFile(jobPath)
	if err != nil {
		return 0, fmt.Errorf("reading the job: %w", err)
	}
	var job Job
	if err := json.Unmarshal(text, &job); err != nil {
		return 0, fmt.Errorf("reading the job: %w", err)
	}
	lines, out, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer lines.Close()
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	printed := out
	if job.Prints {
		if printed, err = os.Create(job.Result + unfinished); err != nil {
			return 0, fmt.Errorf("making the file of the job's output: %w", err)
		}
		defer printed.Close()
	}
	program := worker()
	// Not exec.Cmd: this process reaps all children, which would disturb exec.Cmd.
	child, err := os.StartProcess(program, append([]string{program}, job.Args...),
		&os.ProcAttr{Dir: "/root", Files: []*os.File{nothing, printed, out}})
	if err != nil {
		return 0, fmt.Errorf("starting the job: %w", err)
	}
	out.Close()
	go execute(port, child)
	sent := make(chan error, 1)
	results := &file{path: job.Result}
	go func() { sent <- sendLines(p, lines, results) }()
	status, err = reapUntil(child.Pid)
	if job.Prints {
		err = errors.Join(err, os.Rename(printed.Name(), job.Result))
	}
	// A process that the job left behind may hold the pipe open.
	err = errors.Join(err, lines.SetReadDeadline(time.Now().Add(time.Second)))
	return status, errors.Join(err, <-sent, results.sendFrame(p))
}

// unfinished ends the name of a job's output while the job runs.
const unfinished = ".unfinished"

// worker is the path of the program that does the job.
func worker() string {
	if _, err := os.Stat(workerPath); err == nil {
		return workerPath
	}
	return jeoulPath
}

// execute interrupts the job when a frame from the outside asks for it.
func execute(port io.Reader, child *os.Process) {
	frames := NewReader(port)
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		if frame.Kind == FrameInterrupt {
			child.Signal(os.Interrupt)
		}
	}
}

// sendLines sends each line, and before it the job's file if that has changed.
func sendLines(p *frameWriter, from io.Reader, results *file) error {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if err := errors.Join(results.sendFrame(p), p.send(FrameLine, bytes.Clone(scanner.Bytes()))); err != nil {
			return err
		}
	}
	if err := scanner.Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// file is a file that is sent whenever it has changed.
type file struct {
	path string
	last os.FileInfo
}

func (f *file) sendFrame(p *frameWriter) error {
	info, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The job replaces the file as a whole, so a new file has another inode.
	if f.last != nil && os.SameFile(info, f.last) && info.ModTime().Equal(f.last.ModTime()) {
		return nil
	}
	content, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	f.last = info
	return p.send(FrameResult, content)
}

// reapUntil waits for all children, including those of processes that have died, until the given one ends: that is the
// task of a first process. It returns the exit status of that child.
func reapUntil(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for the job: %w", err)
		case got == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case got == pid && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}
