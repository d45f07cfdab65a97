// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/jeoul/jeoul/internal/host/program"
)

// Program is the program that a Keeper's speakers run.
type Program interface {
	// Build identifies this build of the program. The error says why no speaker can be started.
	Build() (string, error)
	// Start starts a speaker that outlives this process and takes the routes at a unix socket. restarting: routers may
	// have kept the routes of the previous speaker.
	Start(socket string, restarting bool) error
}

// Installed is the program jeoul-bgp of this host, as it is when it is first found: a package that is upgraded beside
// a running balancer changes the speaker only together with the balancer. It implements Program.
type Installed struct {
	mu sync.Mutex
	// file is the program, and build identifies it; nil as long as none is found.
	file  *os.File
	build string
}

// programSuffix is the program's name behind "jeoul-".
const programSuffix = "bgp"

// Build returns the program's build, and looks for the program if it has not been found yet.
func (i *Installed) Build() (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file != nil {
		return i.build, nil
	}
	path, err := program.Find(programSuffix)
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	build, err := program.Build(file)
	if err != nil {
		file.Close()
		return "", fmt.Errorf("read the build of %s: %w", path, err)
	}
	i.file, i.build = file, build
	return build, nil
}

// Start starts the program in a session of its own, so that it outlives this process.
func (i *Installed) Start(socket string, restarting bool) error {
	if _, err := i.Build(); err != nil {
		return err
	}
	args := []string{"--socket", socket}
	if restarting {
		args = append(args, "--restarting")
	}
	// The descriptor is closed only when the program has begun, so that the child still finds it.
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", i.file.Fd()), args...)
	cmd.Args[0] = "jeoul-" + programSuffix
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // or what is left of it stays in the list of processes
	return nil
}
