// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// asJeoul returns a command that runs this program.
func asJeoul(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(executable, arguments...)
	command.Env = append(os.Environ(), actAsJeoul+"=1")
	return command
}

// sandboxID finds the laboratory of a sandbox in its output.
func sandboxID(t *testing.T, text string) string {
	t.Helper()
	match := regexp.MustCompile(`/jeoul-lab-([0-9a-f]{4})\b`).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("no sandbox is named in:\n%s", text)
	}
	return match[1]
}

// laboratoryTraces returns the traces of a laboratory on this host: names of namespaces, directory and lock.
func laboratoryTraces(id string) (left []string) {
	for _, pattern := range []string{"/run/netns/jeoul-" + id + "-*", filepath.Join(os.TempDir(), "jeoul-lab-"+id),
		"/run/jeoul-labs/" + id + ".lock"} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	return left
}

func expectNoRemains(t *testing.T, id string) {
	t.Helper()
	if left := laboratoryTraces(id); len(left) > 0 {
		t.Errorf("there is left: %v", left)
	}
}

// TestTryDemo: each step of the demonstration has its effect, and nothing is left.
func TestTryDemo(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	output, err := asJeoul(t, "try", "--demo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	expectNoRemains(t, sandboxID(t, string(output)))
}

// TestTryCommand: a command on the client has the client's addresses and the sandbox's commands, and jeoul ends with
// its status.
func TestTryCommand(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	command := asJeoul(t, "try")
	command.Stdin = strings.NewReader("echo in $JEOUL_SANDBOX; crash web07; ask 3; ask 3; exit 7\n")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("a shell that ends with a status: %v\n%s", err, output)
	}
	for _, says := range []string{"ask 12", `no web server "web07"; there are web01 to web03`, "web01        1 #",
		"leaving the sandbox"} {
		if !strings.Contains(string(output), says) {
			t.Errorf("it does not say %q:\n%s", says, output)
		}
	}
	expectNoRemains(t, sandboxID(t, string(output)))
	output, err = asJeoul(t, "try", "sh", "-c", "echo $JEOUL_SANDBOX; exit 7").CombinedOutput()
	if code := exitCode(err); code != 7 {
		t.Errorf("a command that ends with 7: %v\n%s", err, output)
	}
	expectNoRemains(t, sandboxID(t, string(output)))
	if output, err := asJeoul(t, "sandbox", "ask").CombinedOutput(); err == nil ||
		!strings.Contains(string(output), "start `jeoul try`") {
		t.Errorf("outside of a sandbox: %v, %s", err, output)
	}
}

func exitCode(err error) int {
	if exit, is := err.(*exec.ExitError); is {
		return exit.ExitCode()
	}
	return 0
}

// TestTryEnds: however a sandbox ends, it is removed; after kill -9 by the next one.
func TestTryEnds(t *testing.T) {
	testenv.Also(t, matrixTarget)
	testenv.Root(t)
	t.Parallel()
	const stay = "echo in $JEOUL_SANDBOX; exec sleep 1000"
	type ending struct {
		name   string
		signal syscall.Signal
		// child: the signal is for the process that has started jeoul.
		child bool
	}
	for _, end := range testenv.Some(t, matrixTarget, 2, []ending{
		{"Ctrl-C", unix.SIGINT, false}, {"parent killed", unix.SIGKILL, true}, {"killed", unix.SIGKILL, false},
	}) {
		t.Run(end.name, func(t *testing.T) {
			command := asJeoul(t, "try", "sh", "-c", stay)
			if end.child {
				command.Args = []string{"sh", "-c", `"$0" try sh -c '` + stay + `' & wait`, command.Path}
				command.Path = "/bin/sh"
			}
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			command.Stdout, command.Stderr = writer, writer
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			text := bufio.NewReader(reader)
			line, err := text.ReadString('\n')
			for err == nil && !strings.HasPrefix(line, "in ") {
				line, err = text.ReadString('\n')
			}
			id := sandboxID(t, line)
			if len(laboratoryTraces(id)) == 0 {
				t.Error("nothing of the sandbox is found while it is there")
			}
			if err := command.Process.Signal(end.signal); err != nil {
				t.Fatal(err)
			}
			_ = command.Wait()
			// Its processes hold the pipe until they are gone.
			if _, err := io.Copy(io.Discard, text); err != nil {
				t.Error(err)
			}
			if end.signal == unix.SIGKILL && !end.child {
				if output, err := asJeoul(t, "try", "true").CombinedOutput(); err != nil {
					t.Errorf("the next sandbox: %v\n%s", err, output)
				}
			}
			// Another laboratory that starts at the same time may remove them.
			testenv.Eventually(t, testenv.WaitLimit, "nothing of the sandbox is left", func() bool {
				return len(laboratoryTraces(id)) == 0
			})
		})
	}
}

