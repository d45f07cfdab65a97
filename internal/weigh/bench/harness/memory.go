// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Maps is the kernel memory of a program's maps in bytes, by the names of the maps. The kernel reports it for each map
// (memlock in fdinfo).
type Maps map[string]uint64

// Total is the memory of all maps, in bytes.
func (m Maps) Total() (bytes uint64) {
	for _, b := range m {
		bytes += b
	}
	return bytes
}

// Memlock returns the memory of a program's maps, as the kernel reports it.
func Memlock(program *ebpf.Program) (Maps, error) {
	memory := Maps{}
	err := EachMap(program, func(name string, m *ebpf.Map) error {
		bytes, err := memlock(m.FD())
		memory[name] += bytes
		return err
	})
	return memory, err
}

// EachMap calls f with each map of a program, and the map's name in the kernel.
func EachMap(program *ebpf.Program, f func(name string, m *ebpf.Map) error) error {
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("asking for a program's maps: %w", err)
	}
	ids, known := info.MapIDs()
	if !known {
		return errors.New("asking for a program's maps: this kernel does not tell them")
	}
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("opening a program's map: %w", err)
		}
		about, err := m.Info()
		if err == nil {
			err = f(about.Name, m)
		}
		if err := errors.Join(err, m.Close()); err != nil {
			return fmt.Errorf("looking at a program's map: %w", err)
		}
	}
	return nil
}

// memlock reads a field of the kernel's description of an open map.
func memlock(fd int) (uint64, error) {
	path := fmt.Sprintf("/proc/self/fdinfo/%d", fd)
	value, err := field(path, "memlock:")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(value, 10, 64)
}

// Settled returns Available once it hardly changes: the kernel frees maps some time after they are closed. It waits for
// some seconds at most.
func Settled(ctx context.Context) (uint64, error) {
	debug.FreeOSMemory()
	last, err := Available()
	if err != nil {
		return 0, err
	}
	looks := time.NewTicker(settleInterval)
	defer looks.Stop()
	for range settleReads {
		select {
		case <-looks.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		now, err := Available()
		if err != nil {
			return 0, err
		}
		if max(now, last)-min(now, last) < settled {
			return now, nil
		}
		last = now
	}
	return last, nil
}

const (
	settleInterval = 250 * time.Millisecond
	settleReads    = 12
	settled        = 1 << 20
)

// Available returns the memory that the machine has available, in bytes (MemAvailable).
func Available() (uint64, error) {
	value, err := field("/proc/meminfo", "MemAvailable:")
	if err != nil {
		return 0, err
	}
	kibibytes, err := strconv.ParseUint(value, 10, 64)
	return kibibytes << 10, err
}

// field returns the word after a name in a file of the kernel.
func field(path, name string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == name {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("%s has no %s", path, name)
}
