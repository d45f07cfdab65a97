// SPDX-License-Identifier: Apache-2.0

// Package setting reads and writes single settings of a host, each by its [Key]: sysctls, files of /proc and /sys,
// settings of ethtool, services, limits, and services whose connections are not tracked. It depends neither on profiles
// nor on journals.
package setting

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/tools/tune/nic"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
)

// Kind is the kind of a setting.
type Kind string

// The kinds.
const (
	KindSysctl  Kind = "sysctl"
	KindFile    Kind = "file"    // a file of /proc or /sys
	KindEthtool Kind = "ethtool" // of an interface
	KindCmdline Kind = "cmdline" // a parameter of the kernel's command line
	KindService Kind = "service" // running or stopped
	KindLimit   Kind = "limit"   // of processes that start later
	KindNotrack Kind = "notrack" // a service whose connections are not tracked
)

var kinds = []Kind{KindSysctl, KindFile, KindEthtool, KindCmdline, KindService, KindLimit, KindNotrack}

// ScopeMachine is the scope of settings that belong to no network namespace.
const ScopeMachine = "machine"

// limitFiles is the only supported limit.
const limitFiles = "nofile"

// fileTrees are the directories that settings may be in. Nothing else is ever written, no matter what a profile or a
// journal contains.
var fileTrees = []string{"/proc/irq/", "/sys/class/net/", "/sys/devices/system/cpu/",
	"/sys/module/nf_conntrack/parameters/"}

// Key names one setting of a host.
type Key struct {
	Kind Kind `json:"kind"`
	// Name is a sysctl's name, a file's path, or a name defined by the kind.
	Name string `json:"name"`
	// Interface is the card of an ethtool setting.
	Interface string `json:"interface,omitempty"`
}

// String returns the key as one line.
func (k Key) String() string {
	switch k.Kind {
	case KindFile:
		return k.Name
	case KindEthtool:
		return k.Name + " of " + k.Interface
	case KindSysctl:
		return k.Name
	}
	return string(k.Kind) + " " + k.Name
}

// Check reports whether the key may be written: a journal is executed with the caller's rights.
func (k Key) Check() error {
	switch k.Kind {
	case KindSysctl:
		_, err := sysctl.Relative(k.Name)
		return err
	case KindFile:
		inside := slices.ContainsFunc(fileTrees, func(dir string) bool { return strings.HasPrefix(k.Name, dir) })
		if !inside || filepath.Clean(k.Name) != k.Name {
			return fmt.Errorf("%q: only files below %s are settings", k.Name, strings.Join(fileTrees, ", "))
		}
		return nil
	case KindEthtool:
		if readable, _ := nic.Known(k.Name); !readable || k.Interface == "" {
			return fmt.Errorf("ethtool %q of %q: no such setting", k.Name, k.Interface)
		}
		return nil
	case KindCmdline, KindService:
		if k.Name == "" || strings.ContainsAny(k.Name, " \t\n\x00/=\"'") {
			return fmt.Errorf("%s %q: no such name", k.Kind, k.Name)
		}
		return nil
	case KindLimit:
		if k.Name != limitFiles {
			return fmt.Errorf("limit %q: only %s is known", k.Name, limitFiles)
		}
		return nil
	case KindNotrack:
		_, err := untracked.ParseService(k.Name)
		return err
	}
	return fmt.Errorf("%q is no kind of setting: use %v", k.Kind, kinds)
}

// CheckItem checks the setting of an item, whose name may contain placeholders.
func CheckItem(text string) error {
	kind, name, ok := strings.Cut(text, " ")
	if !ok {
		return fmt.Errorf("%q: write a kind and a name, such as sysctl net.core.somaxconn", text)
	}
	name = strings.NewReplacer("{interface}", "eth0", "{rx}", "0", "{tx}", "0", "{irq}", "0", "{cpu}", "0", "{service}",
		"tcp/192.0.2.1:80").Replace(name)
	return Key{Kind: Kind(kind), Name: name, Interface: "eth0"}.Check()
}

// OfMachine reports whether the setting belongs to the machine and not to a namespace.
func (k Key) OfMachine(scope string) bool {
	switch k.Kind {
	case KindSysctl:
		path, err := sysctl.Relative(k.Name)
		return err != nil || scope == ScopeMachine || !strings.HasPrefix(path, "net/")
	case KindFile:
		return !strings.HasPrefix(k.Name, "/sys/class/net/")
	case KindEthtool, KindNotrack:
		return false
	}
	return true
}

// Same reports whether two texts are the same value.
func (k Key) Same(a, b string) bool {
	a, b = sysctl.OneLine(a), sysctl.OneLine(b)
	switch {
	case a == b:
		return true
	case k.Kind == KindFile && strings.HasSuffix(k.Name, "_cpus"):
		return cpus.SameMask(a, b)
	case k.Kind == KindFile && strings.HasSuffix(k.Name, "_list"):
		return SameList(a, b)
	}
	return false
}

// SameList reports whether two lists have the same CPUs.
func SameList(a, b string) bool {
	x, err1 := cpuset.Parse(a)
	y, err2 := cpuset.Parse(b)
	return err1 == nil && err2 == nil && x.Equals(y)
}

// Command returns the shell command that sets it.
func (k Key) Command(value string) string {
	switch k.Kind {
	case KindSysctl:
		return fmt.Sprintf("sysctl -w %s=%s", k.Name, quoteShell(value))
	case KindFile:
		return fmt.Sprintf("echo %s > %s", quoteShell(value), k.Name)
	case KindEthtool:
		return nic.Command(k.Interface, k.Name, value)
	case KindService:
		if value == serviceStopped {
			return "systemctl disable --now " + k.Name
		}
		return "systemctl enable --now " + k.Name
	case KindLimit:
		return fmt.Sprintf("printf '* - nofile %s\\nroot - nofile %s\\n' > %s", value, value, LimitsFile)
	case KindNotrack:
		return untrackedCommands(k.Name, value)
	}
	return fmt.Sprintf("# add %s=%s to GRUB_CMDLINE_LINUX, then update-grub, and reboot", k.Name, value)
}

// quoteShell quotes a value that a shell would split.
func quoteShell(value string) string {
	if strings.ContainsAny(value, " \t") {
		return "'" + value + "'"
	}
	return value
}
