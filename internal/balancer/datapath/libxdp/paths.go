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

// Where a dispatcher's programs are pinned, by "Locking and pinning" in libxdp's protocol.org: the kernel
// takes a program out of its slot when nothing keeps their link any more.

// environment names another bpf file system, in place of system.
const (
	environment = "LIBXDP_BPFFS"
	system      = "/sys/fs/bpf"
)

// root returns the directory of all dispatchers, which has their lock, too.
func root() string {
	if other := os.Getenv(environment); other != "" {
		return filepath.Join(other, "xdp")
	}
	return filepath.Join(system, "xdp")
}

const dirPrefix = "dispatch-"

// dirName names the directory of a dispatcher on the interface of an index.
func dirName(index int, id ebpf.ProgramID) string {
	return fmt.Sprintf("%s%d-%d", dirPrefix, index, id)
}

// parseDir parses a name that dirName has made.
func parseDir(name string) (index int, id ebpf.ProgramID, ok bool) {
	rest, is := strings.CutPrefix(name, dirPrefix)
	of, number, has := strings.Cut(rest, "-")
	if !is || !has {
		return 0, 0, false
	}
	i, err := strconv.ParseInt(of, 10, 32)
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
