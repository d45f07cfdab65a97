// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// A dispatcher's programs are pinned by "Locking and pinning" in libxdp's protocol.org: the kernel detaches a program
// from its slot when nothing refers to its link any more.

// environment is the variable that names another bpf file system than system.
const (
	environment = "LIBXDP_BPFFS"
	system      = "/sys/fs/bpf"
)

// root returns the directory of all dispatchers, which is also their lock.
func root() string {
	if other := os.Getenv(environment); other != "" {
		return filepath.Join(other, "xdp")
	}
	return filepath.Join(system, "xdp")
}

const dirPrefix = "dispatch-"

// dirName returns the name of the directory of a dispatcher, by its interface's index and its id.
func dirName(index int, id ebpf.ProgramID) string {
	return fmt.Sprintf("%s%d-%d", dirPrefix, index, id)
}

// parseDir parses a name that dirName has made.
func parseDir(name string) (index int, id ebpf.ProgramID, ok bool) {
	rest, prefixed := strings.CutPrefix(name, dirPrefix)
	interfaceIndex, number, separated := strings.Cut(rest, "-")
	if !prefixed || !separated {
		return 0, 0, false
	}
	i, err := strconv.ParseInt(interfaceIndex, 10, 32)
	n, err2 := strconv.ParseUint(number, 10, 32)
	if err != nil || err2 != nil || i <= 0 || n == 0 {
		return 0, 0, false
	}
	index, id = int(i), ebpf.ProgramID(n)
	return index, id, dirName(index, id) == name
}

// slotName names the function of a slot.
func slotName(slot int) string { return "prog" + strconv.Itoa(slot) }

// programPin and linkPin name the pins of a slot's program, and of the link that keeps it there.
func programPin(slot int) string { return slotName(slot) + "-prog" }
func linkPin(slot int) string    { return slotName(slot) + "-link" }