// TestTryTerminal: at a terminal the shell is in the foreground, with job control: Ctrl-C is for its jobs. If the
// terminal is gone, the sandbox ends.
func TestTryTerminal(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	for _, end := range []string{"exit", "hangup"} {
		t.Run(end, func(t *testing.T) {
			master, slave := openTerminal(t)
			command := asJeoul(t, "try")
			command.Stdin, command.Stdout, command.Stderr = slave, slave, slave
			command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			slave.Close()
			screen := newTerminalReader(t, master)
			screen.until("stays behind")
			fmt.Fprint(master, "echo in $JEOUL_SANDBOX, status $?\n")
			screen.until(", status 0")
			id := sandboxID(t, screen.text.String())
			screen.until("client$ ")
			fmt.Fprint(master, "sleep 1000\n")
			// Bash handles Ctrl-C badly at any other time: between fork and exec it leaves the job running and ends
			// itself, and at the prompt it drops the next character.
			screen.untilInForeground("sleep")
			fmt.Fprint(master, "\x03")
			screen.until("client$ ")
			// The terminal shows typed text, too, which must not count as echo's output.
			fmt.Fprint(master, "echo aw''ake\n")
			screen.until("awake")
			if strings.Contains(screen.text.String(), "job control") {
				t.Errorf("the shell complains:\n%s", screen.text.String())
			}
			if end == "exit" {
				fmt.Fprint(master, "exit\n")
				screen.until("leaving the sandbox")
			} else {
				master.Close()
			}
			if err := command.Wait(); err != nil && end == "exit" {
				t.Error(err)
			}
			expectNoRemains(t, id)
		})
	}
}

// openTerminal makes a pseudo-terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// terminalReader reads a terminal's output.
type terminalReader struct {
	t    *testing.T
	from *os.File
	text bytes.Buffer
	// seen is the length of the output that a wait has passed.
	seen int
}

// newTerminalReader also logs everything that the terminal showed if the test fails.
func newTerminalReader(t *testing.T, from *os.File) *terminalReader {
	r := &terminalReader{t: t, from: from}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal showed: %q", r.text.String())
		}
	})
	return r
}

// until waits for a text, after the one waited for before.
func (r *terminalReader) until(says string) {
	r.t.Helper()
	testenv.Eventually(r.t, testenv.WaitLimit, fmt.Sprintf("%q is shown", says), func() bool { return r.sees(says) })
}

// untilInForeground waits until the process that receives the terminal's signals runs a program. The text that the
// terminal has shown until then counts as seen.
func (r *terminalReader) untilInForeground(program string) {
	r.t.Helper()
	testenv.Eventually(r.t, testenv.WaitLimit, program+" is in the terminal's foreground", func() bool {
		_ = r.sees(program)
		r.seen = r.text.Len()
		group, err := unix.IoctlGetInt(int(r.from.Fd()), unix.TIOCGPGRP)
		if err != nil {
			return false
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", group))
		return err == nil && strings.TrimSpace(string(name)) == program
	})
}

func (r *terminalReader) sees(says string) bool {
	buffer := make([]byte, 4096)
	_ = r.from.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := r.from.Read(buffer); err == nil || n > 0 {
		r.text.Write(buffer[:n])
	}
	at := bytes.Index(r.text.Bytes()[r.seen:], []byte(says))
	if at >= 0 {
		r.seen += at + len(says)
	}
	return at >= 0
}
