// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/prometheus/procfs"
)

// The states of a service.
const (
	serviceStopped = "stopped"
	serviceRunning = "running"
)

// services starts and stops the services of a host.
type services interface {
	state(name string) (string, error)
	set(name, state string) error
}

// systemd controls the machine's services. Whether a service runs is read without systemd.
type systemd struct{ Tree }

func (s systemd) state(name string) (string, error) {
	proc, err := procfs.NewFS(s.Path("proc"))
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

// serviceFiles are the services of a fake tree, with a file for the state of each.
type serviceFiles struct{ Tree }

func (s serviceFiles) state(name string) (string, error) {
	if state := s.Read("services", name); state != "" {
		return state, nil
	}
	return serviceStopped, nil
}

func (s serviceFiles) set(name, state string) error {
	return os.WriteFile(s.Path("services", name), []byte(state+"\n"), 0o644)
}

// The files that raise the limit of open files: for sessions (pam_limits), and for systemd's services.
const (
	LimitsFile        = "/etc/security/limits.d/90-jeoul-tune.conf"
	SystemdLimitsFile = "/etc/systemd/system.conf.d/90-jeoul-tune.conf"
)

// LimitTexts returns the contents of the files for a limit.
func LimitTexts(value string) map[string]string {
	return map[string]string{
		LimitsFile:        FileHeader + fmt.Sprintf("*    - nofile %s\nroot - nofile %s\n", value, value),
		SystemdLimitsFile: FileHeader + fmt.Sprintf("[Manager]\nDefaultLimitNOFILE=%s\n", value),
	}
}

// FileHeader is the first line of every file that tune writes.
const FileHeader = "# Written by `jeoul tune apply`; `jeoul tune revert` removes it.\n"
