// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// The states of a service.
const (
	serviceStopped = "stopped"
	serviceRunning = "running"
)

// services are the programs that a host runs by itself.
type services interface {
	state(name string) (string, error)
	set(name, state string) error
}

// systemd runs the machine's services; whether one runs is seen without it.
type systemd struct{ tree }

func (s systemd) state(name string) (string, error) {
	proc, err := procfs.NewFS(s.path("proc"))
	if err != nil {
		return "", err
	}
	all, err := proc.AllProcs()
	if err != nil {
		return "", fmt.Errorf("look for %s among the processes: %w", name, err)
	}
	for _, p := range all {
		if comm, err := p.Comm(); err == nil && comm == name {
			return serviceRunning, nil
		}
	}
	return serviceStopped, nil
}

func (s systemd) set(name, state string) error {
	verb := "disable"
	if state == serviceRunning {
		verb = "enable"
	}
	out, err := exec.Command("systemctl", verb, "--now", name).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s %s: there is no systemctl here: use what started it", verb, name)
	}
	if err != nil {
		return fmt.Errorf("systemctl %s --now %s: %w: %s", verb, name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// serviceFiles are the services of a fake tree: a file with the state for each.
type serviceFiles struct{ tree }

func (s serviceFiles) state(name string) (string, error) {
	if state := s.read("services", name); state != "" {
		return state, nil
	}
	return serviceStopped, nil
}

func (s serviceFiles) set(name, state string) error {
	return os.WriteFile(s.path("services", name), []byte(state+"\n"), 0o644)
}

// The files that raise the limit of open files: of sessions (pam_limits), and of systemd's services.
const (
	limitsFile        = "/etc/security/limits.d/90-jeoul-tune.conf"
	systemdLimitsFile = "/etc/systemd/system.conf.d/90-jeoul-tune.conf"
)

// limitTexts are the contents of the files for a limit.
func limitTexts(value string) map[string]string {
	return map[string]string{
		limitsFile:        fileHeader + fmt.Sprintf("*    - nofile %s\nroot - nofile %s\n", value, value),
		systemdLimitsFile: fileHeader + fmt.Sprintf("[Manager]\nDefaultLimitNOFILE=%s\n", value),
	}
}

// openFiles returns the limit of open files: that of our file for processes that start later, or that of this process.
func (a *access) openFiles() (string, error) {
	for line := range strings.Lines(readText(a.path(limitsFile))) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "*" && fields[2] == limitFiles {
			return fields[3], nil
		}
	}
	proc, err := procfs.NewFS(a.path("proc"))
	if err != nil {
		return "", err
	}
	self, err := proc.Self()
	if err != nil {
		return "", err
	}
	limits, err := self.Limits()
	if err != nil {
		return "", err
	}
	// The soft limit is that of programs that do not ask for another.
	return strconv.FormatUint(limits.OpenFiles, 10), nil
}

func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
