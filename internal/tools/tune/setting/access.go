// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/tools/tune/nic"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
)

// Open returns access to the settings of this machine, or of the fake tree at root.
func Open(root string) (*Access, error) {
	a := &Access{Tree: Tree{root}}
	if root != "" {
		a.Cards, a.services = nic.Files{Dir: a.Path("ethtool")}, serviceFiles{a.Tree}
		a.tracking = untrackedFile{a.Tree}
		return a, nil
	}
	cards, err := nic.Open()
	if err != nil {
		return nil, err
	}
	a.Cards, a.services, a.tracking = cards, systemd{a.Tree}, netfilter{}
	return a, nil
}

// Access reads and writes settings of every kind.
type Access struct {
	Tree
	// Cards gives access to the settings of ethtool.
	Cards    nic.Cards
	services services
	tracking tracking
	// Cmdline is the kernel's command line, which the caller reads.
	Cmdline []string
}

// ErrAbsent means that this kernel, namespace or driver has no such setting.
var ErrAbsent = errors.New("it is not there")

// Read returns a setting's value. Errors: ErrAbsent, fs.ErrPermission.
func (a *Access) Read(k Key) (string, error) {
	value, err := a.get(k)
	switch {
	case err == nil:
		return value, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, nic.ErrUnsupported), errors.Is(err, nic.ErrNoCard),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV),
		errors.Is(err, untracked.ErrUnsupported):
		return "", fmt.Errorf("%w (%w)", ErrAbsent, err)
	}
	return "", err
}

func (a *Access) get(k Key) (string, error) {
	if err := k.Check(); err != nil {
		return "", err
	}
	switch k.Kind {
	case KindSysctl:
		return a.sysctls().Read(k.Name)
	case KindFile:
		data, err := os.ReadFile(a.Path(k.Name))
		return sysctl.OneLine(string(data)), err
	case KindEthtool:
		return a.Cards.Get(k.Interface, k.Name)
	case KindService:
		return a.services.state(k.Name)
	case KindLimit:
		return a.openFiles()
	case KindNotrack:
		service, err := untracked.ParseService(k.Name)
		if err != nil {
			return "", err
		}
		return a.tracking.state(service)
	}
	return a.parameter(k.Name), nil
}

// notGiven is the value of a kernel parameter that is not on the command line.
const notGiven = "-"

// parameter returns the value of a parameter of the running kernel.
func (a *Access) parameter(name string) string {
	for _, word := range slices.Backward(a.Cmdline) {
		if key, value, _ := strings.Cut(word, "="); key == name {
			return cmp.Or(value, "given")
		}
	}
	return notGiven
}

// Write sets a setting and reads it back. If the value did not take effect, it restores the old value and returns an
// error.
func (a *Access) Write(k Key, old, value string) error {
	if err := a.put(k, value); err != nil {
		return err
	}
	now, err := a.Read(k)
	if err != nil {
		return err
	}
	if !k.Same(now, value) {
		return errors.Join(fmt.Errorf("set %s to %s: %w: %s", k, value, sysctl.ErrNotKept, now), a.put(k, old))
	}
	return nil
}

func (a *Access) put(k Key, value string) error {
	if err := k.Check(); err != nil {
		return err
	}
	switch k.Kind {
	case KindSysctl:
		return a.sysctls().Write(k.Name, value)
	case KindFile:
		// No O_CREATE: the file must exist.
		file, err := os.OpenFile(a.Path(k.Name), os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			_, err = file.WriteString(value + "\n")
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return fmt.Errorf("set %s to %s: %w", k, value, err)
		}
		return nil
	case KindEthtool:
		return a.Cards.Set(k.Interface, k.Name, value)
	case KindService:
		return a.services.set(k.Name, value)
	case KindNotrack:
		service, err := untracked.ParseService(k.Name)
		if err != nil {
			return err
		}
		return a.tracking.set(service, value)
	}
	return fmt.Errorf("set %s: it is changed by files", k)
}

// openFiles returns the limit of open files. It is the limit in tune's file, for processes that start later, or else
// that of this process.
func (a *Access) openFiles() (string, error) {
	for line := range strings.Lines(readText(a.Path(LimitsFile))) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "*" && fields[2] == limitFiles {
			return fields[3], nil
		}
	}
	proc, err := procfs.NewFS(a.Path("proc"))
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
	// The soft limit applies to programs that do not ask for more.
	return strconv.FormatUint(limits.OpenFiles, 10), nil
}

func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
